"""Finds the range that an `async with` of an annotation began, because tasks, threads and generators may share one.

`__aexit__` gets only its object. So a use is identified by the frame of its `async with`. The same frame enters and
leaves the block, and exists as long as its coroutine or generator. Blocks in one frame end in order.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from types import FrameType
from typing import Any

# (the object, the thread or task that entered, the frame) -> the ranges that it began, the innermost last
_open: dict[tuple[int, int, int], list[Any]] = {}

_CONTEXTLIB = vars(contextlib)


def are_open() -> bool:
    """Returns whether any use is open. If so, a new use is noted even if nobody listens. Otherwise its end could end
    the range of another use."""
    return bool(_open)


def note_begin(owner: object, begun: Any) -> None:
    """Notes a range. `__aenter__` must call it directly."""
    _open.setdefault((id(owner), _task(), _caller()), []).append(begun)


def note_end(owner: object) -> Any:
    """Returns the range that ends, or 0 if nobody listened. `__aexit__` must call it directly."""
    if not _open:
        return 0
    here = (id(owner), _task(), _caller())
    key = here if here in _open else _elsewhere(*here)
    if key is None:
        return 0
    ids = _open[key]
    begun = ids.pop()
    if not ids:
        del _open[key]
    return begun


def _elsewhere(owner: int, task: int, frame: int) -> tuple[int, int, int] | None:
    keys = [key for key in list(_open)[::-1] if key[0] == owner]
    # A generator may be closed by another task than the task that began it. A block may also be entered and left by
    # hand, in two functions. Then the last open block of this task counts.
    return next((key for key in keys if key[2] == frame), None) or next((key for key in keys if key[1] == task), None)


def _task() -> int:
    """Returns the id of asyncio's running task, else of the thread."""
    current_task = getattr(sys.modules.get("asyncio"), "current_task", None)  # tasks need asyncio
    if current_task is not None:
        try:
            running = current_task()
        except RuntimeError:  # no loop runs on this thread
            running = None
        if running is not None:
            return id(running)
    return threading.get_ident()


def _caller() -> int:
    """Returns the id of the frame that uses the session. An ExitStack enters and exits its context managers in frames
    of its own. Such frames are skipped, so the frame that uses the ExitStack is returned."""
    frame: FrameType | None = sys._getframe(2).f_back
    while frame is not None and frame.f_globals is _CONTEXTLIB:
        frame = frame.f_back
    return id(frame)
