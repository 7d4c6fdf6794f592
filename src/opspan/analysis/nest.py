"""Nests ranges as a tree for each thread: parent, depth, self time. The rules are in docs/analysis.md, "nest".

    nest(ranges) -> ranges with:
        parent (UInt32): row of the innermost range that contains this one on its thread; null at the root.
        depth (UInt32): how many ranges contain it.
        self_ns (Int64): its time minus that of its children; null for marks and async ranges.
        end_ns (Int64): its end. A range without an end in the trace ends with the trace, or with the range around it.
        is_open (Boolean): whether its end was not in the trace.
        is_async (Boolean): whether it is outside the tree. An async range is never a parent.
        overlaps (Boolean): whether it is async because it begins inside a range of its thread and ends after that
            range.

A range without a start is inside the range that it names as its parent (parent_id). It has no end and no self time.

Row numbers refer to the frame that was passed in. Names and kinds of ranges do not matter here.
"""

from __future__ import annotations

import polars as pl

from opspan import native
from opspan.row_numbers import ROW_NUMBER
from opspan.tables.same import same
from opspan.tables.tables import own

_col = pl.col

# The columns that tell threads apart, with the types that the native code expects.
THREAD_KEY = (_col("rank").cast(pl.Int32), _col("pid").cast(pl.Int64), _col("tid").cast(pl.Int64))

ADDED = ("parent", "depth", "self_ns", "end_ns", "is_open", "is_async", "overlaps")

_DEEPEST = 1000  # ranges without a start form longer chains of parents only in damaged files

# Some ranges do not begin and end like a stack (push/pop): ranges that were reported as async, or that another thread
# ended.
_IS_APART = _col("is_async").fill_null(value=False) | (_col("end_tid") != _col("tid")).fill_null(value=False)


def thread_key(*frames: pl.DataFrame) -> tuple[pl.Expr, ...]:
    """Returns THREAD_KEY. Leaves out `rank` if it is the same in all rows of the frames, and likewise `pid`."""
    known = same(("rank", "pid"), *frames)
    return tuple(column for column in THREAD_KEY if column.meta.output_name() not in known)


def codes(name: str) -> pl.Expr:
    """Returns a column of texts as numbers. Equal texts have equal numbers, within one Python process."""
    return _col(name).cast(pl.Categorical).to_physical().cast(pl.UInt32)


def trace_end_ns(*frames: pl.DataFrame) -> int:
    """Returns the last time in the frames. The profiler's own work does not count."""
    times = [frame[name].max() for frame in map(own, frames) for name in ("start_ns", "end_ns")]
    return max((time for time in times if isinstance(time, int)), default=0)


def nest(ranges: pl.DataFrame, end_ns: int | None = None) -> pl.DataFrame:
    """Nests the ranges. `end_ns` is the end of the trace, if it is later than the last time in the ranges."""
    # If ranges were nested before, `nest` added ends and overlaps. These are ignored.
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
    tree = native.nest(columns, last if end_ns is None else max(last, end_ns))
    # If no end has changed, the old column is kept, which saves memory.
    if "end_ns" in tree.columns and not tree["is_open"].any() and tree["end_ns"].equals(ranges["end_ns"]):
        tree = tree.drop("end_ns")
    return _with_timeless(ranges.with_columns(tree))


def timeless(ranges: pl.DataFrame) -> pl.Series | None:
    """Returns a mask: whether a range has no start but names a parent. Returns None if no range is like this."""
    if not ranges["start_ns"].null_count() or not ranges["parent_id"].count():
        return None
    mask = ranges["start_ns"].is_null() & ranges["parent_id"].is_not_null()
    return mask if mask.any() else None


def count_timeless(ranges: pl.DataFrame) -> int:
    mask = timeless(ranges)
    return 0 if mask is None else int(mask.sum())


def timed(ranges: pl.DataFrame) -> pl.Series:
    """Returns, for each range of a nested frame, the row of the nearest range with a start: the range itself or one
    around it."""
    return nearest(ranges, ranges["start_ns"].is_not_null())


