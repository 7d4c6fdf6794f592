"""Reports the ends of a program's steps to counters (`counting`, `rolling`). The source of a report is an optimizer or,
if the program calls step() of a session, the program. Optimizers do not report while a session of the program has a
schedule.

After `watch_optimizers`, torch calls `_after_optimizer` after each step of any optimizer. The hook is set once and
stays, because changing torch's hooks raises an error in a thread that iterates over them. Without a counter the hook
does nothing, and compiled code does not contain it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

from opspan.emit import unharmed

_HOOK_ID: Final = 0x6F70_7370_616E_0001  # the id of our hook. It is far from torch's own ids, which count from 0
PROGRAM: Final = 0  # the source of steps that the program itself reports; other sources are ids of optimizers

_counting: list[Callable[[int], None]] = []
_is_counted = False
_speakers = 0  # the number of active sessions for which the program itself reports the steps


def watch_optimizers() -> None:
    """Adds the hook. torch must be imported."""
    from torch.optim import optimizer

    optimizer._global_optimizer_post_hooks[_HOOK_ID] = _after_optimizer


@contextlib.contextmanager
def set_counter(count: Callable[[int], None]) -> Iterator[None]:
    """Adds a counter during the `with` block. `count` is called on the threads of the program."""
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
def ignore_optimizers() -> Iterator[None]:
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
    """Returns a `tell` that torch.compile does not trace when it compiles the step of an optimizer."""
    disable = getattr(sys.modules.get("torch._dynamo"), "disable", None)
    return tell if disable is None else disable(tell)


def _after_optimizer(optimizer: Any, _args: object, _kwargs: object) -> None:
    if _is_counted and not _speakers:
        _tell_uncompiled(id(optimizer))
