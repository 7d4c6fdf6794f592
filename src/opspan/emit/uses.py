"""Which `async with` of an annotation began which range: tasks, threads and generators share one, at the same time.

`__aexit__` is told nothing but its object. So a use is known by the frame of the `async with` that entered it: that
leaves it as well, and is one frame for as long as a coroutine or a generator lives. Blocks in one frame end in turn.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from types import FrameType

# (the object, the thread or task that entered, the frame) -> the ranges that it began, the innermost last
_open: dict[tuple[int, int, int], list[int]] = {}

_CONTEXTLIB = vars(contextlib)


def are_open() -> bool:
    """Then what reaches nobody is told here as well: it must not be taken for one that did."""
    return bool(_open)


def begun(owner: object, range_id: int) -> None:
    """For `__aenter__` to call, and no other function in between."""
    _open.setdefault((id(owner), _task(), _caller()), []).append(range_id)


def ended(owner: object) -> int:
    """For `__aexit__` to call: which range is over. 0 for a use that nobody listened to."""
    if not _open:
        return 0
    key = (id(owner), _task(), _caller())
    if key not in _open:
        found = _elsewhere(*key)
        if found is None:
            return 0
        key = found
    ids = _open[key]
    range_id = ids.pop()
    if not ids:
        del _open[key]
    return range_id


def _elsewhere(owner: int, task: int, frame: int) -> tuple[int, int, int] | None:
    keys = [key for key in list(_open)[::-1] if key[0] == owner]
    # A generator may be closed by another task than the one that began it. And a block may be entered and left by hand,
    # in two functions: then it is the last one of this task.
    return next((key for key in keys if key[2] == frame), None) or next((key for key in keys if key[1] == task), None)


def _task() -> int:
    """The task of asyncio's that runs, else the thread."""
    current_task = getattr(sys.modules.get("asyncio"), "current_task", None)  # who has a task has imported it
    if current_task is not None:
        try:
            running = current_task()
        except RuntimeError:  # no loop runs on this thread
            running = None
        if running is not None:
            return id(running)
    return threading.get_ident()


def _caller() -> int:
    """Who awaits the function that called us. An ExitStack enters and leaves in frames of its own: who called that."""
    frame: FrameType | None = sys._getframe(2).f_back
    while frame is not None and frame.f_globals is _CONTEXTLIB:
        frame = frame.f_back
    return id(frame)
