"""Which columns have the same value in all rows, and which rows are the same as others. Many are, and then much need
not be done for each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

FEW = 10_000  # rows


def unlike(names: Sequence[str], *frames: pl.DataFrame) -> list[str]:
    """The others of these names: what tells rows of the frames apart. Where there are no rows, all."""
    known = same(names, *frames)
    return [name for name in names if name not in known]


def is_one(rows: pl.DataFrame, *names: str) -> bool:
    """All rows have the same values: most traces are of one process, and one device."""
    return same(names, rows) == [*names]


def same(names: Sequence[str], *frames: pl.DataFrame) -> list[str]:
    """Returns the names of the columns that have one value in all rows of all frames."""
    told = [_bounds(frame, names) for frame in frames]

    def is_same(at: int) -> bool:
        found = {of_frame[at] for of_frame in told}
        low, high, nulls = found.pop()
        return not found and low is not None and low == high and nulls == 0

    return [name for at, name in enumerate(names) if is_same(at)]


def _bounds(frame: pl.DataFrame, names: Sequence[str]) -> list[tuple[Any, Any, int]]:
    """Returns, for each column, its least and its greatest value, and the number of nulls."""
    if frame.height <= FEW or not names:  # a query of few rows takes fifty times as long as its answer
        return [(one.min(), one.max(), one.null_count()) for one in map(frame.get_column, names)]
    # As expressions, for which a literal need not become a column.
    columns = (pl.col(name) for name in names)
    asked = [what for column in columns for what in (column.min(), column.max(), column.null_count())]
    # One after the other: to hand them to threads takes longer than most of them do.
    told = frame.select_seq(what.alias(str(at)) for at, what in enumerate(asked)).row(0)
    return [told[at : at + 3] for at in range(0, len(told), 3)]


def each_once(frame: pl.DataFrame, name: str) -> pl.Series:
    """Returns the distinct values of a column, in any order. Hashes and sorts few of them: equal values mostly follow
    each other."""
    if frame.is_empty() or is_one(frame, name):
        return frame.head(1).get_column(name)
    column = frame.get_column(name)  # two views of it: as `rows_once` shifts its rows they take thrice as long
    changed = column[1:].filter(column[1:].ne_missing(column[:-1]))
    return pl.concat([column[:1], changed]).unique()


def rows_once(frame: pl.DataFrame, *names: str) -> pl.DataFrame:
    """Returns the distinct rows of these columns, in any order. Rows that follow each other are mostly equal, so few
    are hashed."""
    rows = frame.select(names)
    is_other = pl.DataFrame([column[1:].ne_missing(column[:-1]) for column in rows])
    changed = rows[1:].filter(is_other.select(pl.any_horizontal(pl.all())).to_series())
    return pl.concat([rows.head(1), changed]).group_by(names).agg()  # a third of the time of unique()
