"""Finds the step that each range is in: a step of training, or a step of a serving engine.

    steps(ranges) -> ranges with step (Categorical): the name of the step's range (ProfilerStep#3), null outside of
        steps.
    torch_steps(ranges) -> rank, pid, name, start_ns, end_ns, is_async of the steps of a profiler or a session.
    engine_steps(ranges, others) -> the same columns for the steps of serving engines. Processes that have steps in
        `others` are left out.
    marked_steps(ranges) -> both kinds of steps.

A step is a range whose name matches a pattern. Ranges that begin while a step is open in their process are in this
step. They may be on any thread, because the backward of a step runs on another thread. If several steps are open, the
last to begin counts.

The steps of a profiler are the ranges ProfilerStep#N. A session of opspan's emitters without a schedule only marks the
ends of steps. In this case a step is the time between two marks, or less if its own work begins later (`own_work`). If
a process has ranges and marks, the ranges count. At each step() a profiler opens a range for a next step, even if there
is none. So if the last range of a process is empty and all others are not, the last range is not a step.

The steps of a serving engine are the outermost ranges that have its labels (`engine_labels`). Ranges must be nested
(`nest`) first.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.engine_labels import engine_labels
from opspan.analysis.nest import innermost, nearest, timed, timeless
from opspan.analysis.own_work import own_work
from opspan.analysis.spans import PROCESS, within
from opspan.errors import UsageError
from opspan.labels import END_OF_STEP

PATTERN = r"^ProfilerStep#[0-9]+$"
_END = rf"^{END_OF_STEP}[0-9]+$"
_STEP = (*PROCESS, "name", "start_ns", "end_ns", "is_async")
_col = pl.col


def steps(ranges: pl.DataFrame, pattern: str | None = None) -> pl.DataFrame:
    """Adds the steps. `pattern` is a regular expression for the names of steps. By default, steps are those of
    `marked_steps`."""
    if pattern is None:
        return _in_steps(ranges, marked_steps(ranges))
    try:
        return steps_named(ranges, matching(ranges, pattern))
    except pl.exceptions.ComputeError as error:
        raise UsageError(f"{pattern!r} is not a regular expression: {error}") from error


def steps_named(ranges: pl.DataFrame, names: pl.Series) -> pl.DataFrame:
    """Adds the steps that have these names."""
    return _in_steps(ranges, ranges.filter(_is_called(names)).select(_STEP))


def torch_steps(ranges: pl.DataFrame) -> pl.DataFrame:
    is_range = ~_col("is_mark").fill_null(value=False) & (_col("end_ns") >= _col("start_ns"))
    names = ranges.select(_col("name").unique())
    marked_ranges = ranges.filter(_is_called(matching(names, PATTERN)) & is_range).select(_STEP)
    marked_ranges = _without_empty_end(marked_ranges, ranges)
    ends = _between_marks(ranges, matching(names, _END))
    if not ends.height:
        return marked_ranges
    return pl.concat([marked_ranges, ends.join(marked_ranges, on=PROCESS, how="anti", nulls_equal=True)])


def marked_steps(ranges: pl.DataFrame) -> pl.DataFrame:
    steps = torch_steps(ranges)
    return pl.concat([steps, engine_steps(ranges, steps)])


def engine_steps(ranges: pl.DataFrame, others: pl.DataFrame) -> pl.DataFrame:
    labels = engine_labels(ranges["name"])["name"]
    if not len(labels):
        return ranges.clear().select(_STEP)
    is_range = ~_col("is_mark").fill_null(value=False) & (_col("end_ns") >= _col("start_ns"))
    is_label = ranges.select((_is_called(labels) & is_range).fill_null(value=False).alias("is_label"))["is_label"]
    is_outermost = nearest(ranges, is_label).gather(ranges["parent"]).is_null()
    steps = ranges.filter(is_label & is_outermost).select(_STEP)
    return steps.join(others, on=PROCESS, how="anti", nulls_equal=True, maintain_order="left")


def matching(ranges: pl.DataFrame, pattern: str) -> pl.Series:
    """Returns the distinct names of ranges that match the pattern."""
    names = ranges["name"].unique().drop_nulls().cast(pl.String)
    return names.filter(names.str.contains(pattern))


def _is_called(names: pl.Series) -> pl.Expr:
    return _col("name").is_in(names.cast(pl.Categorical).implode())


def _between_marks(ranges: pl.DataFrame, names: pl.Series) -> pl.DataFrame:
    """Returns the steps of sessions that mark only the ends of steps. `names` are the names of these marks."""
    if not len(names):
        return ranges.clear().select(_STEP)
    marks = ranges.filter(_is_called(names)).sort(*PROCESS, "start_ns")
    begins = ranges.group_by(PROCESS).agg(begin_ns=_col("start_ns").min())
    marks = marks.join(begins, on=PROCESS, nulls_equal=True, maintain_order="left")
    name = _col("name").cast(pl.String).str.strip_prefix(END_OF_STEP.removesuffix("ProfilerStep#"))
    rows = marks.select(
        *PROCESS,
        "tid",
        name.cast(pl.Categorical),
        start_ns=pl.coalesce(_col("start_ns").shift(1).over(PROCESS), "begin_ns"),
        end_ns="start_ns",
        is_async=pl.lit(value=True),
        is_first=_col("start_ns").shift(1).over(PROCESS).is_null() | name.str.ends_with("#0"),
    )
    return rows.with_columns(own_work(rows, ranges)).select(_STEP)


def _without_empty_end(steps: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    last = steps.select(*PROCESS, "start_ns").group_by(PROCESS).agg(_col("start_ns").max(), many=pl.len())
    last = last.filter(_col("many") > 1)
    if not last.height:
        return steps
    is_other = ~_is_called(steps["name"]) & ~_col("is_mark").fill_null(value=False)
    pairs = within(ranges.filter(is_other).select(*PROCESS, "start_ns"), "start_ns", steps, PROCESS)
    filled = steps.select(*PROCESS, "start_ns")[pairs["stretch"].unique()]
    empty = last.join(filled, on=[*PROCESS, "start_ns"], how="anti", nulls_equal=True)
    full = filled.group_by(PROCESS).agg(full=pl.len())
    empty = empty.join(full, on=PROCESS, nulls_equal=True).filter(_col("full") == _col("many") - 1)
    return steps.join(empty, on=[*PROCESS, "start_ns"], how="anti", nulls_equal=True, maintain_order="left")


def _in_steps(ranges: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    if not steps.height:
        return ranges.with_columns(pl.lit(None, dtype=pl.Categorical).alias("step"))
    anywhere = pl.lit(0, dtype=pl.Int64).alias("tid")
    row = innermost(steps.with_columns(anywhere), ranges.select("rank", "pid", anywhere, time_ns="start_ns"))
    step = steps["name"].cast(pl.Categorical).gather(row).alias("step")
    # A range without times has the step of the nearest range around it that has times.
    return ranges.with_columns(step if timeless(ranges) is None else step.gather(timed(ranges)))
