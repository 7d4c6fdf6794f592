"""A user's own ranges through the packages nvtx and ittapi: only where opspan has no native library. No torch ops.

Poorer than the native way: nsys before 2024 does not record what nvtx 0.2.13 and newer write, and ITT gets names only.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import os
import threading
from typing import Any

from opspan.emit.sinks import TO_ITT, TO_NVTX, CRange

_local = threading.local()
_open: dict[int, Any] = {}
_ids = itertools.count(1)


def listening() -> int:
    """Which package is there and has been given a tool by its environment variable."""
    found = 0
    if os.environ.get("NVTX_INJECTION64_PATH") and _package("nvtx"):
        found |= TO_NVTX
    if os.environ.get("INTEL_LIBITTNOTIFY64") and _package("ittapi"):
        found |= TO_ITT
    return found


def push(ref: Any, to: int) -> int:
    name, depths = _name(ref), _depths()
    reached = to & listening()
    if reached & TO_NVTX:
        _package("nvtx").push_range(name)
    if reached & TO_ITT:
        ittapi = _package("ittapi")
        ittapi.task_begin(ittapi.domain("opspan"), name)
    depths.append(reached)
    return len(depths) - 1


def pop(to: int) -> int:
    depths = _depths()
    if not depths:
        return -1
    reached = depths.pop()
    if reached & TO_NVTX:
        _package("nvtx").pop_range()
    if reached & TO_ITT:
        ittapi = _package("ittapi")
        ittapi.task_end(ittapi.domain("opspan"))
    return len(depths)


def mark(ref: Any, to: int) -> None:
    if to & TO_NVTX & listening():
        _package("nvtx").mark(_name(ref))
    if to & TO_ITT & listening():
        with _package("ittapi").task(_name(ref)):
            pass


def range_start(ref: Any, to: int) -> int:
    range_id = next(_ids)
    nvtx = _package("nvtx").start_range(_name(ref)) if to & TO_NVTX & listening() else None
    task = None
    if to & TO_ITT & listening():
        task = _package("ittapi").overlapped_task(_name(ref))
        task.begin()
    _open[range_id] = (nvtx, task)
    return range_id


def range_end(range_id: int) -> None:
    nvtx, task = _open.pop(range_id, (None, None))
    if nvtx is not None:
        _package("nvtx").end_range(nvtx)
    if task is not None:
        task.end()


@functools.cache
def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _name(ref: Any) -> str:
    made: CRange = ref._obj
    return str(made.name.decode())


def _depths() -> list[int]:
    try:
        depths: list[int] = _local.depths
    except AttributeError:
        depths = _local.depths = []
    return depths
