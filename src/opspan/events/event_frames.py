"""Defines EventFrames, which stores the events of a trace as two data frames, in the order of EventList. It sums them
in the groups of key_averages() (by name, node, kind and shapes), or all together, without making event objects.

An event is identified by its number. For a CPU event, the number is its row in `source.cpu`. For a device event, it is
the number of rows of `source.cpu` plus the event's row in `source.device`.

Polars first sums the columns for each distinct combination of the keys. The few resulting groups are then combined into
torch's groups. For example, all steps become one group, and events without shapes get `[]`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import polars as pl

from opspan import forked
from opspan.analysis.averages import RANGE_SUMS, Measure, sum_expressions
from opspan.events.columns import FLOPS, MEMORY, EventColumns, event_columns
from opspan.events.kinds import is_user
from opspan.events.texts import Microseconds, shapes_of, shown_name
from opspan.forked import cached_frame
from opspan.row_numbers import ROW_NUMBER

if TYPE_CHECKING:
    from opspan.analysis import Analysis
    from opspan.events.column_event import ColumnAverage, ColumnEvent

PART = 1 << 20  # the number of rows to sum at a time; for more rows, intermediate results would take too much memory
DEEPEST = 1000  # the most functions to read of a stack; Python limits the depth of calls to the same number

# The order of EventList. Events are sorted by begin. If several begin together, the longest comes first, as in torch.
IN_ORDER = (pl.col("start_ns"), -pl.col("end_ns"), pl.col("number"))
# The sums of ranges, but CPU time is the sum of the column cpu_ns. In device events this column is 0.
_SUMS = tuple(one._replace(of="cpu_ns") if one.name == "cpu_ns" else one for one in RANGE_SUMS)
_SUMS += tuple(Measure(name, name) for name in (*MEMORY, *FLOPS))
_NAMES = ("count", *(one.name for one in _SUMS))
_AVERAGES: dict[str, Any] = {
    **dict.fromkeys(("name", "sizes", "stack"), pl.String),
    **dict.fromkeys(("is_cpu", "is_async", "is_user"), pl.Boolean),
    **dict.fromkeys(("rank", "count", "cpu_ns", "self_cpu_ns", "device_ns", "self_device_ns", *MEMORY), pl.Int64),
}


class EventFrames:
    def __init__(self, source: EventColumns) -> None:
        self.use_device = source.use_device
        self.has_memory = source.has_memory
        self.has_flops = source.has_flops
        self.source = source
        # True if an event has a rank other than 0. Each rank's events are then summed separately, as torch does for
        # nodes.
        self.has_ranks = any(bool((frame["rank"] != 0).any()) for frame in (source.cpu, source.device))

    @cached_frame
    def _cpu(self) -> pl.DataFrame:
        """Returns the CPU's events in the list's order."""
        return self._cpu_in_order(0, self.source.cpu.height)

    def _cpu_in_order(self, first: int, count: int) -> pl.DataFrame:
        """Returns the events in `count` rows, beginning with row `first`. Sorts them into the list's order."""
        rows = self.source.cpu.slice(first, count).with_row_index("number", offset=first)
        rows = rows.with_columns(cpu_ns=pl.col("end_ns") - pl.col("start_ns"))
        return _in_order(rows if rows["is_event"].all() else rows.filter("is_event"))

    def _cpu_parts(self) -> Iterator[pl.DataFrame]:
        """Yields all CPU events, in parts of PART rows. Each part is sorted by itself, which is enough for sums."""
        for first in range(0, self.source.cpu.height, PART):
            yield self._cpu_in_order(first, PART)

    @cached_frame
    def _device(self) -> pl.DataFrame:
        """Returns the devices' events in the list's order. Columns that are summed have the same names as in `_cpu`."""
        elapsed = pl.col("end_ns") - pl.col("start_ns")
        rows = self.source.device.with_row_index("number", offset=self.source.cpu.height)
        return _in_order(
            rows.with_columns(
                cpu_ns=pl.lit(0, pl.Int64),
                self_ns=pl.lit(0, pl.Int64),
                device_ns=elapsed,
                parent=pl.lit(None, ROW_NUMBER),
            ).with_columns(self_device_ns="device_ns")
        )

    def stack(self, function: int | None) -> list[str]:
        """Returns the names of the functions that an event runs in, the innermost first."""
        names: list[str] = []
        while function is not None and len(names) < DEEPEST:
            name, function = self._function_names[function], self._function_parents[function]
            names.append(shown_name(name))
        return names

    @cached_property
    def _function_names(self) -> list[str | None]:
        return self.source.functions["name"].to_list()

    @cached_property
    def _function_parents(self) -> list[int | None]:
        return self.source.functions["parent"].to_list()

    def _stack_numbers(self, depth: int) -> pl.Series:
        """Returns a number for each function. Two functions have the same number if the `depth` innermost names of
        their stacks are the same."""
        functions = self.source.functions
        names = functions.select(pl.col("name").unique()).to_series()
        shown = pl.Series([shown_name(name) for name in names.cast(pl.String).to_list()], dtype=pl.String)
        codes = pl.DataFrame({"name": names, "code": shown.rank("dense")})
        own = functions.select("name").join(codes, on="name", how="left", nulls_equal=True, maintain_order="left")
        number = own["code"]
        for _ in range(depth - 1):
            above = number.gather(functions["parent"])
            number = pl.DataFrame({"code": own["code"], "above": above}).to_struct().rank("dense")
        return number.cast(ROW_NUMBER)

    @forked.method_elsewhere
    def groups(self, by_shapes: bool, with_python: bool, stack_depth: int, by_overload: bool) -> list[EventGroup]:
        cpu = self._cpu_parts()
        if stack_depth > 0 and self.source.functions.height:
            numbers = self._stack_numbers(min(stack_depth, DEEPEST))
            cpu = (part.with_columns(numbers.gather(part["function"]).alias("stack")) for part in cpu)
        if not with_python:
            cpu = (_without_python(part) for part in cpu)
        return groups_of(cpu, self._device, by_shapes, by_overload, self.has_ranks)


