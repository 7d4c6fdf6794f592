"""Stretches of time: how long they are, and what they cover together.

    difference(start, end) -> an expression: from the one time to the other, negative if `end` is earlier
    length(start, end)     -> the same, at least 0
    union(rows, by) -> *by, start_ns, end_ns: the same time, in stretches that do not touch, in order; union(rows, by,
        others): that of both
    within(rows, time, spans, by) -> row, stretch: which rows of `rows` lie in which rows of `spans`
    time_in(rows, spans, by) -> for each of `spans`, how much of it `rows` cover together

What is longer than 292 years becomes the largest number; where a time is null, so is what is computed from it.
Rows with no begin, no end or no length cover nothing. `by`: columns that tell one row of time from another (a device, a
process); nulls are a value like any other. What several sets have in common is a difference of what they cover
together: utilisation, overlaps and breakdowns are found without a look at each moment.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from opspan import native
from opspan.tables.same import unlike

_col = pl.col
_START, _END = _col("start_ns"), _col("end_ns")
PROCESS = ("rank", "pid")  # whose time it is, mostly
DEVICE = (*PROCESS, "device_id")
LEAST, MOST = -(2**63), 2**63 - 1


def difference(start: pl.Expr = _START, end: pl.Expr = _END) -> pl.Expr:
    ns, is_back = _between(start, end), end < start
    is_too_long = is_back != (ns < 0)
    return pl.when(is_too_long).then(pl.when(is_back).then(LEAST).otherwise(MOST)).otherwise(ns)


def length(start: pl.Expr = _START, end: pl.Expr = _END) -> pl.Expr:
    return _bounded(_between(start, end), end <= start)


def bounded(number: pl.Expr) -> pl.Expr:
    """Int128 as Int64: what is too large as the largest number, what is too small as the smallest."""
    return number.clip(LEAST, MOST).cast(pl.Int64)


def _between(start: pl.Expr, end: pl.Expr) -> pl.Expr:
    """In 64 bits, which take a tenth of the time of 128: where it is too long for them its sign is not that of time."""
    return end.cast(pl.Int64) - start.cast(pl.Int64)


def _bounded(ns: pl.Expr, is_nothing: pl.Expr) -> pl.Expr:
    """Time that is not negative, but for what is too long."""
    return pl.when(is_nothing).then(0).when(ns < 0).then(MOST).otherwise(ns)


def union(rows: pl.DataFrame, by: Sequence[str], others: pl.DataFrame | None = None) -> pl.DataFrame:
    others = rows.clear() if others is None else others
    groups = grouped(by, rows, others)
    found = native.cover(rows.select("start_ns", "end_ns", *groups), others.select("start_ns", "end_ns", *groups))
    whose = pl.concat([rows.select(by), others.select(by)]) if by else rows.select(by)
    return whose[found["row"]].hstack(found.drop("row")) if by else found.drop("row")


def time_in(rows: pl.DataFrame, spans: pl.DataFrame, by: Sequence[str]) -> pl.Series:
    groups = grouped(by, rows, spans)
    return native.covered(rows.select("start_ns", "end_ns", *groups), spans.select("start_ns", "end_ns", *groups))


def grouped(by: Sequence[str], *frames: pl.DataFrame) -> list[pl.Expr]:
    """The columns that tell the groups of native code apart: those of `by` that are not the same in all rows."""
    some = [frame for frame in frames if frame.height]
    told_by = unlike(by, *some) if some else []
    return [_col(name).cast(pl.Int64).alias(f"by{number}") for number, name in enumerate(told_by)]


def numbered(by: Sequence[str], *frames: pl.DataFrame) -> list[pl.DataFrame]:
    """The frames with a column `of`: the number of what `by` says, which is the same in all of them."""
    some = [frame for frame in frames if frame.height]
    told_by = unlike(by, *some) if some else []
    if not told_by:
        return [frame.with_columns(of=pl.lit(0, dtype=pl.UInt32)) for frame in frames]
    keys = pl.concat(frame.select(told_by).unique() for frame in frames).unique().sort(told_by).with_row_index("of")
    return [frame.join(keys, on=told_by, how="left", nulls_equal=True, maintain_order="left") for frame in frames]


def apart(rows: pl.DataFrame, by: Sequence[str]) -> dict[tuple[object, ...], pl.DataFrame]:
    """By what tells them apart: the time of one device, say, is sorted and summed by itself. At least one is there."""
    if not rows.height:
        return {(None,) * len(by): rows}
    told_by = unlike(by, rows)
    if not told_by:
        return {rows.select(by).row(0) if by else (): rows}
    parts = rows.partition_by(told_by, as_dict=True)
    same = {name: rows[name][0] for name in by if name not in told_by}
    return {tuple((same | dict(zip(told_by, key, strict=True)))[name] for name in by): parts[key] for key in parts}


def summed_by(rows: pl.DataFrame, by: Sequence[str], **sums: pl.Expr) -> pl.DataFrame:
    """A row for each value of `by`, in any order: grouped by what is not the same in all rows."""
    told_by = unlike(by, rows)
    same = (_col(name).first() for name in by if name not in told_by)
    grouped = rows.group_by(told_by).agg(*same, **sums) if told_by else rows.select(*same, **sums)
    return grouped.select(*by, *sums)


def over(expr: pl.Expr, rows: pl.DataFrame, by: Sequence[str]) -> pl.Expr:
    """The expression for each value of `by`: of what is not the same in all rows."""
    told_by = unlike(by, rows)
    return expr.over(told_by) if told_by else expr


def distinct(rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """What tells rows apart, once each, in any order."""
    told_by = unlike(by, rows)
    return rows.select(by).unique(told_by) if told_by else rows.select(by).head(1)


def only(rows: pl.DataFrame, which: pl.Expr | pl.Series) -> pl.DataFrame:
    """A filter that copies nothing where all rows are wanted."""
    flags = which if isinstance(which, pl.Series) else rows.select(which.fill_null(value=False)).to_series()
    return rows if flags.all() else rows.filter(flags)


def looked_up(rows: pl.DataFrame, table: pl.DataFrame, on: Sequence[str]) -> pl.DataFrame:
    """`rows` with the other columns of `table`, which has at most one row for each value of `on`: a join, on those of
    its columns alone that are not the same in all rows."""
    rest = unlike(on, rows)
    if same := {name: rows[name][0] for name in on if name not in rest}:
        table = table.filter(**same).drop(same)
    if rest:
        return rows.join(table, on=rest, how="left", nulls_equal=True, maintain_order="left")
    few = table if table.height else table.clear(1)
    return rows.with_columns(pl.lit(few[name][0], dtype=few.schema[name]).alias(name) for name in few.columns)


def in_order(rows: pl.DataFrame, by: str) -> pl.DataFrame:
    """A sort that copies nothing where there is nothing to do."""
    return rows if rows[by].is_sorted() else rows.sort(by, maintain_order=True)


def within(rows: pl.DataFrame, time: str, spans: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Pairs of row numbers, those of a stretch in order of `time`; where stretches overlap, a row is in several."""
    groups = grouped(by, rows, spans)
    return native.within(rows.select(_col(time).alias("time_ns"), *groups), spans.select("start_ns", "end_ns", *groups))
