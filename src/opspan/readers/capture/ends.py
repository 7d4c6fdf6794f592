"""Finds when ranges ended. Usually the unit of a range also holds the range's end. Other ends are separate units, which
any thread may have written."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from opspan.readers.capture import layout
from opspan.readers.capture.attributes import scatter
from opspan.readers.capture.file import Bools, CaptureFile, Ints, Units, find, last_of_each
from opspan.tables import Issues


@dataclass(frozen=True)
class Ends:
    """The ends that are stored as separate units."""

    rows: Ints  # rows of the ended ranges, ascending
    times: Ints
    threads: Ints
    ended: Ints  # for each END unit, the row of the range that it ended, or -1

    def of(self, first: int, ranges: Units, tids: Ints, issues: Issues) -> tuple[pl.Series, pl.Series]:
        """Returns end_ns and end_tid of consecutive ranges. `first`: the row of the first range."""
        kinds, starts, times = ranges.kinds, ranges.i64(1), ranges.i64(2).copy()
        begin, end = np.searchsorted(self.rows, (first, first + len(ranges)))
        rows = self.rows[begin:end] - first
        times[rows] = self.times[begin:end]
        times[kinds == layout.MARK] = 0
        backward = (times != 0) & (times < starts)
        times[backward] = 0
        issues.add("negative_duration", int(backward.sum()))
        issues.add("open_ranges", int(((times == 0) & (kinds != layout.MARK) & ~backward).sum()))
        end_ns = pl.DataFrame({"end_ns": times}).select(pl.when(pl.col("end_ns") != 0).then("end_ns")).to_series()
        elsewhere = self.threads[begin:end] != tids[rows]
        threads = pl.Series(self.threads[begin:end][elsewhere])
        return end_ns, scatter(threads, rows[elsewhere], len(ranges))


def read(capture: CaptureFile, issues: Issues) -> Ends:
    opened = _open_ranges(capture)
    ends = capture.units.of(layout.END)
    ended = np.full(len(ends), -1, dtype=np.int64)
    foreign = (ends.u16(1) & layout.FOREIGN_END) != 0
    by_unit, by_id = ends.where(foreign), ends.where(~foreign)
    nested = opened.units.kinds == layout.RANGE
    pairs: list[tuple[Ints, Ints]] = []  # rows of ranges, and of their ends; several ranges may have the same end
    for where, (rows, used) in (
        (np.flatnonzero(foreign), _by_unit(capture, opened.where(nested), by_unit)),
        (np.flatnonzero(~foreign), _by_id(opened.where(~nested), by_id)),
    ):
        ended[where[used]] = rows
        pairs.append((rows, where[used]))
    # If only a part of the file was read, the unused ends may belong to ranges outside of that part.
    if not capture.is_part:
        issues.add("end_without_start", int((ended < 0).sum()))
    rows, used = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    # If a range has several ends, the latest counts.
    order = np.lexsort((ends.i64(1)[used], rows))
    order = order[last_of_each(rows[order])]
    rows, used = rows[order], used[order]
    return Ends(rows, ends.i64(1)[used], capture.tids[ends.logs[used]], ended)


@dataclass(frozen=True)
class _OpenRanges:
    """Ranges whose own unit has no end."""

    rows: Ints
    units: Units

    def where(self, mask: Bools) -> _OpenRanges:
        return _OpenRanges(self.rows[mask], self.units.where(mask))


def _open_ranges(capture: CaptureFile) -> _OpenRanges:
    rows, units = [np.empty(0, dtype=np.int64)], []
    for first, piece in capture.ranges:
        some = np.flatnonzero(piece.kind_is(layout.RANGE, layout.ASYNC, layout.FRAME) & (piece.words[:, 2] == 0))
        rows.append(some + first)
        units.append(piece.at(some))
    return _OpenRanges(np.concatenate(rows), Units.joined(units))


def _by_unit(capture: CaptureFile, ranges: _OpenRanges, ends: Units) -> tuple[Ints, Ints]:
    """Pairs ends with ranges. Each end names the thread and the unit number of its range. Returns the rows of the
    ranges and the rows of their ends."""
    if not len(ends) or not len(ranges.rows):
        return _nothing()
    opened = pl.DataFrame(
        {
            "tid": capture.tids[ranges.units.logs],
            "unit": ranges.units.keys & ((1 << layout.NUMBER_BITS) - 1),
            "time_ns": ranges.units.i64(1),
            "row": ranges.rows,
        }
    )
    ended = pl.DataFrame(
        {"tid": ends.u32(6), "unit": ends.i64(4), "time_ns": ends.i64(1), "end": np.arange(len(ends))},
        schema_overrides={"tid": pl.Int64},
    )
    # If several threads had the same thread id one after the other, the end belongs to the last range that began before
    # the end.
    pairs = (
        ended.sort("time_ns", maintain_order=True)
        .join_asof(
            opened.sort("time_ns", maintain_order=True), on="time_ns", by=["tid", "unit"], check_sortedness=False
        )
        .drop_nulls("row")
    )
    return pairs["row"].to_numpy(), pairs["end"].to_numpy()


def _by_id(ranges: _OpenRanges, ends: Units) -> tuple[Ints, Ints]:
    """Pairs each range with the first end that has the same id and is not before the range's start. Returns the rows of
    the ranges and the rows of their ends."""
    open_rows = ranges.rows
    if not len(ends) or not len(open_rows):
        return _nothing()
    starts, ids = ranges.units.i64(1), ranges.units.i64(4)
    order = np.argsort(ends.i64(2), kind="stable")
    sorted_ids = ends.i64(2)[order]
    if len(np.unique(ids)) == len(ids) and (np.diff(sorted_ids) > 0).all():  # usually, the program uses each id once
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
