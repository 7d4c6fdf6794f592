"""Finds the steps of a run as the program marks them: by calls of a profiler's step(), by ranges or by an optimizer.

    iterations(ranges, names=None) -> rank, pid, step, start_ns, end_ns, how, is_outlier.

Iterations (steps) are found in one of these ways, which the column `how` names. If several ways find iterations in a
process, the first way in the list counts:

    named: the ranges with a name in `names`, if the caller gives names.
    step: the ranges ProfilerStep#N, or the times between the marks of opspan's own step() (`steps`).
    engine: the ranges of a serving engine, whose names say what the step did (`engine_labels`).
    repeats: ranges of the program that contain the training. They are outermost ranges, and at least three of them have
        the same name (except for numbers in it). At least three in four of all optimizer steps are in such ranges, and
        at least three in four of the ranges contain an optimizer step. If the process has fewer than three optimizer
        steps, backwards count instead. If there are no backwards, the ranges must take at least half of the time of the
        process; both times are computed without the longest range, which may be a start-up. If several names fit, the
        one with most time is used.
    optimizer: the times between the ends of the ranges Optimizer.step#...

Other repetitions, such as those of kernels (`repeating`), modules or calls of a DataLoader, are not steps. If only the
ends of steps are known (by marks or optimizers), a step does not include start-up and similar time before its own work
(`own_work`).

`step` is the name of the range, with a number if several have the same name. An iteration is an outlier if it takes
longer than the median by a tenth and by three times the usual deviation (1.4826 times the median deviation). Steps of a
serving engine are compared only with steps with equal phase, tokens, requests and batch size. This rule uses only
times of the host; `until_done.with_outliers` uses times of devices, too. Ranges must be nested (`nest`) first.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.engine_labels import alike
from opspan.analysis.own_work import own_work
from opspan.analysis.phases import says_phase
from opspan.analysis.program_ranges import of_program
from opspan.analysis.spans import PROCESS, length, only, within
from opspan.analysis.steps import engine_steps, matching, torch_steps

_col = pl.col
_OPTIMIZER = r"^Optimizer\.step#"
_LEAST = 3  # fewer ranges or optimizer steps do not count as iterations
_SHARE = 0.5
_MOST = 0.75
_DEVIATIONS = 3 * 1.4826  # an outlier exceeds the median by more than this many median deviations
COLUMNS = (*PROCESS, "step", "start_ns", "end_ns", "how", "is_outlier")
_RANGE = (*PROCESS, "tid", "name", "start_ns", "end_ns", "kind", "depth", "parent", "is_async", "is_mark")


def iterations(ranges: pl.DataFrame, names: pl.Series | None = None) -> pl.DataFrame:
    rows = ranges.select(_RANGE)
    is_range = ~_col("is_mark").fill_null(value=False)
    closed = only(rows, is_range & (_col("end_ns") >= _col("start_ns")))
    if names is not None:
        steps = _number_steps(_ranges_called(closed, names), "named")
    else:
        torch = torch_steps(rows)
        engine = _number_steps(engine_steps(rows, torch), "engine")
        steps = pl.concat([_number_steps(torch, "step"), engine])
        if steps.height:
            closed = closed.join(steps, on=PROCESS, how="anti", nulls_equal=True, maintain_order="left")
        optimizers = _ranges_called(closed, matching(closed, _OPTIMIZER))
        named = _program_steps(closed, optimizers)
        optimizers = optimizers.join(named, on=PROCESS, how="anti", nulls_equal=True, maintain_order="left")
        steps = pl.concat([steps, named, _optimizer_steps(optimizers, rows)])
    steps = steps.sort(*PROCESS, "start_ns", "end_ns").with_columns(alike(steps["step"]))
    return steps.with_columns(is_outlier=is_long(length())).select(COLUMNS)


def _ranges_called(ranges: pl.DataFrame, names: pl.Series) -> pl.DataFrame:
    return ranges.filter(_col("name").is_in(names.cast(pl.Categorical).implode()))


def _program_steps(ranges: pl.DataFrame, optimizers: pl.DataFrame) -> pl.DataFrame:
    """Returns the ranges that are iterations by the rule `repeats` (see above)."""
    outside = ranges.filter(_col("depth") == 0, ~_col("is_async"), _col("kind") == "user")
    outside = outside.filter(of_program(outside) & ~says_phase(outside["name"]))
    alike = _col("name").cast(pl.String).str.replace_all("[0-9]+", "#")
    outside = outside.with_columns(alike=alike.cast(pl.Categorical))
    key = (*PROCESS, "tid", "alike")
    names = outside.group_by(key).agg(count=pl.len(), ns=length().sum(), longest_ns=length().max())
    names = names.filter(_col("count") >= _LEAST)
    if not names.height:
        return _number_steps(outside.clear(), "repeats")
    outside = outside.join(names, on=key, how="semi", nulls_equal=True, maintain_order="left")
    spans = ranges.group_by(PROCESS).agg(span_ns=_col("end_ns").max() - _col("start_ns").min())
    names = names.join(spans, on=PROCESS, nulls_equal=True).join(
        _count_training(outside, ranges, optimizers), on=key, how="left", nulls_equal=True
    )
    others, rest = _col("ns") - _col("longest_ns"), _col("span_ns") - _col("longest_ns")
    holds_training = (_col("inside") >= _MOST * _col("of")) & (_col("busy") >= _MOST * _col("count"))
    names = names.filter(pl.when(_col("of") > 0).then(holds_training).otherwise(others >= _SHARE * rest))
    best = names.sort("ns", "alike", descending=[True, False]).unique(PROCESS, keep="first", maintain_order=True)
    return _number_steps(outside.join(best, on=key, how="semi", nulls_equal=True, maintain_order="left"), "repeats")


def _count_training(outside: pl.DataFrame, ranges: pl.DataFrame, optimizers: pl.DataFrame) -> pl.DataFrame:
    """Counts optimizer steps, or backwards if the process has fewer than three optimizer steps. Returns for each name:
    `of` (how many of them the process has), `inside` (how many of them are inside ranges of this name) and `busy` (how
    many ranges of this name contain at least one of them)."""
    moments = only(ranges, _col("kind") == "backward").select(*PROCESS, "start_ns")
    many = optimizers.filter(pl.len().over(PROCESS) >= _LEAST).select(*PROCESS, "start_ns")
    moments = pl.concat([many, moments.join(many, on=PROCESS, how="anti", nulls_equal=True)])
    pairs = within(moments, "start_ns", outside, PROCESS)
    key = (*PROCESS, "tid", "alike")
    inside = outside.select(key)[pairs["stretch"]].with_columns(pairs["row"], pairs["stretch"])
    sums = inside.group_by(key).agg(inside=_col("row").n_unique(), busy=_col("stretch").n_unique())
    totals = moments.group_by(PROCESS).agg(of=pl.len())
    names = outside.select(key).unique().join(totals, on=PROCESS, how="left", nulls_equal=True)
    names = names.join(sums, on=key, how="left", nulls_equal=True)
    return names.with_columns(_col("of", "inside", "busy").fill_null(0).cast(pl.Int64))


def _optimizer_steps(optimizers: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    if not optimizers.height:
        return _number_steps(optimizers, "optimizer")
    # If a process has several optimizers, the one that is called most often ends the iterations. If several are called
    # equally often, the one whose last call ends last is used.
    often = optimizers.group_by(*PROCESS, "tid", "name").agg(count=pl.len(), last_ns=_col("end_ns").max())
    last = often.sort("count", "last_ns", descending=True).unique(PROCESS, keep="first", maintain_order=True)
    ends = optimizers.join(last, on=[*PROCESS, "tid", "name"], how="semi", nulls_equal=True)
    begins = ranges.group_by(PROCESS).agg(begin_ns=_col("start_ns").min())
    ends = ends.sort(*PROCESS, "end_ns").join(begins, on=PROCESS, nulls_equal=True, maintain_order="left")
    before = _col("end_ns").shift(1).over(PROCESS)
    many = ends.filter(pl.len().over(PROCESS) >= _LEAST)
    many = many.select(
        *PROCESS, "tid", "name", "end_ns", start_ns=pl.coalesce(before, "begin_ns"), is_first=before.is_null()
    )
    return _number_steps(many.with_columns(own_work(many, ranges)), "optimizer")


def _number_steps(rows: pl.DataFrame, how: str) -> pl.DataFrame:
    rows = rows.sort(*PROCESS, "start_ns", "end_ns")
    group = (*PROCESS, "name")
    number = pl.int_range(pl.len()).over(group)
    name = _col("name").cast(pl.String)
    step = pl.when(pl.len().over(group) > 1).then(pl.format("{} #{}", name, number)).otherwise(name)
    return rows.select(*PROCESS, "start_ns", "end_ns", step=step, how=pl.lit(how))


def is_long(ns: pl.Expr) -> pl.Expr:
    """Returns whether a time is an outlier among the times of the same process with the same value of `alike`."""
    median = ns.median().over(*PROCESS, "alike")
    deviation = (ns - median).abs().median().over(*PROCESS, "alike")
    return (ns > 1.1 * median) & (ns > median + _DEVIATIONS * deviation)
