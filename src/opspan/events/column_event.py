"""ColumnEvent: a FunctionEvent that is made from a row, and fetches the rest (relatives, kernels, lists) on demand.

It looks like any other FunctionEvent. Setting one of its attributes tells the list, which from then on relies on its
objects and no longer on its columns.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol

from opspan.events.event import FunctionEvent, FunctionEventAvg, Interval, Kernel
from opspan.events.kinds import SCOPES, USER_SCOPE, DeviceType
from opspan.events.times import Microseconds
from opspan.inputs import values_of
from opspan.labels import KIND_NAMES, Kind, parse_sizes

NO_NAME = "(no name)"
STEP = "ProfilerStep#"

_SCOPE_OF = {name: SCOPES[Kind(number)] for number, name in enumerate(KIND_NAMES)}
_ACTIVITY_OF = {"memcpy": "gpu_memcpy", "memset": "gpu_memset"}
# Printing a table sets these on its events: they are no change to the event itself.
_SHARES = {"self_cpu_percent", "total_cpu_percent", "total_device_percent"}


def shown_name(name: str | None) -> str:
    """Steps share one name, so that they are averaged; trace_name keeps their numbers."""
    if name is None:
        return NO_NAME
    return "ProfilerStep*" if name.startswith(STEP) else name


def is_user(kind: str | None) -> bool:
    return _SCOPE_OF.get(kind or "", 0) == USER_SCOPE


def shapes_of(sizes: str | None) -> list[list[int]]:
    """torch's input_shapes, from a `sizes` text. A list of tensors is empty here, not in structured_input_shapes."""
    return [[] if entry and isinstance(entry[0], list) else entry for entry in _structured(sizes)]


def _structured(sizes: str | None) -> list[Any]:
    if sizes is None:
        return []
    try:
        return parse_sizes(sizes)
    except ValueError:  # a reader took it from somewhere else than a label
        return []


def _texts(types: str | None) -> list[str]:
    try:
        found = json.loads(types or "[]")
    except (ValueError, RecursionError):
        return []
    return [str(text) for text in found] if isinstance(found, list) else []


def _concrete(values: str | None, types: list[str]) -> list[Any]:
    """One an argument; where none of them has a value, there is no text."""
    return [None] * len(types) if values is None else values_of(values)


class Rest(Protocol):
    """What an event asks its list for, because it is not in the event's own row."""

    use_device: str | None

    @property
    def changed(self) -> bool: ...
    def keep_changed(self, number: int, event: ColumnEvent) -> None: ...
    def parent(self, row: int | None) -> ColumnEvent | None: ...
    def children(self, number: int) -> list[ColumnEvent]: ...
    def kernels(self, number: int) -> list[Kernel]: ...
    def stack(self, row: int | None) -> list[str]: ...


class ColumnEvent(FunctionEvent):
    _columns: Rest
    _number: int
    _row: dict[str, Any]

    def __init__(self, columns: Rest, number: int, row: dict[str, Any], values: dict[str, Any]) -> None:
        # This bypasses __setattr__, and saves the constructor's fifty assignments.
        self.__dict__.update(_SAME)
        self.__dict__.update(values)
        self.__dict__.update(_columns=columns, _number=number, _row=row, id=number + 1, use_device=columns.use_device)

    def __getattr__(self, name: str) -> Any:
        make = _ON_DEMAND.get(name)
        if make is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        value = self.__dict__[name] = make(self)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name not in _SHARES:
            self._columns.keep_changed(self._number, self)

    def append_kernel(self, name: str, device: int, duration: float) -> None:
        super().append_kernel(name, device, duration)
        self._columns.keep_changed(self._number, self)

    def append_cpu_child(self, child: FunctionEvent) -> None:
        super().append_cpu_child(child)
        self._columns.keep_changed(self._number, self)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_ON_DEMAND})

    # These are in the columns: no need to walk through the children, as long as no event was changed.

    @property
    def self_cpu_time_total(self) -> float:
        if not self._has_self or self._columns.changed:
            return super().self_cpu_time_total
        return Microseconds(self._row["self_ns"])

    @property
    def device_time_total(self) -> float:
        if not self._has_self or not self.use_device or self._columns.changed:
            return super().device_time_total
        return Microseconds(self._row["device_ns"])

    @property
    def self_device_time_total(self) -> float:
        if not self._has_self or not self.use_device or self._columns.changed:
            return super().self_device_time_total
        return Microseconds(self._row["self_device_ns"])


class ColumnAverage(FunctionEventAvg):
    """The average of a group, described by its first event, whose relatives are made only when they are asked for."""

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


_ON_DEMAND: dict[str, Callable[[ColumnEvent], Any]] = {
    "time_range": lambda event: Interval(Microseconds(event._row["start_ns"]), Microseconds(event._row["end_ns"])),
    "input_shapes": lambda event: shapes_of(event._row.get("sizes")),
    "structured_input_shapes": lambda event: _structured(event._row.get("sizes")),
    "cpu_parent": lambda event: event._columns.parent(event._row.get("parent")),
    "cpu_children": lambda event: event._columns.children(event._number),
    "kernels": lambda event: event._columns.kernels(event._number),
    # A new object for each event, since a user may put something into it.
    "stack": lambda event: event._columns.stack(event._row.get("function")),
    "concrete_inputs": lambda event: _concrete(event._row.get("inputs"), _texts(event._row.get("input_types"))),
    "kwinputs": lambda _: {},
    "structured_input_strides": lambda event: _structured(event._row.get("input_strides")),
    "input_dtypes": lambda event: _texts(event._row.get("input_types")),
}
# What all events of a trace have in common.
_SAME = {
    **{name: value for name, value in vars(FunctionEvent(0, "", 0, 0, 0)).items() if name not in _ON_DEMAND},
    "overload_name": "",
    "flops": 0,
}


def cpu_values(row: dict[str, Any], node: int) -> dict[str, Any]:
    """Attributes of the event for a row of EventColumns.cpu."""
    user, python = is_user(row["kind"]), row.get("is_python", False)
    thread = row["tid"] or 0
    return {
        "name": shown_name(row["name"]),
        "trace_name": row["name"] or NO_NAME,
        "node_id": node,
        "thread": thread,
        "device_resource_id": thread,
        "fwd_thread": row["forward_tid"],
        "scope": _SCOPE_OF.get(row["kind"], 0),
        "sequence_nr": -1 if row["seq"] is None else row["seq"],
        "external_id": row["op_id"] or 0,
        "is_async": row["is_async"],
        "is_user_annotation": user,
        "is_python_function": python,
        "activity_type": "user_annotation" if user else "python_function" if python else "cpu_op",
        "overload_name": row.get("overload") or "",
        "module_hierarchy": row.get("modules") or "",
        "cpu_memory_usage": row.get("cpu_memory", 0),
        "device_memory_usage": row.get("device_memory", 0),
        "flops": row.get("flops", 0),
    }


def device_values(row: dict[str, Any], node: int, device_type: DeviceType) -> dict[str, Any]:
    """Attributes of the event for a row of EventColumns.device."""
    name = row["name"] or NO_NAME
    stream = row["stream_id"] or 0
    return {
        "name": name,
        "trace_name": name,
        "node_id": node,
        "thread": stream,
        "device_type": device_type,
        "device_index": row["device_id"] or 0,
        "device_resource_id": stream,
        "linked_correlation_id": 0 if row["range"] is None else row["range"] + 1,
        "activity_type": _ACTIVITY_OF.get(row["kind"], row["kind"]),
    }
