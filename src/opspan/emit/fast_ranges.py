"""Records the ranges of torch._C._profiler._RecordFunctionFast, which compiled programs and Dynamo make.

torch's class begins a range only while torch's own profiler is on. It cannot be a base class, but torch looks its name
up each time. So a class of ours has its name while sessions are on.
"""

from __future__ import annotations

from typing import Any

from opspan.emit.observer import Observer
from opspan.emit.replaced_name import ReplacedName

_enter_fast: Any = None


class _RecordFunctionFast:
    """torch's range, but `__enter__` works without torch's profiler as well. It may be entered again after its end."""

    __slots__ = ("_args", "_kwargs", "_range")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._args, self._kwargs = args, kwargs
        self._range = _name.before(*args, **kwargs)  # made now, because wrong arguments raise here

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
        # torch's __exit__ does nothing while torch's profiler is off. The range ends with its object, which goes now.


_name = ReplacedName("torch._C._profiler", "_RecordFunctionFast", _RecordFunctionFast)
stop = _name.stop


def start(by: Observer) -> None:
    global _enter_fast
    _enter_fast = by.enter_fast
    _name.start()
