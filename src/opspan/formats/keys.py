"""Finds the rows that have given keys. Most keys are integers that are close together. So a list has an entry for every
integer from the least to the greatest key: the key's row, or null. If all these integers are keys, the row follows from
the key itself. A join, which is used for other keys, takes ten times as long.

The functions compute with Series instead of queries over frames, because most tables are small. A query costs as much
time as processing a thousand rows.
"""

from __future__ import annotations

from itertools import pairwise

import polars as pl

from opspan.row_numbers import ROW_NUMBER

_CLOSE = 4  # the list has at most this many entries per key or, if that is more, one entry per wanted key
_STRETCHES = 8
_FEW = 64  # up to this many rows, a Python dict is faster than a query


def places(wanted: pl.DataFrame, keys: pl.DataFrame) -> pl.Series:
    """Returns, for each wanted key, its row number in `keys`; null for unknown keys. The rows of `keys` are
    distinct."""
    if not keys.height:
        return _nothing(wanted.height)
    if keys.width == 1 and keys.to_series().dtype.is_integer():
        if keys.height + wanted.height < _FEW:
            row_of = {key: row for row, key in enumerate(keys.to_series().to_list()) if key is not None}
            return pl.Series([row_of.get(key) for key in wanted.to_series().to_list()], dtype=ROW_NUMBER)
        rows = _numbered(wanted.to_series().cast(pl.Int64), keys.to_series().cast(pl.Int64))
        if rows is not None:
            return rows
    rows = pl.int_range(keys.height, dtype=ROW_NUMBER, eager=True)
    return wanted.join(keys.with_columns(place=rows), on=keys.columns, how="left", maintain_order="left")["place"]


def _numbered(wanted: pl.Series, numbers: pl.Series) -> pl.Series | None:
    first, last = numbers.min(), numbers.max()
    if numbers.null_count() or not isinstance(first, int) or not isinstance(last, int):
        return None
    count, in_order = last - first + 1, numbers.is_sorted()
    if count > max(_CLOSE * len(numbers), len(wanted)):
        return _searched(wanted, numbers) if in_order else None
    least, most = wanted.min(), wanted.max()
    if isinstance(least, int) and isinstance(most, int) and (least < first or most > last):
        wanted = wanted.set((wanted < first) | (wanted > last), None)
    at = (wanted - first).cast(ROW_NUMBER)
    if in_order and count == len(numbers):
        return at
    rows = pl.int_range(len(numbers), dtype=ROW_NUMBER, eager=True)
    return _nothing(count).scatter(numbers - first, rows)[at]


def _searched(wanted: pl.Series, numbers: pl.Series) -> pl.Series:
    """Returns, for each wanted number, its index in `numbers`, or null. `numbers` are in ascending order, and usually
    form a few runs of consecutive numbers."""
    gaps = (numbers[1:] - numbers[:-1] != 1).arg_true()
    if len(gaps) < _STRETCHES:
        key, row = pl.col(wanted.name), pl.lit(None, pl.Int64)
        for begin, end in pairwise([0, *(gaps + 1).to_list(), len(numbers)]):
            first = numbers[begin]
            row = pl.when(key.is_between(first, numbers[end - 1])).then(key - (first - begin)).otherwise(row)
        return wanted.to_frame().select(row.cast(ROW_NUMBER)).to_series()
    at = numbers.search_sorted(wanted)
    at = at.set(at == len(numbers), 0)
    return at.zip_with((numbers[at] == wanted).fill_null(value=False), _nothing(len(at)).cast(at.dtype)).cast(
        ROW_NUMBER
    )


def _nothing(count: int) -> pl.Series:
    return pl.Series([None], dtype=ROW_NUMBER).new_from_index(0, count)


def looked_up(frame: pl.DataFrame, column: str, rows: pl.DataFrame, key: str) -> pl.DataFrame:
    """Adds the columns of `rows` for the key in `column`; nulls for unknown keys. Keys in `rows` are unique."""
    if not rows.height:  # most tables are empty, and literal nulls take no memory
        return frame.with_columns(
            pl.lit(None, dtype=one.dtype).alias(one.name) for one in rows.drop(key).iter_columns()
        )
    at = places(frame[column].to_frame(), rows[key].to_frame(column))
    return beside(frame, [one[at] for one in rows.iter_columns() if one.name != key])


def beside(frame: pl.DataFrame, columns: list[pl.Series]) -> pl.DataFrame:
    """Adds columns to the frame. They replace columns with the same names."""
    is_new = not any(column.name in frame.columns for column in columns)
    return frame.hstack(columns) if is_new else frame.with_columns(columns)


def once(rows: pl.DataFrame, key: str) -> pl.DataFrame:
    """Returns the first row of each key. In tables of databases the keys are mostly ascending and unique already."""
    if ascends(rows[key]):
        return rows
    return rows.unique(key, keep="first", maintain_order=True)


def ascends(keys: pl.Series) -> bool:
    """Returns whether each key is greater than the previous one."""
    return len(keys) < 2 or (not keys.null_count() and bool((keys[1:] > keys[:-1]).all()))
