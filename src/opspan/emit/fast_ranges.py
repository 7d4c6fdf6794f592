"""Records the ranges of torch._C._profiler._RecordFunctionFast, which compiled programs and Dynamo make.

torch's class begins a range only while torch's own profiler is on. It cannot be a base class, but torch looks its name
up each time. So a class of ours has its name while sessions are on.
"""

from __future__ import annotations

from typing import Any

from opspan.emit.observer import Observer

_users = 0  # how many sessions record these ranges now
_torchs: Any = None  # torch's class, while ours has its name
_enter_fast: Any = None


class _RecordFunctionFast:
    """torch's range, whose `__enter__` works without torch's profiler as well."""

    __slots__ = ("_enter", "_range")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._range = _torchs(*args, **kwargs)
        self._enter = self._range.__enter__

    def __enter__(self) -> None:
        if _users:
            _enter_fast(self._enter)
        else:
            self._enter()

    def __exit__(self, *error: object) -> None:
        self._range.__exit__(*error)


def start(by: Observer) -> None:
    global _users, _torchs, _enter_fast
    from torch._C import _profiler

    if _torchs is None:
        _enter_fast = by.enter_fast
        _torchs = _profiler._RecordFunctionFast
    _users += 1
    _profiler._RecordFunctionFast = _RecordFunctionFast  # type: ignore[misc,assignment]


def stop() -> None:
    global _users
    from torch._C import _profiler

    _users -= 1
    # Somebody else may have replaced the class since. Then ours stays in use, and calls torch's.
    if not _users and _profiler._RecordFunctionFast is _RecordFunctionFast:  # type: ignore[comparison-overlap]
        _profiler._RecordFunctionFast = _torchs  # type: ignore[misc]
