"""Defines ColumnEvent, a FunctionEvent that takes its attributes from a row of a trace. Attributes that are lists or
other events (parent, children, kernels, ...) are made when a program first reads them.

A ColumnEvent behaves like any other FunctionEvent. When a program sets an attribute of an event, the list that contains
the event stops using its columns and makes objects of all events.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from opspan.events.event import FormattedTimesMixin, FunctionEvent, FunctionEventAvg, Interval
from opspan.events.event_rows import OF_ANY_EVENT, VALUES, EventRows
from opspan.events.texts import microseconds, shapes_of, structured_of
from opspan.inputs import values_of
from opspan.json_columns import object_of

# Attributes that printing a table sets on events. Setting them does not count as a change.
_SHARES = {"self_cpu_percent", "total_cpu_percent", "total_device_percent"}


def _texts(types: str | None) -> list[str]:
    try:
        found = json.loads(types or "[]")
    except (ValueError, RecursionError):
        return []
    return [str(text) for text in found] if isinstance(found, list) else []


def _concrete(values: str | None, types: list[str]) -> list[Any]:
    """Returns the value of each argument of an op. `values` is None if no argument has a known value."""
    return [None] * len(types) if values is None else values_of(values)


class ColumnEvent(FunctionEvent):
    """An event that stores a block of rows (EventRows), its index in this block and, once a program has read it, the
    value of time_range."""

    __slots__ = ("_at", "_rows", "_span")
    _at: int
    _rows: EventRows
    _span: Interval | None

    @staticmethod
    def of(rows: EventRows, at: int) -> ColumnEvent:
        event: ColumnEvent = _new(ColumnEvent)
        _set_at(event, at)  # avoids __setattr__, which would mark the event as changed
        _set_rows(event, rows)
        _set_span(event, None)
        return event

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        self._keep(changed=name not in _SHARES)

    def _keep(self, changed: bool = True) -> None:
        self._rows.columns.keep(self._rows.first + self._at, self, changed)

    def append_kernel(self, name: str, device: int, duration: float) -> None:
        super().append_kernel(name, device, duration)
        self._keep()

    def append_cpu_child(self, child: FunctionEvent) -> None:
        super().append_cpu_child(child)
        self._keep()

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]  # in object it is not a property
        """Returns all attributes, for programs that call vars(event)."""
        own = _own(self)
        for name in (*_SAME, *VALUES, *_ON_DEMAND):
            own.setdefault(name, getattr(self, name))
        own["time_range"] = self.time_range
        return own

    def __getstate__(self) -> tuple[Any, ...]:
        return self._rows, self._at, self._span, _own(self)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        for name, value in zip(("_rows", "_at", "_span"), state[:3], strict=True):
            object.__setattr__(self, name, value)
        _own(self).update(state[3])

    # As long as no event was changed, these properties read times from the columns, without making Intervals or
    # children.

    @property
    def time_range(self) -> Interval:
        span = self._span
        if span is None:
            rows, at = self._rows, self._at
            span = Interval(microseconds(rows["start_ns"][at]), microseconds(rows["end_ns"][at]))
            _set_span(self, span)
        return span

    @time_range.setter
    def time_range(self, span: Interval) -> None:
        self._span = span

    @property
    def cpu_time_total(self) -> float:
        rows, at = self._rows, self._at
        if self._span is not None or rows.columns.changed or not rows.on_cpu:
            return super().cpu_time_total
        return microseconds(rows["end_ns"][at] - rows["start_ns"][at])

    @property
    def cpu_time(self) -> float:
        rows, at = self._rows, self._at
        if self._span is not None or rows.columns.changed or not rows.on_cpu:
            return super().cpu_time
        ns: int = rows["end_ns"][at] - rows["start_ns"][at]
        return ns / 1000  # a plain float instead of Microseconds, because it is an average per call

    @property
    def self_cpu_time_total(self) -> float:
        rows, at = self._rows, self._at
        if rows.columns.changed or not rows.on_cpu or rows["is_async"][at]:
            return super().self_cpu_time_total
        return microseconds(rows["self_ns"][at])

    @property
    def device_time_total(self) -> float:
        rows, at = self._rows, self._at
        if rows.columns.changed or not rows.on_cpu or rows["is_async"][at] or not rows.source.use_device:
            return super().device_time_total
        return microseconds(rows["device_ns"][at])

    @property
    def self_device_time_total(self) -> float:
        rows, at = self._rows, self._at
        if rows.columns.changed or not rows.on_cpu or rows["is_async"][at] or not rows.source.use_device:
            return super().self_device_time_total
        return microseconds(rows["self_device_ns"][at])


_new = object.__new__
_set_at, _set_rows, _set_span = (vars(ColumnEvent)[name].__set__ for name in ColumnEvent.__slots__)
# Returns the attributes that an event stores itself, because they are not in its row or have changed.
_own: Callable[[ColumnEvent], dict[str, Any]] = vars(FormattedTimesMixin)["__dict__"].__get__


class _Value:
    """An attribute whose value is in the rows, unless it was set on the event itself."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, event: ColumnEvent, _: type) -> Any:
        return event._rows[self._name][event._at]


class _OnDemand:
    """An attribute whose value is made when a program first reads it. The program may change this value."""

    def __init__(self, name: str, make: Callable[[EventRows, int], Any]) -> None:
        self._name, self._make = name, make

    def __get__(self, event: ColumnEvent, _: type) -> Any:
        value = self._make(event._rows, event._at)
        object.__setattr__(event, self._name, value)
        return value


_ON_DEMAND: dict[str, Callable[[EventRows, int], Any]] = {
    "input_shapes": lambda rows, at: shapes_of(rows["sizes"][at]),
    "structured_input_shapes": lambda rows, at: structured_of(rows["sizes"][at]),
    "cpu_parent": lambda rows, at: rows.columns.parent(rows["parent"][at]),
    "cpu_children": lambda rows, at: rows.columns.children(rows.first + at),
    "kernels": lambda rows, at: rows.columns.kernels(rows.first + at),
    "stack": lambda rows, at: rows.columns.stack(rows["function"][at]),
    "concrete_inputs": lambda rows, at: _concrete(rows["inputs"][at], _texts(rows["input_types"][at])),
    "kwinputs": lambda rows, at: object_of(rows["keywords"][at]),
    "structured_input_strides": lambda rows, at: structured_of(rows["input_strides"][at]),
    "input_dtypes": lambda rows, at: _texts(rows["input_types"][at]),
}
# Attributes that are equal for all events of a trace.
_SAME = {name: value for name, value in OF_ANY_EVENT.items() if name not in {*VALUES, *_ON_DEMAND, "time_range"}}
for _name, _value in _SAME.items():
    setattr(ColumnEvent, _name, _value)
for _name in VALUES:
    setattr(ColumnEvent, _name, _Value(_name))
for _name, _make in _ON_DEMAND.items():
    setattr(ColumnEvent, _name, _OnDemand(_name, _make))


class ColumnAverage(FunctionEventAvg):
    """The average of a group of events. Attributes that are not sums come from the group's first event. The parent and
    the children are made only when a program reads them."""

    _RELATIVES = ("cpu_parent", "cpu_children")

    def __init__(self, first: ColumnEvent) -> None:
        super().__init__()
        for name in self._FIRST:
            if name not in self._RELATIVES:
                setattr(self, name, getattr(first, name))
        for name in self._RELATIVES:
            del self.__dict__[name]
        self._first = first

    def __getattr__(self, name: str) -> Any:
        if name not in self._RELATIVES:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._first, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._RELATIVES})
