"""Defines EventList, torch's list of events with its tables, averages and exports.

A list stores either event objects or the columns of a trace (column_events.py). If it stores columns, it computes its
length, tables, averages and totals from them, and makes an event object when the program accesses the event. When a
program first changes the list or an event, all events become objects.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, MutableSequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

from opspan import html_columns
from opspan.events import export, tree
from opspan.events.event import FunctionEvent, FunctionEventAvg
from opspan.events.table import (
    Facts,
    TableOptions,
    facts_of,
    filled,
    render,
    shown,
    sort_attribute,
    sort_value,
    totals_of,
)
from opspan.printable import path_text, printable_lines

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from opspan.events.column_events import ColumnEvents

    Event = TypeVar("Event", default=FunctionEvent)
else:
    from typing import TypeVar

    Event = TypeVar("Event")

_STACK = 5  # the most functions of a stack that a notebook shows for an average


class EventList(MutableSequence[Event]):
    """A list of FunctionEvents or FunctionEventAvgs, with torch's arguments. It is not a `list`, because its items are
    made on demand."""

    __hash__ = None  # type: ignore[assignment]  # a list can change

    def __init__(
        self,
        events: Iterable[Event] = (),
        *,
        use_device: str | None = None,
        profile_memory: bool = False,
        with_flops: bool = False,
    ) -> None:
        # A list made from a trace has its events in `_columns` until a program changes the list or an event. Then, as
        # in any other list, the events are in `_objects`.
        self._columns: ColumnEvents | None = None
        self._objects: list[Any] = list(events)
        self._use_device = use_device
        self._profile_memory = profile_memory
        self._with_flops = with_flops
        self._tree_built = False

    @classmethod
    def over(cls, columns: ColumnEvents) -> EventList:
        """Returns a list of the events that these columns of a trace describe."""
        events: EventList[Any] = cls(
            use_device=columns.use_device, profile_memory=columns.has_memory, with_flops=columns.has_flops
        )
        events._columns = columns
        events._tree_built = True
        return events

    # --- methods of every sequence

    def _in_columns(self) -> ColumnEvents | None:
        """Returns the columns, or None if the events are objects. If an event was changed, first turns all events into
        objects."""
        if self._columns is not None and self._columns.changed:
            self._as_objects()
        return self._columns

    def _as_objects(self) -> list[Any]:
        """Turns all events into objects permanently, so that changes to them take effect."""
        if self._columns is not None:
            self._objects, self._columns = list(self._columns), None
        return self._objects

    def _same_kind(self, events: Iterable[Any]) -> EventList[Any]:
        """Returns a list of these events, with the settings of this list."""
        events = EventList(
            events,
            use_device=self._use_device,
            profile_memory=self._profile_memory,
            with_flops=self._with_flops,
        )
        events._tree_built = self._tree_built
        return events

    def __len__(self) -> int:
        columns = self._in_columns()
        return len(self._objects if columns is None else columns)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> EventList[Event]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        columns = self._in_columns()
        if isinstance(index, slice):
            if columns is None:
                return self._same_kind(self._objects[index])
            return self._same_kind(columns.at(position) for position in range(*index.indices(len(columns))))
        return self._objects[index] if columns is None else columns.at(index.__index__())

    def __iter__(self) -> Iterator[Event]:
        columns = self._in_columns()
        events: Iterable[Any] = self._objects if columns is None else columns
        return iter(events)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._as_objects()[index] = value

    def __delitem__(self, index: Any) -> None:
        del self._as_objects()[index]

    def insert(self, index: int, value: Event) -> None:
        self._as_objects().insert(index, value)

    def sort(self, *, key: Callable[[Event], Any] | None = None, reverse: bool = False) -> None:
        self._as_objects().sort(key=key, reverse=reverse)

    def copy(self) -> EventList[Event]:
        return self[:]

    def __add__(self, other: Iterable[Event]) -> EventList[Event]:
        return self._same_kind([*self, *other])

    def __radd__(self, other: Iterable[Event]) -> EventList[Event]:
        return self._same_kind([*other, *self])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EventList | list):
            return NotImplemented
        return self is other or list(self) == list(other)

    def __repr__(self) -> str:
        return repr(list(self))

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        """Returns the HTML that a notebook shows: the first events or averages, and how many more there are."""
        return html_columns.or_why_not(self._as_html, "The list")

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Prints the table of the first events in IPython and in notebooks. Without this method they would call repr(),
        which prints all events."""
        printer.text(html_columns.or_why_not(self._as_text, "The list", say=str))

    def _as_text(self) -> str:
        table = printable_lines(self.table(row_limit=html_columns.ROWS))
        return "".join([table, *self._more()]) if len(self) else "[]"

    def _as_html(self) -> str:
        is_average = self._columns is None and any(isinstance(event, FunctionEventAvg) for event in self._objects[:1])
        title = f"{len(self):,} {'averages' if is_average else 'events'}"
        if len(self) == 0:
            return html_columns.sentence(title)
        options = TableOptions(
            row_limit=html_columns.ROWS,
            max_src_column_width=None,
            max_name_column_width=None,
            max_shapes_column_width=None,
            profile_memory=self._profile_memory,
            with_flops=self._with_flops,
            stack_limit=_STACK if is_average else 1,
        )
        events, facts = self._to_show(None, options)
        below = (*totals_of(facts, None), *self._more())
        return html_columns.table(filled(events, facts, options), title, below)

    def _more(self) -> list[str]:
        return html_columns.more(len(self), ".table() has 100 of them, .table(row_limit=-1) all")

    # --- torch's own methods

    def _build_tree(self) -> None:
        """Links parents and children. Drops each event that is the only child of a parent with the same name. Gives
        backward events the stacks of their forward events."""
        events = self._as_objects()
        tree.link(events)
        events[:] = tree.without_duplicates(events)
        tree.hand_stacks_to_backward(events)
        self._tree_built = True

    @property
    def self_cpu_time_total(self) -> float:
        columns = self._in_columns()
        return sum(event.self_cpu_time_total for event in self._objects) if columns is None else columns.self_cpu_us()

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int | None = 75,
        max_name_column_width: int | None = 55,
        max_shapes_column_width: int | None = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
        time_unit: str | None = None,
    ) -> str:
        """Returns the events as text. `sort_by`: an attribute; the largest value comes first. `time_unit`: s, ms or
        us."""
        if len(self) == 0:
            return ""
        options = TableOptions(
            row_limit=row_limit,
            max_src_column_width=max_src_column_width,
            max_name_column_width=max_name_column_width,
            max_shapes_column_width=max_shapes_column_width,
            header=header,
            top_level_events_only=top_level_events_only,
            time_unit=time_unit,
            profile_memory=self._profile_memory,
            with_flops=self._with_flops,
        )
        events, facts = self._to_show(sort_by, options)
        return render(events, facts, options)

    def _to_show(self, sort_by: str | None, options: TableOptions) -> tuple[Iterable[Any], Facts]:
        """Returns the events that a table shows, and the facts about all events."""
        attribute = None if sort_by is None else sort_attribute(sort_by)
        columns = self._in_columns()
        if columns is not None and columns.sorts_by(attribute):
            return columns.shown(attribute, options), columns.facts()
        events: Iterable[Any] = self
        if attribute is not None:
            events = sorted(self, key=lambda event: sort_value(event, attribute, sort_by or ""), reverse=True)
        return shown(events, options), facts_of(list(self)) if columns is None else columns.facts()

    def key_averages(
        self,
        group_by_input_shapes: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
        include_python_functions: bool = False,
        *,
        group_by_input_shape: bool = False,
    ) -> EventList[FunctionEventAvg]:
        """Returns a FunctionEventAvg for each name. If requested, averages events of the same name separately if their
        shapes, their overloads or the innermost functions of their stacks differ.

        Python functions are left out unless requested, as in torch since 2.14. Older releases counted all of them.
        `group_by_input_shape` is torch.profiler's spelling. Builds the tree if it does not exist yet.
        """
        by_shapes = group_by_input_shapes or group_by_input_shape
        columns = self._in_columns()
        if columns is not None:
            averages = columns.averages(by_shapes, include_python_functions, group_by_stack_n, group_by_overload_name)
        else:
            if not self._tree_built:
                self._build_tree()
            events = (event for event in self._objects if include_python_functions or not event.is_python_function)
            averages = _averages(events, by_shapes, group_by_stack_n, group_by_overload_name)
        for average in averages:
            average.stack = (average.stack or [])[:group_by_stack_n]
            if not by_shapes:
                average.input_shapes = ""
            if not group_by_overload_name:
                average.overload_name = ""
        result = self._same_kind(averages)
        result._tree_built = False
        return result

    def total_average(self) -> FunctionEventAvg:
        """Returns the sum of all events, whatever their names. Other attributes are those of the last event."""
        columns = self._in_columns()
        if columns is not None:
            return columns.total()
        total = FunctionEventAvg()
        for event in self._objects:
            total.key = None
            total.add(event)
        total.key = "Total"
        return total

    def export_chrome_trace(self, path: str | Path) -> None:
        """Writes the events for chrome://tracing or Perfetto."""
        export.chrome_trace(self, path, self._use_device or "cuda")

    def supported_export_stacks_metrics(self) -> list[str]:
        return list(export.STACK_METRICS)

    def export_stacks(self, path: str | Path, metric: str) -> None:
        """Writes lines, each with a stack and the time spent in it, in the format that flame graph tools read.

        If the events of a trace have no stacks, an event's stack is the event and the events that contain it. In a list
        from load_kineto, Python functions are events, too. Warns if the file is empty.
        """
        columns = self._in_columns()
        if columns is None or columns.has_stacks or metric not in export.STACK_METRICS:
            export.stacks(self, path, metric)
        elif not export.write_lines(columns.stacks(sort_attribute(metric)), path):
            way = (
                "no op was captured (`opspan run --emit nvtx -o capture -- python train.py` captures them)"
                if metric == "self_cpu_time_total"
                else "no kernel was recorded (torch.profiler with ProfilerActivity.CUDA records them, and "
                "`nsys profile -t cuda,nvtx`)"
            )
            warnings.warn(f"{path_text(path)} is empty: no event has {metric}; {way}", stacklevel=2)

    def to_torch(self) -> Any:
        """Returns torch's own EventList of the same events. Needs torch."""
        from opspan.events.to_torch import to_torch

        return to_torch(self)


def _averages(events: Iterable[Any], by_shapes: bool, stack_n: int, by_overload: bool) -> list[FunctionEventAvg]:
    groups: dict[tuple[Any, ...], FunctionEventAvg] = {}
    for event in events:
        key = (
            str(event.key),
            str(event.node_id),
            str(event.device_type),
            str(event.is_legacy),
            str(event.is_user_annotation),
            event.overload_name if by_overload else None,
            str(event.input_shapes) if by_shapes else None,
            tuple((event.stack or ())[:stack_n]) if stack_n > 0 else None,
        )
        groups.setdefault(key, FunctionEventAvg()).add(event)
    return list(groups.values())
