"""Computes how long stretches of time are, and how much time they cover together.

    difference(start, end) -> an expression: the time from start to end, negative if `end` is earlier.
    length(start, end) -> an expression: the time from start to end, or 0 if `end` is earlier.
    union(rows, by, others=None) -> *by, start_ns, end_ns: the time that the rows (and others) cover together, as
        stretches that are in order and do not touch.
    within(rows, time, spans, by) -> row, stretch: each pair of a row of `rows` and a row of `spans` for which the row's
        time is inside the span.
    time_in(rows, spans, by) -> for each of `spans`, how much of it `rows` cover together.

A time of more than 292 years becomes the largest number. If a time is null, everything computed from it is null. Rows
without a start, an end or a length cover nothing. `by` are the columns that separate timelines, such as those of a
device or a process; null is a value like any other.

The overlap of two sets of stretches is the time that the first covers, plus the time that the second covers, minus the
time of their union. So utilisation, overlaps and breakdowns need only `union`.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from opspan import native
from opspan.row_numbers import ROW_NUMBER
from opspan.tables.same import unlike

_col = pl.col
_START, _END = _col("start_ns"), _col("end_ns")
PROCESS = ("rank", "pid")
DEVICE = (*PROCESS, "device_id")
THREAD = (*PROCESS, "tid")
LEAST, MOST = -(2**63), 2**63 - 1


def difference(start: pl.Expr = _START, end: pl.Expr = _END) -> pl.Expr:
    ns, is_back = _between(start, end), end < start
    is_too_long = is_back != (ns < 0)
    return pl.when(is_too_long).then(pl.when(is_back).then(LEAST).otherwise(MOST)).otherwise(ns)


def length(start: pl.Expr = _START, end: pl.Expr = _END) -> pl.Expr:
    ns = _between(start, end)
    return pl.when(end <= start).then(0).when(ns < 0).then(MOST).otherwise(ns)


def bounded(number: pl.Expr) -> pl.Expr:
    """Casts Int128 to Int64, and clips numbers that do not fit."""
    return number.clip(LEAST, MOST).cast(pl.Int64)


def _between(start: pl.Expr, end: pl.Expr) -> pl.Expr:
    """Subtracts in 64 bits, which is ten times faster than in 128 bits. If a difference does not fit, its sign is
    wrong, and the callers correct it."""
    return end.cast(pl.Int64) - start.cast(pl.Int64)


def union(rows: pl.DataFrame, by: Sequence[str], others: pl.DataFrame | None = None) -> pl.DataFrame:
    others = rows.clear() if others is None else others
    groups = grouped(by, rows, others)
    cover = native.cover(rows.select("start_ns", "end_ns", *groups), others.select("start_ns", "end_ns", *groups))
    if not by:
        return cover.drop("row")
    return pl.concat([rows.select(by), others.select(by)])[cover["row"]].hstack(cover.drop("row"))


def time_in(rows: pl.DataFrame, spans: pl.DataFrame, by: Sequence[str]) -> pl.Series:
    groups = grouped(by, rows, spans)
    return native.covered(rows.select("start_ns", "end_ns", *groups), spans.select("start_ns", "end_ns", *groups))


def grouped(by: Sequence[str], *frames: pl.DataFrame) -> list[pl.Expr]:
    """Returns the columns of `by` that native code needs to tell groups apart: those whose values differ between
    rows."""
    some = [frame for frame in frames if frame.height]
    key = unlike(by, *some) if some else []
    return [_col(name).cast(pl.Int64).alias(f"by{number}") for number, name in enumerate(key)]


def number_groups(by: Sequence[str], *frames: pl.DataFrame) -> list[pl.DataFrame]:
    """Adds a column `of` to the frames: a number for the row's values in `by`. Equal values have equal numbers in all
    frames."""
    some = [frame for frame in frames if frame.height]
    key = unlike(by, *some) if some else []
    if not key:
        return [frame.with_columns(of=pl.lit(0, dtype=ROW_NUMBER)) for frame in frames]
    keys = pl.concat(frame.select(key).unique() for frame in frames).unique().sort(key).with_row_index("of")
    return [frame.join(keys, on=key, how="left", nulls_equal=True, maintain_order="left") for frame in frames]


def apart(rows: pl.DataFrame, by: Sequence[str]) -> dict[tuple[object, ...], pl.DataFrame]:
    """Returns the rows of each value of `by`, in a dictionary. If there are no rows, it still has one entry. Callers
    sort and sum the work of each device separately, for example."""
    if not rows.height:
        return {(None,) * len(by): rows}
    key = unlike(by, rows)
    if not key:
        return {rows.select(by).row(0) if by else (): rows}
    parts = rows.partition_by(key, as_dict=True)
    same = {name: rows[name][0] for name in by if name not in key}
    return {tuple((same | dict(zip(key, values, strict=True)))[name] for name in by): parts[values] for values in parts}


def sum_by(rows: pl.DataFrame, by: Sequence[str], **sums: pl.Expr) -> pl.DataFrame:
    """Returns a row of sums for each value of `by`, in any order. Groups only by columns that differ between rows."""
    key = unlike(by, rows)
    same = (_col(name).first() for name in by if name not in key)
    grouped = rows.group_by(key).agg(*same, **sums) if key else rows.select(*same, **sums)
    return grouped.select(*by, *sums)


def over(expr: pl.Expr, rows: pl.DataFrame, by: Sequence[str]) -> pl.Expr:
    """Returns the expression as a window expression over `by`. Columns of `by` with the same value in all rows are left
    out, because they take time."""
    key = unlike(by, rows)
    return expr.over(key) if key else expr


def distinct(rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Returns the distinct values of `by`, in any order."""
    key = unlike(by, rows)
    return rows.select(by).unique(key) if key else rows.select(by).head(1)


def only(rows: pl.DataFrame, which: pl.Expr | pl.Series) -> pl.DataFrame:
    """Filters rows. If all rows remain, returns them without a copy."""
    flags = which if isinstance(which, pl.Series) else rows.select(which.fill_null(value=False)).to_series()
    return rows if flags.all() else rows.filter(flags)


def look_up(rows: pl.DataFrame, table: pl.DataFrame, on: Sequence[str]) -> pl.DataFrame:
    """Adds the other columns of `table`, which has at most one row for each value of `on`. Joins only on columns that
    differ between rows, which is faster."""
    rest = unlike(on, rows)
    if same := {name: rows[name][0] for name in on if name not in rest}:
        table = table.filter(**same).drop(same)
    if rest:
        return rows.join(table, on=rest, how="left", nulls_equal=True, maintain_order="left")
    few = table if table.height else table.clear(1)
    return rows.with_columns(pl.lit(few[name][0], dtype=few.schema[name]).alias(name) for name in few.columns)


def in_order(rows: pl.DataFrame, by: str) -> pl.DataFrame:
    """Sorts rows. If they are already sorted, returns them without a copy."""
    return rows if rows[by].is_sorted() else rows.sort(by, maintain_order=True)


def within(rows: pl.DataFrame, time: str, spans: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Returns pairs of row numbers: `row`, and `stretch` (of `spans`), for which the row's time is inside the span. The
    rows of a span are in order of `time`. If spans overlap, a row is in several pairs."""
    groups = grouped(by, rows, spans)
    return native.within(rows.select(_col(time).alias("time_ns"), *groups), spans.select("start_ns", "end_ns", *groups))
