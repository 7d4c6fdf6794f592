"""Defines ColumnEvents, the events of an EventList that was made from a trace. The length, the order, the totals and
the averages are computed from the trace's columns, without event objects.

Each event has a number. For a CPU event, the number is its row in the frame `cpu`. For a device event, it is the number
of rows of `cpu` plus the event's row in the frame `device`. An event's position in the list is a different number,
because the list is in order of time. If several events begin together, the longest comes first, as in torch.
"""

from __future__ import annotations

import weakref
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import polars as pl

from opspan import forked
from opspan.analysis.stacks import DEEPEST as MOST_FRAMES
from opspan.analysis.stacks import collapse, depths
from opspan.events.column_event import ColumnEvent
from opspan.events.columns import EventColumns
from opspan.events.event import FunctionEventAvg, Kernel
from opspan.events.event_frames import DEEPEST, IN_ORDER, EventFrames, EventGroup, sum_of
from opspan.events.event_rows import BLOCK, EventRows
from opspan.events.table import Facts, TableOptions
from opspan.events.texts import NO_NAME, Microseconds, shapes_of, shown_name
from opspan.forked import all_frames, cached_frame
from opspan.row_numbers import ROW_NUMBER

# The most blocks of rows (EventRows) in each cache. Even if the events of 512 threads alternate, each thread's block
# fits.
BLOCKS = 512

ONE_ROOT = pl.DataFrame({"root": [0], "text": [""]}, schema={"root": ROW_NUMBER, "text": pl.String})
# Maps an attribute to its column in the frames `_cpu` and `_device`.
_SORT_KEYS = {
    "cpu_time": "cpu_ns",
    "cpu_time_total": "cpu_ns",
    "self_cpu_time_total": "self_ns",
    "device_time": "device_ns",
    "device_time_total": "device_ns",
    "self_device_time_total": "self_device_ns",
}


def _all_stacks(events: ColumnEvents, attribute: str) -> list[pl.Series]:
    return list(events.stacks(attribute))


