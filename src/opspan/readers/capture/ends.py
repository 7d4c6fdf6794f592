"""When ranges ended: most ends stand in the range's own unit, the others are units of their own, on any thread."""

from __future__ import annotations

import numpy as np
import polars as pl

from opspan.readers.capture.file import (
    ASYNC,
    END,
    FOREIGN_END,
    FRAME,
    MARK,
    NUMBER_BITS,
    RANGE,
    CaptureFile,
    Ints,
    Units,
    find,
)
from opspan.trace import Issues


def read(file: CaptureFile, ranges: Units, issues: Issues) -> tuple[pl.Series, pl.Series, Ints]:
    """end_ns and end_tid of the ranges; and for each end unit the row of the range that it ended, or -1."""
    kinds, starts, times = ranges.u8(0), ranges.i64(1), ranges.i64(2)
    threads = np.full(len(ranges), -1, dtype=np.int64)
    ends = file.units.of(END)
    ended = np.full(len(ends), -1, dtype=np.int64)
    foreign = (ends.u16(1) & FOREIGN_END) != 0
    by_unit, by_id = ends.where(foreign), ends.where(~foreign)
    for some, where, (rows, used) in (
        (by_unit, np.flatnonzero(foreign), _by_unit(file, ranges, by_unit)),
        (by_id, np.flatnonzero(~foreign), _by_id(ranges, by_id)),
    ):
        times[rows] = some.i64(1)[used]
        threads[rows] = file.tids[some.logs[used]]
        ended[where[used]] = rows
    issues.add("end_without_start", int((ended < 0).sum()))

    times[kinds == MARK] = 0
    backward = (times != 0) & (times < starts)
    times[backward] = 0
    issues.add("negative_duration", int(backward.sum()))
    issues.add("open_ranges", int(((times == 0) & (kinds != MARK) & ~backward).sum()))
    frame = pl.DataFrame({"end_ns": times, "end_tid": threads, "tid": file.tids[ranges.logs]}).select(
        pl.when(pl.col("end_ns") != 0).then("end_ns"),
        pl.when((pl.col("end_tid") >= 0) & (pl.col("end_tid") != pl.col("tid"))).then("end_tid"),
    )
    return frame["end_ns"], frame["end_tid"], ended


def _by_unit(file: CaptureFile, ranges: Units, ends: Units) -> tuple[Ints, Ints]:
    """Ends that name the thread and the number of their range's unit."""
    open_rows = np.flatnonzero((ranges.u8(0) == RANGE) & (ranges.i64(2) == 0))
    if not len(ends) or not len(open_rows):
        return _nothing()
    opened = pl.DataFrame(
        {
            "tid": file.tids[ranges.logs[open_rows]],
            "unit": ranges.keys[open_rows] & ((1 << NUMBER_BITS) - 1),
            "time_ns": ranges.i64(1)[open_rows],
            "row": open_rows,
        }
    )
    ended = pl.DataFrame(
        {"tid": ends.u32(6), "unit": ends.i64(4), "time_ns": ends.i64(1), "end": np.arange(len(ends))},
        schema_overrides={"tid": pl.Int64},
    )
    # Of several threads that had this number one after the other, the last that had begun the range by then.
    pairs = (
        ended.sort("time_ns", maintain_order=True)
        .join_asof(
            opened.sort("time_ns", maintain_order=True), on="time_ns", by=["tid", "unit"], check_sortedness=False
        )
        .drop_nulls("row")
    )
    return pairs["row"].to_numpy(), pairs["end"].to_numpy()


def _by_id(ranges: Units, ends: Units) -> tuple[Ints, Ints]:
    """Ends that name the id of their range: the first of its id that is not before the start."""
    open_rows = np.flatnonzero(np.isin(ranges.u8(0), (ASYNC, FRAME)) & (ranges.i64(2) == 0))
    if not len(ends) or not len(open_rows):
        return _nothing()
    starts, ids = ranges.i64(1)[open_rows], ranges.i64(4)[open_rows]
    order = np.argsort(ends.i64(2), kind="stable")
    sorted_ids = ends.i64(2)[order]
    if len(np.unique(ids)) == len(ids) and (np.diff(sorted_ids) > 0).all():  # as a sane program has it
        at = find(sorted_ids, ids)
        used = order[np.maximum(at, 0)]
        paired = (at >= 0) & (ends.i64(1)[used] >= starts)
        return open_rows[paired], used[paired]
    opened = pl.DataFrame({"id": ids, "time_ns": starts, "row": open_rows})
    ended = pl.DataFrame({"id": ends.i64(2), "time_ns": ends.i64(1), "end": np.arange(len(ends))})
    pairs = (
        opened.sort("time_ns", maintain_order=True)
        .join_asof(
            ended.sort("time_ns", maintain_order=True),
            on="time_ns",
            by="id",
            strategy="forward",
            check_sortedness=False,
        )
        .drop_nulls("end")
    )
    return pairs["row"].to_numpy(), pairs["end"].to_numpy()


def _nothing() -> tuple[Ints, Ints]:
    return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