def _without_python(cpu: pl.DataFrame) -> pl.DataFrame:
    if "is_python" not in cpu.columns:
        return cpu
    return cpu.filter(~pl.col("is_python")).drop("position").with_row_index("position")


def _in_order(rows: pl.DataFrame) -> pl.DataFrame:
    """Sorts the rows into the list's order. First checks whether they are already sorted, because they usually are. The
    check takes a tenth of the time of sorting."""
    (before, start), (last, end) = ((rows[name][:-1], rows[name][1:]) for name in ("start_ns", "end_ns"))
    wrong = (start < before) | ((start == before) & (end > last))
    return (rows.sort(*IN_ORDER) if wrong.any() else rows).with_row_index("position")


def event_frames(analysis: Analysis) -> EventFrames:
    return EventFrames(event_columns(analysis.attributed))


def average_rows(events: EventFrames, by_shapes: bool = False, stack_depth: int = 0) -> pl.DataFrame:
    """Returns a row for each average of `key_averages()`, in the same order. Sums are in nanoseconds and bytes. The
    sizes and the stack (the innermost function first) are JSON, taken from the first event of the average."""
    groups = events.groups(by_shapes, with_python=False, stack_depth=stack_depth, by_overload=False)
    cpu = events.source.cpu.select("is_async", "sizes", "function")
    firsts = cpu[[group.first for group in groups if group.is_cpu]].iter_rows()
    rows = []
    for group in groups:
        is_async, sizes, function = next(firsts) if group.is_cpu else (False, None, None)
        row: dict[str, Any] = {name: group.sums[name] for name in _AVERAGES if name in group.sums}
        row |= {"name": group.name, "is_cpu": group.is_cpu, "rank": group.rank, "is_async": is_async}
        row["is_user"] = group.is_user
        row["sizes"] = json.dumps(shapes_of(sizes)) if by_shapes else "[]"
        row["stack"] = json.dumps(events.stack(function)[:stack_depth]) if stack_depth else "[]"
        rows.append(row)
    return pl.DataFrame(rows, schema=_AVERAGES).with_columns(pl.col(pl.Int64).fill_null(0))


# --- sums


