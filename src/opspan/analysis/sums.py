"""Defines which columns of ranges and work are summed, and by which columns rows are grouped.

`averages` sums columns by these definitions, `events` sums the figures of torch's averages, and the SQL of the views in
the analysis database is made from them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import polars as pl

from opspan.analysis.memory import SELF as SELF_MEMORY

# The ways to group, and the columns whose values make a group.
OF_RANGES: dict[str, tuple[str, ...]] = {
    "name": ("name",),
    "shape": ("name", "sizes"),
    "module": ("module",),
    "step": ("step",),
    "phase": ("phase",),
}
OF_WORK: dict[str, tuple[str, ...]] = {
    "stream": ("rank", "device_id", "context_id", "stream_id"),
    "kernel": ("kind", "name"),
}
# The kinds of work that keep a device busy; waits do not.
DEVICE_KINDS = ("kernel", "memcpy", "memset", "graph")


class Measure(NamedTuple):
    name: str
    of: str  # the column that is summed; duration_ns is end_ns - start_ns, at least 0

    @property
    def is_whole(self) -> bool:
        """Whether times include the ranges inside. If so, a range inside another range of its group counts twice."""
        return not self.name.startswith("self_")


RANGE_SUMS = (
    Measure("cpu_ns", "duration_ns"),
    Measure("self_cpu_ns", "self_ns"),
    Measure("device_ns", "device_ns"),
    Measure("self_device_ns", "self_device_ns"),
)
MEMORY_SUMS = tuple(Measure(name, name) for name in SELF_MEMORY)
WORK_SUMS = (Measure("device_ns", "duration_ns"),)
# Groups are sorted by these columns, the largest first, and then by the columns of the group.
RANGE_ORDER = ("self_device_ns", "self_cpu_ns", "count")
WORK_ORDER = ("device_ns", "count")
DURATION = (pl.col("end_ns") - pl.col("start_ns")).clip(lower_bound=0)


def sum_expressions(sums: Sequence[Measure], columns: Collection[str]) -> list[pl.Expr]:
    """Returns expressions for the count and for each sum whose column exists."""
    expressions = [pl.len().cast(pl.Int64).alias("count")]
    for measure in sums:
        if measure.of in columns:
            expressions.append(pl.col(measure.of).sum().alias(measure.name))
        elif measure.of == "duration_ns":
            expressions.append(DURATION.sum().alias(measure.name))
    return expressions
