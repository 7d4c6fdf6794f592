"""What torch.compile, torch.export and TorchScript see in place of our ranges: torch.profiler.record_function.

So an annotation is to a compiled model what torch's own is: nothing, unless torch is told to keep them
(`torch._dynamo.config.capture_profiler_record_function`). Nothing here imports torch before a program did.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def compiling() -> bool:
    """Does torch.compile trace this code? All that user code calls asks it first: it need not trace what follows."""
    return False


def _compiling_traced() -> bool:
    return True


# torch.compile traces this function wherever it meets the other. Not torch.compiler.is_compiling: it can be named once
# torch is imported, and `from opspan import annotate` mostly comes before that; nor can each range look for torch.
compiling._torchdynamo_inline = _compiling_traced  # type: ignore[attr-defined]


def torchs_range(name: Any, args: str | None = None) -> Any:
    """In compiled code: the range to use instead."""
    from torch.profiler import record_function

    return record_function(name, args)


_of_torch: dict[type, type] = {}


def of_torch(kind: type[T]) -> type[T]:
    """`kind`, with torch's record_function as a base once torch is here.

    torch.compile can enter an object that stood outside of the compiled code only when it is one of those: then it
    asks for `name` and `args`, and calls nothing else.
    """
    found = _of_torch.get(kind)
    if found is None:
        torch = sys.modules.get("torch")
        if torch is None:
            return kind
        record_function = getattr(getattr(torch, "profiler", None), "record_function", None)
        if record_function is None:  # torch is being imported
            return kind
        members = {"__slots__": (), "__doc__": kind.__doc__, "__module__": kind.__module__}
        found = _of_torch.setdefault(kind, type(kind.__name__, (kind, record_function), members))
    return found


def for_torchscript(name: str) -> Callable[[], Any]:
    """The hook of a function that torch.jit.script asks before it reads the function's source."""

    def prepare() -> Any:
        from opspan.emit import torchscript

        return getattr(torchscript, name)

    return prepare
