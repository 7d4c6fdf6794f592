"""Defines EventRows, a block of consecutive rows of a trace. Each row is an event. When a program reads an attribute of
one event, the attribute's column is converted to Python objects for the whole block.

These objects exist at least as long as a program holds one of the block's events.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Protocol

from opspan.events.columns import EventColumns
from opspan.events.event import FunctionEvent, Kernel
from opspan.events.kinds import SCOPE_OF, is_user
from opspan.events.texts import NO_NAME, shown_name

# The number of rows in a block. Reading single rows would be slow, because getting a row from polars takes longer than
# making its event.
BLOCK = 512

_ACTIVITY_OF = {"memcpy": "gpu_memcpy", "memset": "gpu_memset"}


class Rest(Protocol):
    """The attributes and methods of ColumnEvents that EventRows and ColumnEvent use."""

    has_ranks: bool
    changed: bool  # True once a program has set an attribute of an event; the columns are then out of date

    def keep(self, number: int, event: Any, changed: bool) -> None: ...
    def parent(self, row: int | None) -> FunctionEvent | None: ...
    def children(self, number: int) -> Sequence[FunctionEvent]: ...
    def kernels(self, number: int) -> list[Kernel]: ...
    def stack(self, row: int | None) -> list[str]: ...


class EventRows(dict[str, list[Any]]):
    """Maps the name of an attribute to a list of its values, one for each row of the block."""

    def __init__(self, columns: Rest, source: EventColumns, on_cpu: bool, block: int) -> None:
        self.columns = columns
        self.source = source
        self.on_cpu = on_cpu
        self.block = block
        self._frame = source.cpu if on_cpu else source.device
        self.first = block * BLOCK + (0 if on_cpu else source.cpu.height)  # the number of the block's first event
        self.count = min(BLOCK, self._frame.height - block * BLOCK)
        self.events: list[weakref.ref[Any] | None] = [None] * self.count  # events that a program may still hold

    def __reduce__(self) -> tuple[Any, ...]:
        return EventRows, (self.columns, self.source, self.on_cpu, self.block)

    def __missing__(self, attribute: str) -> list[Any]:
        make = (_CPU if self.on_cpu else _DEVICE).get(attribute)
        if make is not None:
            self[attribute] = make(self)
        elif attribute in OF_ANY_EVENT:
            self[attribute] = [OF_ANY_EVENT[attribute]] * self.count
        else:
            self[attribute] = self.column(attribute)
        return self[attribute]

    def column(self, name: str, otherwise: Any = None) -> list[Any]:
        """Returns the values that a column of the trace has in the block's rows."""
        if name not in self._frame.columns:
            return [otherwise] * self.count
        return self._frame[name].slice(self.block * BLOCK, BLOCK).to_list()

    def numbers(self, name: str, otherwise: int = 0) -> list[int]:
        return [otherwise if number is None else number for number in self.column(name)]


def _forward_threads(rows: EventRows) -> list[int | None]:
    """Returns, for each row, the thread of the forward op. If the row's label does not name the thread, takes it from
    the forward op that the row is linked to."""
    labelled, linked = rows.column("forward_tid"), rows.column("forward")
    forward = [row for row in linked if row is not None]
    if not forward:
        return labelled
    threads = dict(zip(forward, rows.source.cpu["tid"].gather(forward), strict=True))
    return [threads.get(row) if thread is None else thread for thread, row in zip(labelled, linked, strict=True)]


def _by_value(make: Callable[[Any], Any], values: Iterable[Hashable]) -> list[Any]:
    """Returns `make(value)` for each value. Calls `make` only once for equal values."""
    values = list(values)
    results = {value: make(value) for value in set(values)}
    return [results[value] for value in values]


def _activity(is_user: bool, is_python: bool) -> str:
    return "user_annotation" if is_user else "python_function" if is_python else "cpu_op"


_BOTH: dict[str, Callable[[EventRows], list[Any]]] = {
    "id": lambda rows: list(range(rows.first + 1, rows.first + 1 + rows.count)),
    "node_id": lambda rows: rows.column("rank") if rows.columns.has_ranks else [-1] * rows.count,
    "use_device": lambda rows: [rows.source.use_device] * rows.count,
    "device_resource_id": lambda rows: rows["thread"],
}
_CPU = _BOTH | {
    "name": lambda rows: _by_value(shown_name, rows.column("name")),
    "trace_name": lambda rows: [name or NO_NAME for name in rows.column("name")],
    "thread": lambda rows: rows.numbers("tid"),
    "fwd_thread": _forward_threads,
    "flow_id": lambda rows: rows.column("flow_id"),
    "flow_type": lambda rows: [None if number is None else int(number > 0) for number in rows["flow_id"]],
    "flow_start": lambda rows: rows.column("flow_start"),
    "scope": lambda rows: _by_value(lambda kind: SCOPE_OF.get(kind, 0), rows.column("kind")),
    "sequence_nr": lambda rows: rows.numbers("seq", -1),
    "external_id": lambda rows: rows.numbers("op_id"),
    "is_async": lambda rows: rows.column("is_async"),
    "is_user_annotation": lambda rows: _by_value(is_user, rows.column("kind")),
    "is_python_function": lambda rows: rows.column("is_python", otherwise=False),
    "activity_type": lambda rows: list(map(_activity, rows["is_user_annotation"], rows["is_python_function"])),
    "overload_name": lambda rows: [name or "" for name in rows.column("overload")],
    "module_hierarchy": lambda rows: [path or "" for path in rows.column("modules")],
    "cpu_memory_usage": lambda rows: rows.column("cpu_memory", 0),
    "device_memory_usage": lambda rows: rows.column("device_memory", 0),
    "flops": lambda rows: rows.column("flops", 0),
}
_DEVICE = _BOTH | {
    "name": lambda rows: [name or NO_NAME for name in rows.column("name")],
    "trace_name": lambda rows: rows["name"],
    "thread": lambda rows: rows.numbers("stream_id"),
    "device_type": lambda rows: [rows.source.device_type] * rows.count,
    "device_index": lambda rows: rows.numbers("device_id"),
    "linked_correlation_id": lambda rows: [0 if row is None else row + 1 for row in rows.column("range")],
    "activity_type": lambda rows: [_ACTIVITY_OF.get(kind, kind) for kind in rows.column("kind")],
}
# All attributes of an event, with the values for an event about which nothing is known.
OF_ANY_EVENT = {**vars(FunctionEvent(0, "", 0, 0, 0)), "overload_name": "", "module_hierarchy": "", "flops": 0}
# The attributes that differ between events.
VALUES = tuple(name for name in OF_ANY_EVENT if name in _CPU | _DEVICE)
