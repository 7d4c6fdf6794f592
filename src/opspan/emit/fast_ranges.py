"""Records the ranges that compiled programs and Dynamo make with the class torch._C._profiler._RecordFunctionFast.

torch's class begins a range only while torch's own profiler is on. The class cannot have subclasses, but torch looks it
up by its name each time. So this name stands for a class of ours while sessions are on.
"""

from __future__ import annotations

from typing import Any

from opspan.emit.observer import Observer
from opspan.emit.replaced_name import ReplacedName

_enter_fast: Any = None


class _RecordFunctionFast:
    """torch's range, which also begins without torch's profiler, and can be entered again after its end."""

    __slots__ = ("_args", "_kwargs", "_range")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._args, self._kwargs = args, kwargs
        self._range = _name.before(*args, **kwargs)  # created now, so that wrong arguments raise here

    def __enter__(self) -> None:
        if self._range is None:
            self._range = _name.before(*self._args, **self._kwargs)
        if _name.users:
            _enter_fast(self._range.__enter__)
        else:
            self._range.__enter__()

    def __exit__(self, *error: object) -> None:
        ended, self._range = self._range, None
        if ended is not None:
            ended.__exit__(*error)
        # While torch's profiler is off, torch's __exit__ does nothing. Then the range ends when `ended` is freed here.


_name = ReplacedName("torch._C._profiler", "_RecordFunctionFast", _RecordFunctionFast)
stop = _name.stop


def start(by: Observer) -> None:
    global _enter_fast
    _enter_fast = by.enter_fast
    _name.start()
