"""The active sessions. Only one thread changes them at any moment, and the process does not fork during a change.

A forked process inherits the sessions that were active at the fork. If the parent process then ends such a session, the
forked process notices this at its next op, on any thread (native/sinks). The main thread of the forked process then
calls `note_over`, to undo what Python did for the session.
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


active: dict[int, ActiveSession] = {}  # the active sessions, by the numbers of their sinks
_lock = threading.RLock()
_inside = 0  # the depth of nested `change` blocks, in the thread that holds the lock
_over: list[int] = []  # the sinks of sessions that the parent has ended, but this forked process has not left


@contextlib.contextmanager
def change() -> Iterator[None]:
    """Holds the lock during a change of a session."""
    global _inside
    with _lock:
        _inside += 1
        try:
            yield
        finally:
            _inside -= 1
    _exit_ended_sessions()


def note_over(sink: int) -> None:
    """Notes that the parent has ended a session. The interpreter may call this between any two lines of the main
    thread, even inside of `change`."""
    _over.append(sink)
    _exit_ended_sessions()


def _exit_ended_sessions() -> None:
    # Do not wait for the lock: the thread that holds it also calls this function, at the end of `change`.
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
