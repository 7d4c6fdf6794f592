"""Two runs, name by name: what takes more time in the second than in the first, and whether that is more than noise.

    compare(one, other, by="op", steps=None) -> a row for each name, the largest change first
        name; name, sizes; module; phase; kind, name   String  by op, shape, module, phase, kernel
        state                         String   same, new (only in the second run), gone (only in the first)
        time_of                       String   device or cpu: which time the others are
        count_before, count_after     Int64    how many there were in the whole run
        before_ns, after_ns           Int64    self time in the whole run; by kernel all of its time
        step_before_ns, step_after_ns Int64    of what began in a step, divided by the number of steps; null where a
                                               run has no steps
        change_ns                     Int64    after less before: of a step where there are steps, else of the run
        change                        Float64  that as a share of before; null where there was nothing before
        is_real                       Boolean  the change is more than the noise; null: there are too few steps to know
    whole(steps, other_steps) -> Whole, the same of the step itself: the median of how long one took

`one` and `other` are complete (`Analysed.complete`); `steps`: what `iterations` gives for each. The time is of devices
where the ranges of either run have any, else of CPUs. ProfilerStep#N are one name, for their numbers say nothing.

A change is real if the medians over the steps differ by more than three times the usual deviation (1.4826 times the
median one) of the run that has more, and by more than a hundredth of the larger one: among steps that are all alike a
nanosecond would be real. Each process has a median of its own, and they count as their mean. Whether it is real is
known where each process has three steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from opspan.analysis.averages import on_device
from opspan.analysis.iterations import DEVIATIONS, iterations
from opspan.analysis.spans import PROCESS, difference, length, within
from opspan.analysis.steps import PATTERN
from opspan.analysis.sums import OF_RANGES, OF_WORK
from opspan.errors import UsageError

if TYPE_CHECKING:
    from opspan.tables import Tables

_col = pl.col
BY = {
    name: OF_RANGES[kind] for name, kind in (("op", "name"), *((kind, kind) for kind in ("shape", "module", "phase")))
}
BY["kernel"] = OF_WORK["kernel"]
LEAST = 3  # steps of a process that show how much they differ by themselves
_SMALL = 0.01
_NUMBER = pl.int_range(pl.len(), dtype=pl.UInt32)


class Whole(NamedTuple):
    before_ns: int
    after_ns: int
    is_real: bool | None  # None: not known


def compare(
    one: Tables, other: Tables, by: str = "op", steps: tuple[pl.DataFrame, pl.DataFrame] | None = None
) -> pl.DataFrame:
    if by not in BY:
        raise UsageError(f"cannot compare by {by!r}; expected one of {', '.join(BY)}")
    keys = list(BY[by])
    runs = (one, other)
    of_runs = steps or (iterations(one.ranges), iterations(other.ranges))
    time = "device" if by == "kernel" or any(run.ranges["self_device_ns"].sum() for run in runs) else "cpu"
    before, after = (
        _suffixed(_sums(_kernels(run) if by == "kernel" else _ranges(run, keys, time), keys, of_run), suffix, keys)
        for run, of_run, suffix in zip(runs, of_runs, ("before", "after"), strict=True)
    )
    rows = before.join(after, on=keys, how="full", coalesce=True, nulls_equal=True)
    is_new, is_gone = _col("count_before").is_null(), _col("count_after").is_null()
    state = pl.when(is_new).then(pl.lit("new")).when(is_gone).then(pl.lit("gone")).otherwise(pl.lit("same"))
    rows = rows.with_columns(state=state, time_of=pl.lit(time))
    rows = rows.with_columns(pl.exclude(*keys, "state", "time_of").fill_null(0))
    has_steps, is_known = all(run.height for run in of_runs), all(map(_tell_noise, of_runs))
    nothing = pl.lit(None, dtype=pl.Int64)
    rows = rows.select(
        *keys,
        "state",
        "time_of",
        "count_before",
        "count_after",
        before_ns="ns_before",
        after_ns="ns_after",
        step_before_ns=_col("step_before") if has_steps else nothing,
        step_after_ns=_col("step_after") if has_steps else nothing,
        is_real=_is_real() if is_known else pl.lit(None, dtype=pl.Boolean),
    )
    was, now = ("step_before_ns", "step_after_ns") if has_steps else ("before_ns", "after_ns")
    rows = rows.with_columns(change_ns=difference(_col(was), _col(now)))
    rows = rows.with_columns(change=pl.when(_col(was) != 0).then(_col("change_ns") / _col(was)))
    rows = rows.select(pl.exclude("is_real"), "is_real")
    return rows.sort(_col("change_ns").abs(), "change_ns", *keys, descending=[True, True, *(False for _ in keys)])


def whole(one: pl.DataFrame, other: pl.DataFrame) -> Whole | None:
    """How long a step took, by the steps of two runs. None where either has none."""
    if not (one.height and other.height):
        return None
    sides = [
        _suffixed(_typical(steps.select(*PROCESS, ns=length()), []), suffix)
        for steps, suffix in ((one, "before"), (other, "after"))
    ]
    row = pl.concat(sides, how="horizontal").select(_is_real().alias("real"), "median_before", "median_after")
    real, before, after = row.row(0)
    is_known = _tell_noise(one) and _tell_noise(other)
    return Whole(round(before), round(after), bool(real) if is_known else None)


def _suffixed(frame: pl.DataFrame, suffix: str, keys: Sequence[str] = ()) -> pl.DataFrame:
    return frame.rename({name: f"{name}_{suffix}" for name in frame.columns if name not in keys})


def _tell_noise(steps: pl.DataFrame) -> bool:
    return steps.height > 0 and bool(steps.group_by(PROCESS).len()["len"].min() >= LEAST)  # type: ignore[operator]


def _ranges(trace: Tables, keys: list[str], time: str) -> pl.DataFrame:
    ranges = trace.ranges.filter(~_col("is_mark").fill_null(value=False))
    ns = "self_device_ns" if time == "device" else "self_ns"
    rows = ranges.select(*keys, *PROCESS, "start_ns", ns=ns)
    if "name" in keys:
        name = _col("name").cast(pl.String).str.replace(PATTERN, "ProfilerStep*")
        rows = rows.with_columns(name.cast(pl.Categorical))
    return rows


def _kernels(trace: Tables) -> pl.DataFrame:
    """A kernel is of the step that launched it: it may run in the next one."""
    work = on_device(trace.work)
    launched = trace.calls["start_ns"].gather(work["call"])
    return work.select(*BY["kernel"], *PROCESS, ns=length(), start_ns=pl.coalesce(launched, "start_ns"))


def _sums(parts: pl.DataFrame, keys: list[str], steps: pl.DataFrame) -> pl.DataFrame:
    """keys, count, ns, and of what began in steps: step, median, deviation."""
    found = parts.group_by(keys).agg(count=pl.len().cast(pl.Int64), ns=_col("ns").sum())
    pairs = within(parts, "start_ns", steps, PROCESS)
    placed = parts.select(*keys, *PROCESS, "ns")[pairs["row"]].with_columns(pairs["stretch"])
    of_steps = placed.group_by(*keys, *PROCESS, "stretch").agg(_col("ns").sum())
    # A step in which a name is not there is one in which it took no time.
    every = of_steps.select(*keys, *PROCESS).unique()
    every = every.join(steps.select(*PROCESS, stretch=_NUMBER), on=PROCESS, nulls_equal=True)
    every = every.join(of_steps, on=[*keys, *PROCESS, "stretch"], how="left", nulls_equal=True)
    every = every.with_columns(_col("ns").fill_null(0))
    share = (_col("ns").sum() / max(steps.height, 1)).round().cast(pl.Int64)
    typical = every.group_by(keys).agg(step=share)
    typical = typical.join(_typical(every, keys), on=keys, how="left", nulls_equal=True)
    found = found.join(typical, on=keys, how="left", nulls_equal=True)
    return found.with_columns(_col(name).cast(pl.String) for name in keys)


def _typical(times: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """The median of what each step took, and the usual deviation from it."""
    median = _col("ns").median().over(*keys, *PROCESS)
    off = times.with_columns(median=median).with_columns(off=(_col("ns") - _col("median")).abs())
    figures = (_col("median").mean(), _col("off").median().alias("deviation"))
    return off.group_by(keys).agg(figures) if keys else off.select(figures)


def _is_real() -> pl.Expr:
    change = (_col("median_after") - _col("median_before")).abs()
    noise = DEVIATIONS * pl.max_horizontal("deviation_before", "deviation_after")
    return (change > noise) & (change > _SMALL * pl.max_horizontal("median_before", "median_after"))
