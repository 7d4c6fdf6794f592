"""Where a program's steps end: told to whoever counts them (`counting`), by its own step(), else by its optimizers.

torch calls `_after_optimizer` after each step of any optimizer, from when this process began to listen. It is put there
once: who goes through torch's hooks while another thread changes them gets an exception. Where nobody counts it does
nothing, and torch.compile leaves nothing of it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

from opspan.emit import unharmed

_HOOK_ID: Final = 0x6F70_7370_616E_0001  # far from torch's own, which count from 0
PROGRAM: Final = 0  # who says that a step is over: the program itself, or the id of an optimizer

_counting: list[Callable[[int], None]] = []
_is_counted = False
_speakers = 0  # sessions of the program that are on, and that it says its steps to


def watch_optimizers() -> None:
    """Once torch is imported."""
    from torch.optim import optimizer

    optimizer._global_optimizer_post_hooks[_HOOK_ID] = _after_optimizer


@contextlib.contextmanager
def counted_by(count: Callable[[int], None]) -> Iterator[None]:
    """`count` is called on the threads of the program."""
    global _is_counted, _tell_uncompiled
    _tell_uncompiled = _uncompiled()
    _counting.append(count)
    _is_counted = True
    try:
        yield
    finally:
        _counting.remove(count)
        _is_counted = bool(_counting)


@contextlib.contextmanager
def said_by_program() -> Iterator[None]:
    """Meanwhile nobody counts what optimizers do."""
    global _speakers
    _speakers += 1
    try:
        yield
    finally:
        _speakers -= 1


def tell(by: int = PROGRAM) -> None:
    for count in list(_counting):
        unharmed.call("counting steps", count, by)


_tell_uncompiled = tell


def _uncompiled() -> Callable[[int], None]:
    """`tell` for an optimizer whose step is compiled: else torch.compile would trace all that it calls, us."""
    disable = getattr(sys.modules.get("torch._dynamo"), "disable", None)
    return tell if disable is None else disable(tell)


def _after_optimizer(optimizer: Any, _args: object, _kwargs: object) -> None:
    if _is_counted and not _speakers:
        _tell_uncompiled(id(optimizer))
