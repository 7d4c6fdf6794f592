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
    """torch's range, whose `__enter__` works without torch's profiler as well."""

    __slots__ = ("_enter", "_range")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._range = _name.before(*args, **kwargs)
        self._enter = self._range.__enter__

    def __enter__(self) -> None:
        if _name.users:
            _enter_fast(self._enter)
        else:
            self._enter()

    def __exit__(self, *error: object) -> None:
        self._range.__exit__(*error)


_name = ReplacedName("torch._C._profiler", "_RecordFunctionFast", _RecordFunctionFast)
stop = _name.stop


def start(by: Observer) -> None:
    global _enter_fast
    _enter_fast = by.enter_fast
    _name.start()
