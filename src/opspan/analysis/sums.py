"""What is summed over the ranges or the work of a group, and what a group may be: defined once, for all sums.

`averages` sums columns by these definitions, `events` sums what torch's averages hold, and the SQL of the views in the
analysis database is written from them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import polars as pl

from opspan.analysis.memory import SELF as SELF_MEMORY

# What to group by -> the columns whose values make a group.
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
# Work that keeps a device busy: no waits, and nothing that the profiler did itself.
DEVICE_KINDS = ("kernel", "memcpy", "memset", "graph")


class Sum(NamedTuple):
    name: str
    of: str  # column of the rows; duration_ns: end_ns - start_ns, at least 0

    @property
    def is_whole(self) -> bool:
        """Whether whole ranges are summed: then a range inside another one of its group counts twice."""
        return not self.name.startswith("self_")


RANGE_SUMS = (
    Sum("cpu_ns", "duration_ns"),
    Sum("self_cpu_ns", "self_ns"),
    Sum("device_ns", "device_ns"),
    Sum("self_device_ns", "self_device_ns"),
)
MEMORY_SUMS = tuple(Sum(name, name) for name in SELF_MEMORY)
WORK_SUMS = (Sum("device_ns", "duration_ns"),)
# The largest first, by these and then by the columns of the group.
RANGE_ORDER = ("self_device_ns", "self_cpu_ns", "count")
WORK_ORDER = ("device_ns", "count")
DURATION = (pl.col("end_ns") - pl.col("start_ns")).clip(lower_bound=0)


def summed(sums: Sequence[Sum], columns: Collection[str]) -> list[pl.Expr]:
    """The count, and each sum whose column exists."""
    found = [pl.len().cast(pl.Int64).alias("count")]
    for one in sums:
        if one.of in columns:
            found.append(pl.col(one.of).sum().alias(one.name))
        elif one.of == "duration_ns":
            found.append(DURATION.sum().alias(one.name))
    return found
