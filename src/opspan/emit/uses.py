"""Finds the range that an `async with` of an annotation began. Tasks, threads and generators may share an annotation.

A use is one `async with` block of an annotation. Its `__aexit__` gets only the annotation. So the use is identified by
the frame that enters and leaves the block. The frame exists as long as its coroutine or generator. Blocks in one frame
end in the reverse order of their begin.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from types import FrameType
from typing import Any

# (id of the annotation, id of the thread or task, id of the frame) -> the open ranges, the innermost last
_open: dict[tuple[int, int, int], list[Any]] = {}

_CONTEXTLIB = vars(contextlib)


def are_open() -> bool:
    """Returns whether any use is open. If so, a new use must be noted even if nobody listens. Otherwise its end could
    end the range of another use."""
    return bool(_open)


def note_begin(owner: object, begun: Any) -> None:
    """Notes a range that begins. `__aenter__` must call this directly, because `_caller` counts frames."""
    _open.setdefault((id(owner), _task(), _caller()), []).append(begun)


def note_end(owner: object) -> Any:
    """Returns the range that ends, or 0 if nobody listened. `__aexit__` must call this directly."""
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
    # One task may begin a generator, and another task may close it: then the frame is the same. A block may also be
    # entered and left by hand, in two functions: then the last open block of this task counts.
    return next((key for key in keys if key[2] == frame), None) or next((key for key in keys if key[1] == task), None)


def _task() -> int:
    """Returns the id of asyncio's running task, else of the thread."""
    current_task = getattr(sys.modules.get("asyncio"), "current_task", None)  # asyncio not imported: no tasks
    if current_task is not None:
        try:
            running = current_task()
        except RuntimeError:  # no loop runs on this thread
            running = None
        if running is not None:
            return id(running)
    return threading.get_ident()


def _caller() -> int:
    """Returns the id of the frame that enters or leaves the annotation. An ExitStack enters and exits its context
    managers in frames of its own. These are skipped, so the frame that uses the ExitStack counts."""
    frame: FrameType | None = sys._getframe(2).f_back
    while frame is not None and frame.f_globals is _CONTEXTLIB:
        frame = frame.f_back
    return id(frame)
