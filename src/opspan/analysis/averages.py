"""Computes sums by name, shape, module, step, phase, function, stream or kernel, and the device time of each range.

    device_time(ranges, work) -> ranges with:
        self_device_ns (Int64): time of the work that belongs to the range itself.
        device_ns (Int64): time of the work of the range and of all ranges inside it. Each piece of work counts once.

    averages(ranges, work, by="name", names=None) -> a row for each group: its keys, count, and sums. By stream and by
        kernel, the only sum is device_ns: the time of the work. For other groups, the sums are:
        cpu_ns, device_ns: the time of the ranges, with the ranges inside them.
        self_cpu_ns, self_device_ns: the time of the ranges, without the ranges inside them.
        backward_cpu_ns, backward_device_ns: the time of the ranges' backward, if `autograd` was called before.
        self_cpu_memory, self_device_memory: the columns that `memory` added, if it was called before.

With `names`, only ranges with these names count. Sums by stream and by kernel then have only work that belongs to these
ranges or to ranges inside them.

Ranges must be nested, and work attributed (`launches`). Waits and the profiler's own activity are not device time.

`Measure` defines the sums in one place: events/ (`key_averages`) and the SQL views of the analysis database use the
same definitions.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import polars as pl

from opspan import native
from opspan.analysis.memory import SELF as SELF_MEMORY
from opspan.analysis.nest import nearest
from opspan.errors import UsageError

# For each value of `by`: the columns that are equal in all rows of a group.
OF_RANGES: dict[str, tuple[str, ...]] = {
    "name": ("name",),
    "shape": ("name", "sizes"),
    "module": ("module",),
    "step": ("step",),
    "phase": ("phase",),
    "function": ("function",),
}
OF_WORK: dict[str, tuple[str, ...]] = {
    "stream": ("rank", "device_id", "context_id", "stream_id"),
    "kernel": ("kind", "name"),
}
# The kinds of work that keep a device busy. Waits are left out.
DEVICE_KINDS = ("kernel", "memcpy", "memset", "graph")


class Measure(NamedTuple):
    name: str
    of: str  # the column that is summed; duration_ns is end_ns - start_ns, at least 0

    @property
    def is_whole(self) -> bool:
        """Whether times include the ranges inside. If ranges of a group are nested, the inner time counts twice."""
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
BY = (*OF_RANGES, *OF_WORK)
_col = pl.col


def on_device(work: pl.DataFrame) -> pl.DataFrame:
    """Returns the work that kept a device busy, without waits and activity of the profiler."""
    busy = _col("kind").is_in(DEVICE_KINDS) & ~_col("is_overhead").fill_null(value=False)
    flags = work.select(busy.fill_null(value=False).alias("busy"))["busy"]
    return work if flags.all() else work.filter(flags)


def device_time(ranges: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    columns = on_device(work).select("range", "start_ns", "end_ns")
    if not columns["range"].count():
        none = pl.lit(0, dtype=pl.Int64)
        return ranges.with_columns(self_device_ns=none, device_ns=none)
    return ranges.with_columns(native.rollup(ranges.select("parent"), columns))


def averages(
    ranges: pl.DataFrame, work: pl.DataFrame, by: str | Sequence[str] = "name", names: Sequence[str] | None = None
) -> pl.DataFrame:
    """Returns the sums, the largest group first. `by` is one of BY, or several of name, shape, module, step, phase,
    function. By function, the column `function` should have names instead of rows (`names_of_functions`)."""
    chosen = [by] if isinstance(by, str) else list(by)
    unknown = [name for name in chosen if name not in BY]
    if unknown or not chosen or (len(chosen) > 1 and set(chosen) & set(OF_WORK)):
        raise UsageError(f"cannot sum by {' and '.join(map(repr, chosen))}; expected one of {', '.join(BY)}")
    if chosen[0] in OF_WORK:
        busy, columns = on_device(launched_in(ranges, work, names)), OF_WORK[chosen[0]]
        return in_order(busy.group_by(columns).agg(sum_expressions(WORK_SUMS, busy.columns)), WORK_ORDER, columns)
    wanted = None if names is None else named(ranges, names)
    keys = list(dict.fromkeys(key for name in chosen for key in OF_RANGES[name]))
    missing = [key for key in keys if key not in ranges.columns]
    if missing:
        raise UsageError(f"ranges have no {', '.join(missing)}: call opspan.analysis.{missing[0]}s before averages")
    if "device_ns" not in ranges.columns:
        ranges = device_time(ranges, work)
    return _of_ranges(ranges, keys, wanted)


def launched_in(ranges: pl.DataFrame, work: pl.DataFrame, names: Sequence[str] | None) -> pl.DataFrame:
    """Returns the work that belongs to ranges with these names or to ranges inside them. If `names` is None, returns
    all work."""
    if names is None:
        return work
    return work.filter(nearest(ranges, named(ranges, names)).gather(work["range"]).is_not_null())


def named(ranges: pl.DataFrame, names: Sequence[str]) -> pl.Series:
    return ranges["name"].is_in(pl.Series(names, dtype=pl.Categorical).implode()).fill_null(value=False)


def _of_ranges(ranges: pl.DataFrame, keys: list[str], wanted: pl.Series | None) -> pl.DataFrame:
    is_range = ~_col("is_mark").fill_null(value=False)
    rows = ranges if wanted is None else ranges.filter(wanted)
    rows = rows.filter(is_range) if rows["is_mark"].any() else rows
    # The streaming engine takes half the time of the default engine and less memory, but does not keep the order of
    # rows.
    totals = sum_expressions((*RANGE_SUMS, *MEMORY_SUMS), rows.columns)
    grouped = rows.lazy().group_by(keys).agg(totals).collect(engine="streaming")
    if "forward" in ranges.columns and ranges["forward"].count():
        grouped = grouped.join(_backward(ranges, keys, wanted), on=keys, how="left", nulls_equal=True).with_columns(
            _col("backward_cpu_ns", "backward_device_ns").fill_null(0)
        )
    return in_order(grouped, RANGE_ORDER, keys)


def in_order(grouped: pl.DataFrame, order: Sequence[str], keys: Sequence[str]) -> pl.DataFrame:
    return grouped.sort(*order, *keys, descending=[True] * len(order) + [False] * len(keys))


def _backward(ranges: pl.DataFrame, keys: list[str], wanted: pl.Series | None) -> pl.DataFrame:
    """Returns the time of each group's backward. If backward ranges with the same forward op are nested, only the
    outermost one counts."""
    linked = ranges.select("forward", "parent", "device_ns", DURATION.alias("cpu_ns")).drop_nulls("forward")
    around = ranges["forward"].gather(linked["parent"])
    linked = linked.filter(around.ne_missing(linked["forward"]))
    if wanted is not None:
        linked = linked.filter(wanted.gather(linked["forward"]))
    rows = ranges.select(keys)[linked["forward"]].hstack(linked.select("cpu_ns", "device_ns"))
    return rows.group_by(keys).agg(backward_cpu_ns=_col("cpu_ns").sum(), backward_device_ns=_col("device_ns").sum())


def sum_expressions(sums: Sequence[Measure], columns: Collection[str]) -> list[pl.Expr]:
    """Returns expressions for the count and for each sum whose column exists."""
    expressions = [pl.len().cast(pl.Int64).alias("count")]
    for measure in sums:
        if measure.of in columns:
            expressions.append(pl.col(measure.of).sum().alias(measure.name))
        elif measure.of == "duration_ns":
            expressions.append(DURATION.sum().alias(measure.name))
    return expressions
