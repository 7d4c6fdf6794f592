"""Divides time into pieces of equal length, and sums the memory that ranges allocated and freed in each piece. To get
the sums of a longer window, add up those of its pieces.

    Pieces.of(times, count) -> the pieces of equal length that cover these times: first_ns, length_ns, count.
    in_pieces(ranges, events, pieces) -> a row for each piece, device and name of a range, if ranges of this name
        allocated or freed memory in the piece, or began in it. Names of ranges that never allocated or freed memory are
        left out. The columns are:
        rank, pid, device_id, piece, name (null outside of ranges), calls.
        SUMS (see memory_use.operators): in these ranges and all ranges inside them.
        self_SUMS: in the ranges themselves.

Added up over all pieces and processes, the rows give the figures of `operators`, except for events without a time. A
call (a range) counts in the piece in which it begins. Calls that begin before the first event count in the first piece,
and calls that begin after the last event in the last piece. Ranges must be nested (`nest`) first.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from opspan.analysis.memory_use import COUNTED, SELF_COUNTED, SELF_SUMS, SUMS, by_name, changes_in
from opspan.analysis.spans import DEVICE

_col = pl.col
_KEY = (*DEVICE, "piece")


@dataclass(frozen=True)
class Pieces:
    first_ns: int
    length_ns: int
    count: int

    @classmethod
    def of(cls, times: pl.Series, count: int) -> Pieces:
        first, last = (int(time) if isinstance(time, int) else 0 for time in (times.min(), times.max()))
        return cls(first, (last - first) // count + 1, count)

    def piece(self, time: str) -> pl.Expr:
        """Returns which piece a time is in, counted from 0. Times before the first piece count in the first piece,
        and times after the last piece in the last."""
        since = _col(time).cast(pl.Int128) - self.first_ns  # damaged times: the difference may not fit in 64 bits
        return (since // self.length_ns).clip(0, self.count - 1).cast(pl.Int64)


def in_pieces(ranges: pl.DataFrame, events: pl.DataFrame, pieces: Pieces) -> pl.DataFrame:
    changes = changes_in(ranges, events).drop_nulls("time_ns").with_columns(pieces.piece("time_ns").alias("piece"))
    own = changes.group_by(*_KEY, "range").agg(_col(COUNTED).sum())
    rows = by_name(ranges, own, _KEY)
    rows = pl.concat([rows, _calls(ranges, rows, pieces)], how="diagonal")
    rows = rows.group_by(*_KEY, "name").agg(_col("calls", *COUNTED, *SELF_COUNTED).sum())
    rows = rows.with_columns(
        size_increase=_col("allocation_bytes") - _col("freed_bytes"),
        self_size_increase=_col("self_allocation_bytes") - _col("self_freed_bytes"),
    )
    return rows.select(*_KEY, "name", "calls", *SUMS, *SELF_SUMS).sort(*_KEY, "name")


def _calls(ranges: pl.DataFrame, rows: pl.DataFrame, pieces: Pieces) -> pl.DataFrame:
    """Counts the ranges of each name that began in each piece. Only names in `rows` count. If a name has several
    devices in `rows`, each of them gets the same count."""
    of_device = ["rank", "device_id", "name"]
    names = rows.select(of_device).unique()
    calls = ranges.filter(~_col("is_mark").fill_null(value=False))
    calls = calls.select("rank", "pid", "name", pieces.piece("start_ns").fill_null(0).alias("piece"))
    calls = calls.join(names, on=["rank", "name"], how="semi", nulls_equal=True)
    calls = calls.group_by("rank", "pid", "name", "piece").agg(calls=pl.len().cast(pl.Int64))
    return calls.join(names, on=["rank", "name"], nulls_equal=True)
