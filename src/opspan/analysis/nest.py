"""Ranges as a tree for each thread: parent, depth, self time. The rules are in docs/analysis.md, "nest".

    nest(ranges) -> ranges with
        parent    UInt32   row of the innermost range of the thread that contains this one; null at the root
        depth     UInt32   how many ranges contain it
        self_ns   Int64    its time less that of its children; null for a mark's like and for what is async
        end_ns    Int64    closed: an open range ends where the trace does, or where its stack says it must have
        is_open   Boolean  its end was not in the trace
        is_async  Boolean  it stands outside the tree: no parent of any other
        overlaps  Boolean  why it does: it begins inside a range of its thread and ends after that

Row numbers are those of the frame that was given. Nothing here knows what a range means.
"""

from __future__ import annotations

import polars as pl

from opspan import native

_col = pl.col

# Which thread a row is of: three columns, of the types that the native side takes.
THREAD_KEY = (_col("rank").cast(pl.Int32), _col("pid").cast(pl.Int64), _col("tid").cast(pl.Int64))

ADDED = ("parent", "depth", "self_ns", "end_ns", "is_open", "is_async", "overlaps")

# Ended by another thread than it was begun by: no push and pop.
_IS_APART = _col("is_async").fill_null(value=False) | (_col("end_tid") != _col("tid")).fill_null(value=False)


def thread_key(ranges: pl.DataFrame) -> tuple[pl.Expr, ...]:
    """THREAD_KEY for a call with one frame: without `rank` and `pid` where all rows have the same, to save memory."""
    return tuple(column for column in THREAD_KEY if column.meta.output_name() == "tid" or not _is_one(ranges, column))


def _is_one(ranges: pl.DataFrame, column: pl.Expr) -> bool:
    least, most, nulls = ranges.select(
        column.min().alias("least"), column.max().alias("most"), column.null_count().alias("nulls")
    ).row(0)
    return bool(ranges.height) and nulls == 0 and least == most


def codes(name: str) -> pl.Expr:
    """A column of repeated texts as numbers: the same number for the same text, within this process."""
    return _col(name).cast(pl.Categorical).to_physical().cast(pl.UInt32)


def trace_end_ns(*frames: pl.DataFrame) -> int:
    """The last time that is in any of the frames."""
    times = [frame[name].max() for frame in frames for name in ("start_ns", "end_ns")]
    return max((time for time in times if isinstance(time, int)), default=0)


def nest(ranges: pl.DataFrame, end_ns: int | None = None) -> pl.DataFrame:
    """`end_ns`: the end of the trace, where that is later than the ranges' last time."""
    # What an earlier nest found is found again.
    was_open, was_apart = (_col(name) if name in ranges.columns else pl.lit(False) for name in ("is_open", "overlaps"))
    again = "is_open" in ranges.columns
    columns = ranges.select(
        *thread_key(ranges),
        codes("domain").alias("domain"),
        "start_ns",
        pl.when(~was_open).then("end_ns").alias("end_ns") if again else "end_ns",
        (_IS_APART & ~was_apart).alias("is_async"),
        _col("is_mark").fill_null(value=False),
    )
    last = trace_end_ns(ranges)
    found = native.nest(columns, last if end_ns is None else max(last, end_ns))
    if not found["is_open"].any() and found["end_ns"].equals(ranges["end_ns"]):
        found = found.drop("end_ns")  # the same again is not kept twice
    return ranges.with_columns(found)


def innermost(ranges: pl.DataFrame, points: pl.DataFrame) -> pl.Series:
    """For each point (rank, pid, tid, time_ns) the row of the innermost range that is open there: it began last.

    A range that was reported as async is asked only where there is no other. `ranges` may be any rows of a nested
    frame, and the answer is in the numbers of those rows.
    """
    if not points.height:
        return pl.Series("range", [], dtype=pl.UInt32)
    is_apart = _col("is_async")
    if "overlaps" in ranges.columns:
        is_apart &= ~_col("overlaps")
    columns = ranges.select(*THREAD_KEY, "start_ns", "end_ns", is_apart.fill_null(value=False).alias("is_async"))
    return native.innermost(columns, points.select(*THREAD_KEY, "time_ns"))


def nearest(ranges: pl.DataFrame, marked: pl.Series) -> pl.Series:
    """For each range the row of the nearest marked one: itself, else up the tree; null where there is none."""
    return native.nearest(ranges.select("parent", marked.fill_null(value=False).alias("marked")))


def enclose(ranges: pl.DataFrame) -> pl.DataFrame:
    """Another tree, as torch.profiler makes it: ranges with parent and self_ns, where an overlap closes a range for
    those that come later, and is taken twice from the time of what is around. Ends must be known; marks stand outside.
    """
    columns = ranges.select(*thread_key(ranges), "start_ns", pl.when(~_col("is_mark")).then("end_ns").alias("end_ns"))
    return ranges.with_columns(native.enclose(columns))