class EventGroup:
    """The sums and the common properties of a group of events, and the sort key of its first event (`place_of`)."""

    def __init__(
        self, place: tuple[int, int, int], is_cpu: bool = True, rank: int = 0, name: str = "", is_user: bool = False
    ) -> None:
        self.place = place
        self.is_cpu = is_cpu
        self.rank = rank
        self.name = name
        self.is_user = is_user
        self.sums: Counter[str] = Counter()

    @property
    def first(self) -> int:
        return self.place[2]

    def add(self, row: dict[str, Any]) -> None:
        self.place = min(self.place, place_of(row))
        for name in _NAMES:
            self.sums[name] += row.get(name, 0)

    def average(self, first: ColumnEvent) -> ColumnAverage:
        from opspan.events.column_event import ColumnAverage

        average = ColumnAverage(first)
        average.count = self.sums["count"]
        average.cpu_time_total = Microseconds(self.sums["cpu_ns"])
        average.self_cpu_time_total = Microseconds(self.sums["self_cpu_ns"])
        average.device_time_total = Microseconds(self.sums["device_ns"])
        average.self_device_time_total = Microseconds(self.sums["self_device_ns"])
        for name in MEMORY:
            setattr(average, f"{name}_usage", self.sums[name])
        average.flops = self.sums["flops"]
        return average


def place_of(row: dict[str, Any]) -> tuple[int, int, int]:
    """Returns an event's sort key in the list. Events are sorted by begin. If several begin together, the longest comes
    first."""
    return row["start_ns"], -row["end_ns"], row["number"]


def groups_of(
    cpu: Iterable[pl.DataFrame],
    device: pl.DataFrame,
    by_shapes: bool,
    by_overload: bool,
    has_ranks: bool,
) -> list[EventGroup]:
    """Returns a group for each average. The groups are in the order of their first events. The rows of each frame must
    be in the list's order. The CPU's frames may have a column `stack` with a number that identifies each event's
    stack. If `has_ranks` is false, all rows are of rank 0."""
    groups: dict[tuple[Any, ...], EventGroup] = {}
    rank = ["rank"] if has_ranks else []
    keys = [*rank, "name", "kind", *(["sizes"] if by_shapes else []), *(["overload"] if by_overload else [])]
    shape_of: dict[str | None, str] = {}  # a cache, because the same sizes occur in many rows
    for row in (row for part in cpu for row in _grouped(part, keys).iter_rows(named=True)):
        shape: str | None = None
        if by_shapes and (shape := shape_of.get(row["sizes"])) is None:
            shape = shape_of[row["sizes"]] = str(shapes_of(row["sizes"]))
        others = (shape, row.get("stack"), row.get("overload") or "")
        key = (True, row.get("rank", 0), shown_name(row["name"]), is_user(row["kind"]), *others)
        groups.setdefault(key, EventGroup(place_of(row), *key[:4])).add(row)
    for row in _grouped(device, [*rank, "name"]).iter_rows(named=True):
        key = (False, row.get("rank", 0), shown_name(row["name"]), False, None, None, None)
        groups.setdefault(key, EventGroup(place_of(row), *key[:3])).add(row)
    return sorted(groups.values(), key=lambda group: group.place)


def _grouped(frame: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Sums the rows for each combination of the keys. The column `stack` is a key, too, if the frame has it. A row of
    the result also has the times and the number of the first event in its group."""
    keys = [*keys, "stack"] if "stack" in frame.columns else keys
    # The streaming engine takes a third of the default engine's time. It loses the order, so the position is added.
    sums = [*sum_expressions(_SUMS, frame.columns), pl.col("position").min()]
    grouped = frame.lazy().group_by(keys).agg(sums).collect(engine="streaming")
    return grouped.hstack(frame.select("start_ns", "end_ns", "number")[grouped["position"]])


def sum_of(cpu: pl.DataFrame, device: pl.DataFrame) -> EventGroup:
    """Returns one group of all events. Its sort key is that of the last event. There must be at least one event."""
    last = max(place_of(frame.row(-1, named=True)) for frame in (cpu, device) if frame.height)
    group = EventGroup(last)
    for frame in (cpu, device):
        row = frame.select(sum_expressions(_SUMS, frame.columns)).row(0, named=True)
        group.add({**row, "start_ns": last[0], "end_ns": -last[1], "number": last[2]})
    return group
