"""Training steps: which step a range is in.

    steps(ranges) -> ranges with step, Categorical: the name of the step's range (ProfilerStep#3), null outside of steps

A step is a range whose name matches. Ranges that begin while a step is open in their process are in it, whatever their
thread, because the backward of a step runs on another thread. If several steps are open, the last to begin counts.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.nest import innermost
from opspan.errors import UsageError

PATTERN = r"^ProfilerStep#[0-9]+$"


def steps(ranges: pl.DataFrame, pattern: str | None = None) -> pl.DataFrame:
    """`pattern`: a regular expression that finds a step's name; torch's ProfilerStep#N if not given."""
    try:
        return steps_named(ranges, matching(ranges, pattern or PATTERN))
    except pl.exceptions.ComputeError as error:
        raise UsageError(f"{pattern!r} is not a regular expression: {error}") from error


def torch_steps(ranges: pl.DataFrame) -> pl.Series:
    """Names of the ranges that are steps where no pattern is given."""
    return matching(ranges, PATTERN)


def matching(ranges: pl.DataFrame, pattern: str) -> pl.Series:
    """The names of ranges that match it."""
    names = ranges["name"].unique().drop_nulls().cast(pl.String)
    return names.filter(names.str.contains(pattern))


def steps_named(ranges: pl.DataFrame, names: pl.Series) -> pl.DataFrame:
    """The same as `steps`, if the names of the steps are known."""
    anywhere = pl.lit(0, dtype=pl.Int64).alias("tid")
    found = ranges.filter(pl.col("name").is_in(names.cast(pl.Categorical).implode()))
    if not found.height:
        return ranges.with_columns(pl.lit(None, dtype=pl.Categorical).alias("step"))
    row = innermost(found.with_columns(anywhere), ranges.select("rank", "pid", anywhere, time_ns="start_ns"))
    return ranges.with_columns(found["name"].cast(pl.Categorical).gather(row).alias("step"))
