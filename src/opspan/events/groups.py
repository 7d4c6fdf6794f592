"""Sums over the events of a trace: by name (and node, kind, shapes) as key_averages() groups them, or over all.

Columns are summed in columns, by what is in them as it stands; the few groups that come of it are then put together by
what torch would group by (all steps are one, `[]` is what has no shapes).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from opspan.analysis.sums import RANGE_SUMS, Sum, summed
from opspan.events.column_event import ColumnAverage, ColumnEvent, is_user, shapes_of, shown_name
from opspan.events.columns import MEMORY
from opspan.events.times import Microseconds

# What the CPU took has a column here, which what ran on devices has as well: 0.
_SUMS = tuple(replace(one, of="cpu_ns") if one.name == "cpu_ns" else one for one in RANGE_SUMS)
_SUMS += tuple(Sum(name, name) for name in MEMORY)
_NAMES = ("count", *(one.name for one in _SUMS))


@dataclass
class Group:
    """Sums, and the place in the list and number of the first of them."""

    place: tuple[int, int, int]
    sums: Counter[str] = field(default_factory=Counter)

    @property
    def first(self) -> int:
        return self.place[2]

    def add(self, row: dict[str, Any]) -> None:
        self.place = min(self.place, place_of(row))
        for name in _NAMES:
            self.sums[name] += row.get(name, 0)

    def average(self, first: ColumnEvent) -> ColumnAverage:
        average = ColumnAverage(first)
        average.count = self.sums["count"]
        average.cpu_time_total = Microseconds(self.sums["cpu_ns"])
        average.self_cpu_time_total = Microseconds(self.sums["self_cpu_ns"])
        average.device_time_total = Microseconds(self.sums["device_ns"])
        average.self_device_time_total = Microseconds(self.sums["self_device_ns"])
        for name in MEMORY:
            setattr(average, f"{name}_usage", self.sums[name])
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
    sums = [*summed(_SUMS, frame.columns), pl.col("position").min()]
    grouped = frame.lazy().group_by(keys).agg(sums).collect(engine="streaming")
    return grouped.hstack(frame.select("start_ns", "end_ns", "number")[grouped["position"]])


def sum_of(cpu: pl.DataFrame, device: pl.DataFrame) -> Group:
    """Everything in one group; its first is the last event of the list. There must be at least one."""
    last = max(place_of(frame.row(-1, named=True)) for frame in (cpu, device) if frame.height)
    group = Group(last)
    for frame in (cpu, device):
        row = frame.select(summed(_SUMS, frame.columns)).row(0, named=True)
        group.add({**row, "start_ns": last[0], "end_ns": -last[1], "number": last[2]})
    return group