def _with_timeless(ranges: pl.DataFrame) -> pl.DataFrame:
    """Puts ranges without a start below the parents that they name."""
    mask = timeless(ranges)
    if mask is None:
        return ranges
    rows = ranges.select(parent_id="id", parent=pl.int_range(pl.len(), dtype=ROW_NUMBER)).drop_nulls()
    named = ranges.filter(mask).select("parent_id")
    named = named.join(rows.unique("parent_id", keep="first"), on="parent_id", how="left", maintain_order="left")
    own = mask.arg_true()
    # In a damaged file, parents may form a ring, which has no depth. The ranges of a ring become roots.
    level, depth = named["parent"], named.select(pl.lit(1, dtype=ranges.schema["depth"])).to_series()
    depth = depth.new_from_index(0, len(own))
    parents = ranges["parent"].scatter(own, named["parent"])
    for _ in range(_DEEPEST):
        is_timeless = mask.gather(level).fill_null(value=False)
        if not is_timeless.any():
            break
        depth += is_timeless.cast(depth.dtype)
        level = parents.gather(level).zip_with(is_timeless, level)
    in_ring = mask.gather(level).fill_null(value=False)
    parents = parents.scatter(own.filter(in_ring), None)
    above = ranges["depth"].gather(level).fill_null(0)
    depth = (depth + above).zip_with(named["parent"].is_not_null() & ~in_ring, depth.clear().extend_constant(0, 1))
    return ranges.with_columns(
        parents,
        ranges["depth"].scatter(own, depth),
        pl.when(~mask).then("end_ns").alias("end_ns"),
        is_open=_col("is_open") & ~mask,
        is_async=_col("is_async") & ~mask,
    )


def innermost(ranges: pl.DataFrame, points: pl.DataFrame) -> pl.Series:
    """Returns, for each point (rank, pid, tid, time_ns), the row of the innermost range that is open on this thread at
    this time. The innermost range is the one that began last.

    A range that was reported as async counts only if no other range is open. `ranges` may be any rows of a nested
    frame; the result has row numbers of `ranges`.
    """
    if not points.height:
        return pl.Series("range", [], dtype=ROW_NUMBER)
    is_apart = _col("is_async")
    if "overlaps" in ranges.columns:
        is_apart &= ~_col("overlaps")
    key = thread_key(ranges, points)
    columns = ranges.select(*key, "start_ns", "end_ns", is_apart.fill_null(value=False).alias("is_async"))
    return native.innermost(columns, points.select(*key, "time_ns"))


def openings(ranges: pl.DataFrame) -> pl.DataFrame:
    """Returns the columns that native.cut needs, with a row for each range of a nested frame. Marks get a null thread
    because they do not open anything. In native.cut, ranges that were reported as async count only if no other range is
    open."""
    is_apart = (_col("is_async") & ~_col("overlaps")).fill_null(value=False)
    tid = pl.when(~_col("is_mark").fill_null(value=False)).then("tid").cast(pl.Int64).alias("tid")
    kind = pl.lit(None, dtype=pl.UInt8)
    return ranges.select(*THREAD_KEY[:-1], tid, "start_ns", "end_ns", is_async=is_apart, kind=kind)


def nearest(ranges: pl.DataFrame, marked: pl.Series) -> pl.Series:
    """Returns, for each range, the row of the nearest marked range: the range itself, or the innermost marked range
    around it. The row is null if there is none."""
    return native.nearest(ranges.select("parent", marked.fill_null(value=False).alias("marked")))


def enclose(ranges: pl.DataFrame) -> pl.DataFrame:
    """Adds parent and self_ns of the tree that torch.profiler builds. In that tree, if a range overlaps an earlier
    range, later ranges are not inside the earlier range. The time of an overlap is subtracted twice from the range
    around the two, because the times of both are subtracted. Ends must be known; marks are not in the tree."""
    columns = ranges.select(
        *thread_key(ranges), "start_ns", pl.when(~_col("is_mark").fill_null(value=False)).then("end_ns").alias("end_ns")
    )
    return ranges.with_columns(native.enclose(columns))
