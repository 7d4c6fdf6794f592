"""Which sessions are on, and how that changes: one change at a time, none of them cut in two by a fork.

A fork takes part in the sessions it was made inside. native/sinks sees that one is over, wherever an op runs; what
Python did for it in the fork is undone here, in the main thread.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Protocol


class Active(Protocol):
    def __exit__(self, *_: object) -> None: ...
    def _is_owner(self) -> bool: ...
    def _in_fork(self) -> None: ...


active: dict[int, Active] = {}  # by sink
_lock = threading.RLock()
_inside = 0  # how many changes the thread that has the lock is inside of
_over: list[int] = []  # sinks whose sessions this fork has seen to be over


@contextlib.contextmanager
def change() -> Iterator[None]:
    """Around every change of a session."""
    global _inside
    with _lock:
        _inside += 1
        try:
            yield
        finally:
            _inside -= 1
    _leave_what_is_over()


def told_over(sink: int) -> None:
    """The interpreter calls this between two lines of whatever the main thread is at, which may be a change."""
    _over.append(sink)
    _leave_what_is_over()


def _leave_what_is_over() -> None:
    # Without waiting: who holds the lock comes by here afterwards.
    while _over and _lock.acquire(blocking=False):
        try:
            if _inside:
                return
            session = active.get(_over.pop())
            if session is not None and not session._is_owner():
                session.__exit__()
        finally:
            _lock.release()


def _in_child() -> None:
    _over.clear()
    try:
        for session in list(active.values()):
            session._in_fork()
    finally:
        _lock.release()


os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_in_child)
