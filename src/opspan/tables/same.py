"""Finds columns with one value in all rows, and the distinct rows of a frame. Many columns have only one value, so code
that knows this does its work once instead of for each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

FEW = 10_000  # up to this many rows, methods of Series are faster than a query


def unlike(names: Sequence[str], *frames: pl.DataFrame) -> list[str]:
    """Returns the names of the columns that `same` leaves out."""
    known = same(names, *frames)
    return [name for name in names if name not in known]


def is_one(rows: pl.DataFrame, *names: str) -> bool:
    """Returns whether each column has one value in all rows. Most traces have one process and one device."""
    return same(names, rows) == [*names]


def same(names: Sequence[str], *frames: pl.DataFrame) -> list[str]:
    """Returns the names of the columns that have one value in all rows of all frames. Leaves out columns with nulls."""
    bounds = [_bounds(frame, names) for frame in frames]

    def is_same(at: int) -> bool:
        distinct = {of_frame[at] for of_frame in bounds}
        low, high, nulls = distinct.pop()
        return not distinct and low is not None and low == high and nulls == 0

    return [name for at, name in enumerate(names) if is_same(at)]


def _bounds(frame: pl.DataFrame, names: Sequence[str]) -> list[tuple[Any, Any, int]]:
    """Returns, for each column, its least and its greatest value, and the number of nulls."""
    if frame.height <= FEW or not names:  # for few rows, a polars query takes fifty times as long
        return [(one.min(), one.max(), one.null_count()) for one in map(frame.get_column, names)]
    # Uses expressions, because get_column() would turn a literal into a column in memory.
    columns = (pl.col(name) for name in names)
    figures = [figure for column in columns for figure in (column.min(), column.max(), column.null_count())]
    # The expressions run one after another, because starting threads takes longer than computing most of them.
    row = frame.select_seq(figure.alias(str(at)) for at, figure in enumerate(figures)).row(0)
    return [row[at : at + 3] for at in range(0, len(row), 3)]


def each_once(frame: pl.DataFrame, name: str) -> pl.Series:
    """Returns the distinct values of a column, in any order. Drops equal neighbours first, so that few values are
    hashed."""
    if frame.is_empty() or is_one(frame, name):
        return frame.head(1).get_column(name)
    column = frame.get_column(name)  # comparing two slices of the column takes a third of the time of shift()
    changed = column[1:].filter(column[1:].ne_missing(column[:-1]))
    return pl.concat([column[:1], changed]).unique()


def rows_once(frame: pl.DataFrame, *names: str) -> pl.DataFrame:
    """Returns the distinct rows of these columns, in any order. Drops equal neighbours first, so that few rows are
    hashed."""
    rows = frame.select(names)
    is_other = pl.DataFrame([column[1:].ne_missing(column[:-1]) for column in rows])
    changed = rows[1:].filter(is_other.select(pl.any_horizontal(pl.all())).to_series())
    return pl.concat([rows.head(1), changed]).group_by(names).agg()  # group_by takes a third of the time of unique()
