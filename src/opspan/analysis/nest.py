"""Ranges as a tree for each thread: parent, depth, self time. The rules are in docs/analysis.md, "nest".

    nest(ranges) -> ranges with
        parent    UInt32   row of the innermost range of the thread that contains this one; null at the root
        depth     UInt32   how many ranges contain it
        self_ns   Int64    its time minus that of its children; null for marks and for async ranges
        end_ns    Int64    closed: an open range ends where the trace does, or where its stack says it must have
        is_open   Boolean  its end was not in the trace
        is_async  Boolean  it stands outside the tree: it is never a parent
        overlaps  Boolean  it is async because it begins inside a range of its thread and ends after that range

Row numbers refer to the frame that was passed in. Nothing here knows what a range means.
"""

from __future__ import annotations

import polars as pl

from opspan import native
from opspan.tables.same import same
from opspan.tables.tables import own

_col = pl.col

# The thread that a row belongs to: three columns, with the types that the native code expects.
THREAD_KEY = (_col("rank").cast(pl.Int32), _col("pid").cast(pl.Int64), _col("tid").cast(pl.Int64))

ADDED = ("parent", "depth", "self_ns", "end_ns", "is_open", "is_async", "overlaps")

# Reported as async, or ended by another thread than the one that began it: not a push/pop range.
_IS_APART = _col("is_async").fill_null(value=False) | (_col("end_tid") != _col("tid")).fill_null(value=False)


def thread_key(*frames: pl.DataFrame) -> tuple[pl.Expr, ...]:
    """THREAD_KEY for a call with these frames: without `rank` and `pid` where all rows have the same."""
    known = same(("rank", "pid"), *frames)
    return tuple(column for column in THREAD_KEY if column.meta.output_name() not in known)


def codes(name: str) -> pl.Expr:
    """A column of repeated texts as numbers: the same number for the same text, within this process."""
    return _col(name).cast(pl.Categorical).to_physical().cast(pl.UInt32)


def trace_end_ns(*frames: pl.DataFrame) -> int:
    """The last time that is in any of the frames, but for what the profiler did itself."""
    times = [frame[name].max() for frame in map(own, frames) for name in ("start_ns", "end_ns")]
    return max((time for time in times if isinstance(time, int)), default=0)


def nest(ranges: pl.DataFrame, end_ns: int | None = None) -> pl.DataFrame:
    """`end_ns`: the end of the trace, if that is later than the last time in the ranges."""
    # Ranges that were nested before are nested again: the ends and overlaps found then are not taken as given.
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
    # Where all ends stay as they are there is no second, equal column; of marks, and ranges of no time, they may be.
    if "end_ns" in found.columns and not found["is_open"].any() and found["end_ns"].equals(ranges["end_ns"]):
        found = found.drop("end_ns")
    return ranges.with_columns(found)


def innermost(ranges: pl.DataFrame, points: pl.DataFrame) -> pl.Series:
    """For each point (rank, pid, tid, time_ns) the row of the innermost open range, which is the one that began last.

    A range that was reported as async counts only if there is no other. `ranges` may be any rows of a nested frame;
    the result has row numbers of `ranges`.
    """
    if not points.height:
        return pl.Series("range", [], dtype=pl.UInt32)
    is_apart = _col("is_async")
    if "overlaps" in ranges.columns:
        is_apart &= ~_col("overlaps")
    key = thread_key(ranges, points)
    columns = ranges.select(*key, "start_ns", "end_ns", is_apart.fill_null(value=False).alias("is_async"))
    return native.innermost(columns, points.select(*key, "time_ns"))


def openings(ranges: pl.DataFrame) -> pl.DataFrame:
    """The ranges of a nested frame as native.cut takes them, row for row: marks, which open nothing, are on no thread.
    Ranges that were reported as async count only where there is no other."""
    is_apart = (_col("is_async") & ~_col("overlaps")).fill_null(value=False)
    tid = pl.when(~_col("is_mark").fill_null(value=False)).then("tid").cast(pl.Int64).alias("tid")
    kind = pl.lit(None, dtype=pl.UInt8)
    return ranges.select(*THREAD_KEY[:-1], tid, "start_ns", "end_ns", is_async=is_apart, kind=kind)


def nearest(ranges: pl.DataFrame, marked: pl.Series) -> pl.Series:
    """For each range the row of the nearest marked one: itself or the next one up the tree; null if there is none."""
    return native.nearest(ranges.select("parent", marked.fill_null(value=False).alias("marked")))


def enclose(ranges: pl.DataFrame) -> pl.DataFrame:
    """A different tree, as torch.profiler builds it: ranges with parent and self_ns. Here an overlap closes a range for
    later ones, and is subtracted twice from the time of the range around both. Ends must be known; marks have no place.
    """
    columns = ranges.select(*thread_key(ranges), "start_ns", pl.when(~_col("is_mark")).then("end_ns").alias("end_ns"))
    return ranges.with_columns(native.enclose(columns))
