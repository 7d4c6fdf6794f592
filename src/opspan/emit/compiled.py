"""Replaces our ranges by torch.profiler.record_function for torch.compile, torch.export and TorchScript.

So an annotation in a compiled model acts like torch's own range. torch ignores such a range unless
`torch._dynamo.config.capture_profiler_record_function` is set. This module never imports torch before the program does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar, cast

T = TypeVar("T")


def compiling() -> bool:
    """Returns whether torch.compile traces this code. Each of our functions that user code calls asks this
    first, so torch.compile never traces the rest of that function."""
    return False


def _return_true() -> bool:
    return True


# When torch.compile meets `compiling`, it traces `_return_true` instead. torch.compiler.is_compiling is not used: it
# needs torch, but most programs import `annotate` before torch, and each range would have to look whether torch is
# imported by now.
compiling._torchdynamo_inline = _return_true  # type: ignore[attr-defined]


def has_old_compiler() -> bool:
    """Returns whether torch is older than 2.12."""
    import torch

    return tuple(map(int, torch.__version__.split(".")[:2])) < (2, 12)


def skip_functions_of(*modules: ModuleType) -> None:
    """Keeps torch.compile from compiling the functions of these modules separately. Without this, releases before 2.12
    compile every function that gets a module or a tensor, but a strict export allows only one compiled function."""
    skip = _skip_code()
    if skip is None:
        return
    for module in modules:
        for value in vars(module).values():
            for function in vars(value).values() if isinstance(value, type) else (value,):
                if isinstance(function, FunctionType) and function.__module__ == module.__name__:
                    skip(function.__code__)


def _skip_code() -> Callable[[CodeType], object] | None:
    """Returns torch's function that excludes code from compilation, or None if it is not known or not needed."""
    import torch

    frames = torch._C._dynamo.eval_frame
    if not has_old_compiler():
        return None
    if (skip := getattr(frames, "skip_code", None)) is not None:  # torch 2.4
        return cast("Callable[[CodeType], object]", skip)
    if not hasattr(frames, "_FrameExecStrategy"):
        return None
    strategy = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.DEFAULT)
    return lambda code: frames.set_code_exec_strategy(code, strategy)


def torchs_range(name: Any, args: str | None = None) -> Any:
    """Returns the range that compiled code uses instead of ours."""
    from torch.profiler import record_function

    return record_function(name, args)


_of_torch: dict[type, type] = {}


def of_torch(kind: type[T]) -> type[T]:
    """Returns `kind` itself, or, once torch is imported, a subclass of `kind` and of torch's record_function.

    Compiled code may enter an object that was created outside of it. torch.compile supports this only if the object is
    a record_function. Then torch.compile reads only the object's `name` and `args`.
    """
    subclass = _of_torch.get(kind)
    if subclass is None:
        record_function = getattr(getattr(sys.modules.get("torch"), "profiler", None), "record_function", None)
        if record_function is None:  # torch is not imported, or is being imported
            return kind
        members = {"__slots__": (), "__doc__": kind.__doc__, "__module__": kind.__module__}
        subclass = _of_torch.setdefault(kind, type(kind.__name__, (kind, record_function), members))
    return subclass


def for_torchscript(name: str) -> Callable[[], Any]:
    """Returns a hook for our function `name`. torch.jit.script calls the hook, and then compiles the function that the
    hook returns instead of ours."""

    def prepare() -> Any:
        from opspan.emit import torchscript

        return getattr(torchscript, name)

    return prepare
