"""Defines EventFrames, which has the events of a trace as two data frames in the order of EventList, and sums them. It
makes no event objects.

An event is identified by its number. For a CPU event, the number is its row in `source.cpu`. For a device event, it is
the number of rows of `source.cpu` plus the event's row in `source.device`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from opspan import forked
from opspan.events.cached_frames import cached_frame
from opspan.events.columns import EventColumns, event_columns
from opspan.events.groups import EventGroup, groups_of
from opspan.events.texts import shown_name
from opspan.row_numbers import ROW_NUMBER

if TYPE_CHECKING:
    from opspan.analysis import Analysis

PART = 1 << 20  # the number of rows to sum at a time; for more rows, intermediate results would take too much memory
DEEPEST = 1000  # the most functions to read of a stack; Python's own limit for the depth of calls is the same

# The order of EventList. Events are sorted by begin. If several begin together, the longest comes first, as in torch.
IN_ORDER = (pl.col("start_ns"), -pl.col("end_ns"), pl.col("number"))


class EventFrames:
    def __init__(self, source: EventColumns) -> None:
        self.use_device = source.use_device
        self.has_memory = source.has_memory
        self.has_flops = source.has_flops
        self.source = source
        # True if there are several ranks. Each rank's events are then summed separately, as torch does for nodes.
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
        """Returns the devices' events in the list's order. Columns to be summed have the same names in `_cpu`."""
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