class ColumnEvents(EventFrames):
    def __init__(self, source: EventColumns) -> None:
        super().__init__(source)
        # The blocks that exist because a program still holds one of their events. The key is the pair of `on_cpu` and
        # the block's number.
        self._alive: weakref.WeakValueDictionary[tuple[bool, int], EventRows] = weakref.WeakValueDictionary()
        self._kept: dict[int, ColumnEvent] = {}
        self.changed = False  # True once a program has set an attribute of an event; the columns are then out of date
        self._block = lru_cache(BLOCKS)(self._make_block)
        self._children_of_block = lru_cache(BLOCKS)(self._make_children)
        self._kernels_of_block = lru_cache(BLOCKS)(self._make_kernels)

    def __getstate__(self) -> tuple[EventColumns, bool, dict[int, ColumnEvent], dict[str, Any]]:
        return self.source, self.changed, self._kept, all_frames(self) if forked.answers() else {}

    def __setstate__(self, state: tuple[EventColumns, bool, dict[int, ColumnEvent], dict[str, Any]]) -> None:
        self.__init__(state[0])  # type: ignore[misc]  # sets all other attributes
        self.changed, self._kept = state[1:3]
        vars(self).update(state[3])

    # --- the list

    @cached_frame
    def _numbers(self) -> pl.Series:
        both = [frame.select("start_ns", "end_ns", "number") for frame in (self._cpu, self._device)]
        return pl.concat(both).sort(*IN_ORDER)["number"]

    def __len__(self) -> int:
        return self._cpu.height + self._device.height

    def __iter__(self) -> Iterator[ColumnEvent]:
        for start in range(0, len(self), BLOCK):
            yield from self._events(self._numbers.slice(start, BLOCK).to_list())

    def at(self, position: int) -> ColumnEvent:
        if not -len(self) <= position < len(self):
            raise IndexError("list index out of range")
        return self.event(self._numbers[position])

    # --- single events

    def keep(self, number: int, event: ColumnEvent, changed: bool) -> None:
        """Stores an event on which a program or a table has set a value, because the columns do not have this value."""
        self._kept[number] = event
        self.changed |= changed

    def event(self, number: int) -> ColumnEvent:
        """Returns the event with this number. If the program still holds an object for the event, returns that
        object."""
        return next(self._events([number]))

    def _events(self, numbers: list[int]) -> Iterator[ColumnEvent]:
        """Yields the events with these numbers. Looks up a block only if the event is not in the previous event's
        block."""
        first = past = -1
        for number in numbers:
            if not first <= number < past:
                rows = self._rows_of(number)
                first, past, events = rows.first, rows.first + rows.count, rows.events
            held = events[number - first]
            event = None if held is None else held()
            if event is None:
                event = ColumnEvent.of(rows, number - first)
                events[number - first] = weakref.ref(event)
            yield event

    def _rows_of(self, number: int) -> EventRows:
        on_cpu = number < self.source.cpu.height
        return self._block(on_cpu, (number if on_cpu else number - self.source.cpu.height) // BLOCK)

    def _make_block(self, on_cpu: bool, block: int) -> EventRows:
        rows = self._alive.get((on_cpu, block))
        if rows is None:
            rows = self._alive[on_cpu, block] = EventRows(self, self.source, on_cpu, block)
            for number in self._kept.keys() & range(rows.first, rows.first + rows.count):
                rows.events[number - rows.first] = weakref.ref(self._kept[number])
        return rows

    def parent(self, row: int | None) -> ColumnEvent | None:
        return None if row is None else self.event(row)

    def children(self, number: int) -> list[ColumnEvent]:
        return [self.event(child) for child in self._children_of_block(number // BLOCK).get(number, ())]

    def kernels(self, number: int) -> list[Kernel]:
        return list(self._kernels_of_block(number // BLOCK).get(number, ()))

    def _make_children(self, block: int) -> dict[int, list[int]]:
        children = defaultdict(list)
        for parent, child in _of_block(self._by_parent, block):
            children[parent].append(child)
        return children

    def _make_kernels(self, block: int) -> dict[int, list[Kernel]]:
        kernels = defaultdict(list)
        for number, name, device, device_ns in _of_block(self._by_range, block):
            kernels[number].append(Kernel(name, device, Microseconds(device_ns)))
        return kernels

    @cached_frame
    def _by_parent(self) -> pl.DataFrame:
        return _by(self._cpu.select("parent", "number"))

    @cached_frame
    def _by_range(self) -> pl.DataFrame:
        name = pl.col("name").cast(pl.String).fill_null(NO_NAME)
        return _by(self._device.select("range", name, pl.col("device_id").fill_null(0), "device_ns"))

    @property
    def has_stacks(self) -> bool:
        return bool(self.source.cpu["function"].count())

    def stacks(self, attribute: str) -> Iterator[pl.Series]:
        """Yields batches of lines for a flame graph. A line has the names of an event and of the events that contain
        it, and the event's self time in whole microseconds."""
        return iter(forked.ask(_all_stacks, self, attribute)) if forked.is_cut_off() else self._stacks(attribute)

    def _stacks(self, attribute: str) -> Iterator[pl.Series]:
        cpu = self.source.cpu
        weight = {"self_cpu_time_total": "self_ns", "self_device_time_total": "self_device_ns"}.get(attribute)
        names = [shown_name(name) for name in cpu["name"].unique().to_list()]
        of_name = pl.DataFrame({"name": cpu["name"].unique(), "frame": pl.Series(names, dtype=pl.String)})
        rows = cpu.select(
            "name",
            "is_event",
            pl.int_range(pl.len(), dtype=ROW_NUMBER).alias("row"),
            parent=pl.when(~pl.col("is_async")).then("parent"),
            root=pl.lit(0, dtype=ROW_NUMBER),
            weight=pl.col(weight) if weight else pl.lit(0, dtype=pl.Int64),
        )
        rows = rows.join(of_name, on="name", how="left", nulls_equal=True, maintain_order="left")
        rows = rows.with_columns(depths(rows["parent"]).alias("depth"))
        yield from collapse(rows.filter("is_event", pl.col("depth") < MOST_FRAMES), ONE_ROOT, unit=1000)

    def _longest_function(self) -> int | None:
        """Returns the length of the longest name in all stacks; None if there are no stacks."""
        functions = self.source.functions
        rows = self._cpu["function"].drop_nulls().unique()
        longest = None
        for _ in range(DEEPEST):
            if not rows.len():
                break
            names = functions["name"].gather(rows).unique().to_list()
            longest = max(longest or 0, *(len(shown_name(name)) for name in names))
            rows = functions["parent"].gather(rows).drop_nulls().unique()
        return longest

    # --- facts and sums over all events

    def self_cpu_us(self) -> float:
        return _sum_us(self._cpu["self_ns"])

    @forked.method_elsewhere
    def facts(self) -> Facts:
        names = [*self._cpu["name"].unique().to_list(), *self._device["name"].unique().to_list()]
        shapes = [shapes_of(sizes) for sizes in self._cpu["sizes"].unique().to_list()]
        if self._device.height:
            shapes.append([])
        return Facts(
            use_device=self.use_device,
            longest_name=max(len(shown_name(name)) for name in names),
            longest_shapes=max(len(str(shape)) for shape in shapes),
            self_cpu_us=self.self_cpu_us(),
            self_device_us=_sum_us(self._device["device_ns"]),
            has_device_time=any(bool((frame["self_device_ns"] > 0).any()) for frame in (self._cpu, self._device)),
            has_shapes=any(shapes),
            has_overloads=bool((self._cpu["overload"].drop_nulls() != "").any()),
            has_nodes=self.has_ranks,
            longest_stack_entry=self._longest_function(),
            has_device_memory=self.has_memory and bool((self._cpu["self_device_memory"] > 0).any()),
            least_flops=self._least_flops(),
        )

    def _least_flops(self) -> int | None:
        known = self._cpu["flops"].filter(self._cpu["flops"] > 0) if self.has_flops else pl.Series([], dtype=pl.Int64)
        return known.min()  # type: ignore[return-value]  # the column has integers

    def sorts_by(self, attribute: str | None) -> bool:
        return attribute is None or attribute in _SORT_KEYS

    def shown(self, attribute: str | None, options: TableOptions) -> Iterator[ColumnEvent]:
        """Yields the events that a table shows, in the table's order."""
        for number in self._shown(attribute, options):
            yield self.event(number)

    @forked.method_elsewhere
    def _shown(self, attribute: str | None, options: TableOptions) -> list[int]:
        key = pl.lit(0) if attribute is None else pl.col(_SORT_KEYS[attribute])
        parts = []
        for frame in (self._cpu, self._device):
            rows = frame.filter(pl.col("parent").is_null()) if options.top_level_events_only else frame
            rows = rows.select("start_ns", "end_ns", "number", key=key)
            # At most `row_limit` events of each frame can be shown, so the others are dropped before sorting.
            if 0 <= options.row_limit < rows.height:
                if attribute is None:
                    rows = rows.head(options.row_limit)
                else:
                    # `least` is null if the limit is 0.
                    least = rows.select(pl.col("key").top_k(options.row_limit).min())["key"]
                    # Limits also the rows whose key equals `least`, because there may be a million of them.
                    ties = rows.filter(pl.col("key") == least).head(options.row_limit)
                    rows = pl.concat([rows.filter(pl.col("key") > least), ties])
            parts.append(rows)
        numbers = pl.concat(parts, how="vertical_relaxed").sort(-pl.col("key"), *IN_ORDER)["number"]
        if options.row_limit >= 0:
            numbers = numbers.head(options.row_limit)
        shown: list[int] = numbers.to_list()
        return shown

    def averages(
        self, by_shapes: bool, with_python: bool, stack_depth: int = 0, by_overload: bool = False
    ) -> list[FunctionEventAvg]:
        groups = self.groups(by_shapes, with_python, stack_depth, by_overload)
        # Makes the events in order of their numbers, so that each block is made only once although the cache is small.
        firsts = {number: self.event(number) for number in sorted(group.first for group in groups)}
        return [group.average(firsts[group.first]) for group in groups]

    def total(self) -> FunctionEventAvg:
        if len(self) == 0:
            average = FunctionEventAvg()
        else:
            last = self._sum()
            average = last.average(self.event(last.first))
        average.key = "Total"
        return average

    @forked.method_elsewhere
    def _sum(self) -> EventGroup:
        return sum_of(self._cpu, self._device)


def _sum_us(times_ns: pl.Series) -> Microseconds:
    return Microseconds(int(times_ns.sum()))


def _by(rows: pl.DataFrame) -> pl.DataFrame:
    """Returns the rows whose first column, the number of an event, is not null. The rows are sorted by this column.
    Rows of the same event stay in order."""
    owner = rows.columns[0]
    return rows.drop_nulls(owner).sort(owner, maintain_order=True)


def _of_block(rows: pl.DataFrame, block: int) -> list[tuple[Any, ...]]:
    """Returns the rows whose first column is the number of an event in the block. The rows must be sorted by number."""
    owners = rows.to_series()
    first, past = (bisect_left(owners, bound) for bound in (block * BLOCK, (block + 1) * BLOCK))
    return rows.slice(first, past - first).rows()
