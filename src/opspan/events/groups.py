"""Sums over the events of a trace: by name (and node, kind, shapes) as key_averages() groups them, or over all.

Columns are summed in columns, by what is in them as it stands; the few groups that come of it are then put together by
what torch would group by (all steps are one, `[]` is what has no shapes).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from opspan.events.column_event import ColumnAverage, ColumnEvent, is_user, shapes_of, shown_name
from opspan.events.columns import MEMORY
from opspan.events.times import Microseconds

_SUMS = (
    pl.len().alias("count"),
    pl.col("cpu_ns").sum(),
    pl.col("self_ns").sum(),
    pl.col("device_ns").sum(),
    pl.col("self_device_ns").sum(),
)


@dataclass
class Group:
    """Sums, and the place in the list and number of the first of them."""

    place: tuple[int, int, int]
    count: int = 0
    cpu_ns: int = 0
    self_ns: int = 0
    device_ns: int = 0
    self_device_ns: int = 0
    memory: Counter[str] = field(default_factory=Counter)

    @property
    def first(self) -> int:
        return self.place[2]

    def add(self, row: dict[str, Any]) -> None:
        self.place = min(self.place, place_of(row))
        self.count += row["count"]
        self.cpu_ns += row["cpu_ns"]
        self.self_ns += row["self_ns"]
        self.device_ns += row["device_ns"]
        self.self_device_ns += row["self_device_ns"]
        self.memory.update({name: row[name] for name in MEMORY if name in row})

    def average(self, first: ColumnEvent) -> ColumnAverage:
        average = ColumnAverage(first)
        average.count = self.count
        average.cpu_time_total = Microseconds(self.cpu_ns)
        average.self_cpu_time_total = Microseconds(self.self_ns)
        average.device_time_total = Microseconds(self.device_ns)
        average.self_device_time_total = Microseconds(self.self_device_ns)
        for name in MEMORY:
            setattr(average, f"{name}_usage", self.memory[name])
        return average


def place_of(row: dict[str, Any]) -> tuple[int, int, int]:
    """What the list is in order of: of those that begin together, the longest first."""
    return row["start_ns"], -row["end_ns"], row["number"]


def groups_of(cpu: Iterable[pl.DataFrame], device: pl.DataFrame, by_shapes: bool) -> list[Group]:
    """One group for each average, in order of their first events. The frames are each in order; where the CPU's have a
    column `stack` (the number of one), it is by that too."""
    groups: dict[tuple[Any, ...], Group] = {}
    keys = ["rank", "name", "kind", *(["sizes"] if by_shapes else [])]
    written: dict[str | None, str] = {}  # texts of sizes, which every part has again
    for row in (row for part in cpu for row in _grouped(part, _with_stack(part, keys)).iter_rows(named=True)):
        shape = None
        if by_shapes:
            shape = written.get(row["sizes"])
            if shape is None:
                shape = written[row["sizes"]] = str(shapes_of(row["sizes"]))
        key = (True, row["rank"], shown_name(row["name"]), is_user(row["kind"]), shape, row.get("stack"))
        groups.setdefault(key, Group(place_of(row))).add(row)
    for row in _grouped(device, ["rank", "name"]).iter_rows(named=True):
        key = (False, row["rank"], shown_name(row["name"]), False, None, None)
        groups.setdefault(key, Group(place_of(row))).add(row)
    return sorted(groups.values(), key=lambda group: group.place)


def _with_stack(part: pl.DataFrame, keys: list[str]) -> list[str]:
    return [*keys, "stack"] if "stack" in part.columns else keys


def _grouped(frame: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Sums of the rows with the same keys, and times and number of the first of them."""
    # The streaming engine takes a third of the time of the other, and has no order of its own: hence the position.
    grouped = frame.lazy().group_by(keys).agg(*_sums(frame), pl.col("position").min()).collect(engine="streaming")
    return grouped.hstack(frame.select("start_ns", "end_ns", "number")[grouped["position"]])


def _sums(frame: pl.DataFrame) -> list[pl.Expr]:
    return [*_SUMS, *(pl.col(name).sum() for name in MEMORY if name in frame.columns)]


def sum_of(cpu: pl.DataFrame, device: pl.DataFrame) -> Group:
    """Everything in one group; its first is the last event of the list. There must be at least one."""
    last = max(place_of(frame.row(-1, named=True)) for frame in (cpu, device) if frame.height)
    group = Group(last)
    for frame in (cpu, device):
        row = frame.select(*_sums(frame)).row(0, named=True)
        group.add({**row, "start_ns": last[0], "end_ns": -last[1], "number": last[2]})
    return group
