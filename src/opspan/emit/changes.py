"""The active sessions. They change one at a time, and no fork interrupts a change halfway.

A fork shares the sessions that were active when it was made. native/sinks notices in the fork that one is over,
wherever an op runs; the main thread of the fork then undoes here what Python did for the session.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Protocol


class ActiveSession(Protocol):
    def __exit__(self, *_: object) -> None: ...
    def _is_owner(self) -> bool: ...
    def _in_fork(self) -> None: ...


active: dict[int, ActiveSession] = {}  # by sink
_lock = threading.RLock()
_inside = 0  # nested changes of the thread that holds the lock
_over: list[int] = []  # sinks whose sessions are over, as this fork has noticed


@contextlib.contextmanager
def change() -> Iterator[None]:
    """Guards every change of a session."""
    global _inside
    with _lock:
        _inside += 1
        try:
            yield
        finally:
            _inside -= 1
    _leave_what_is_over()


def note_over(sink: int) -> None:
    """Notes a session that is over. The interpreter calls it between any two lines of the main thread, even in a
    change."""
    _over.append(sink)
    _leave_what_is_over()


def _leave_what_is_over() -> None:
    # Do not wait: the holder of the lock comes here when it is done.
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
