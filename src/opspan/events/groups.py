"""Sums the events of a trace: either in the groups of key_averages() (by name, node, kind and shapes), or all events
together.

Polars first sums the columns for each distinct combination of the keys. The few resulting groups are then combined into
torch's groups. For example, all steps become one group, and events without shapes get `[]`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import polars as pl

from opspan.analysis.sums import RANGE_SUMS, Measure, sum_expressions
from opspan.events.columns import FLOPS, MEMORY
from opspan.events.kinds import is_user
from opspan.events.texts import shapes_of, shown_name
from opspan.events.times import Microseconds

if TYPE_CHECKING:
    from opspan.events.column_event import ColumnAverage, ColumnEvent

# CPU time is read from the column cpu_ns here, because device events also have this column, with the value 0.
_SUMS = tuple(one._replace(of="cpu_ns") if one.name == "cpu_ns" else one for one in RANGE_SUMS)
_SUMS += tuple(Measure(name, name) for name in (*MEMORY, *FLOPS))
_NAMES = ("count", *(one.name for one in _SUMS))


class EventGroup:
    """The sums of a group of events, their common properties, and the sort key of the first event (`place_of`)."""

    def __init__(self, place: tuple[int, int, int], is_cpu: bool = True, rank: int = 0, name: str = "") -> None:
        self.place = place
        self.is_cpu = is_cpu
        self.rank = rank
        self.name = name
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
    be in the list's order. The CPU's frames may have a column `stack` with the number of each event's stack. If
    `has_ranks` is false, all rows are of rank 0."""
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
        groups.setdefault(key, EventGroup(place_of(row), *key[:3])).add(row)
    for row in _grouped(device, [*rank, "name"]).iter_rows(named=True):
        key = (False, row.get("rank", 0), shown_name(row["name"]), False, None, None, None)
        groups.setdefault(key, EventGroup(place_of(row), *key[:3])).add(row)
    return sorted(groups.values(), key=lambda group: group.place)


def _grouped(frame: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Sums the rows for each combination of the keys and, if there is one, the column `stack`. A row of the result also
    has the times and the number of the first event in its group."""
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
