"""Rows that are found by a number: which row has it, and what stands there. Numbers of rows mostly lie close together,
and are looked up in a list of all that lie between the first and the last, or are the places themselves; a join takes
ten times as long.

Series are computed with where a query over a frame would do as well: most tables are small, and each query costs as
much as a thousand rows.
"""

from __future__ import annotations

from itertools import pairwise

import polars as pl

_CLOSE = 4  # the list may be so many times as long as there are rows, or as long as there are rows that are looked up
_STRETCHES = 8
_FEW = 64  # rows; of so few Python itself finds each sooner than polars looks at all of them


def places(wanted: pl.DataFrame, keys: pl.DataFrame) -> pl.Series:
    """The row of `keys`, which has each once, that each key wanted is in; null where there is none."""
    if not keys.height:
        return _nothing(wanted.height)
    if keys.width == 1 and keys.to_series().dtype.is_integer():
        if keys.height + wanted.height < _FEW:
            row_of = {key: row for row, key in enumerate(keys.to_series().to_list()) if key is not None}
            return pl.Series([row_of.get(key) for key in wanted.to_series().to_list()], dtype=pl.UInt32)
        found = _numbered(wanted.to_series().cast(pl.Int64), keys.to_series().cast(pl.Int64))
        if found is not None:
            return found
    rows = pl.int_range(keys.height, dtype=pl.UInt32, eager=True)
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
    at = (wanted - first).cast(pl.UInt32)
    if in_order and count == len(numbers):
        return at
    rows = pl.int_range(len(numbers), dtype=pl.UInt32, eager=True)
    return _nothing(count).scatter(numbers - first, rows)[at]


def _searched(wanted: pl.Series, numbers: pl.Series) -> pl.Series:
    """In numbers that are in order. Mostly they are a few stretches without a gap."""
    gaps = (numbers[1:] - numbers[:-1] != 1).arg_true()
    if len(gaps) < _STRETCHES:
        key, row = pl.col(wanted.name), pl.lit(None, pl.Int64)
        for begin, end in pairwise([0, *(gaps + 1).to_list(), len(numbers)]):
            first = numbers[begin]
            row = pl.when(key.is_between(first, numbers[end - 1])).then(key - (first - begin)).otherwise(row)
        return wanted.to_frame().select(row.cast(pl.UInt32)).to_series()
    at = numbers.search_sorted(wanted)
    at = at.set(at == len(numbers), 0)
    return at.zip_with((numbers[at] == wanted).fill_null(value=False), _nothing(len(at)).cast(at.dtype)).cast(pl.UInt32)


def _nothing(count: int) -> pl.Series:
    return pl.Series([None], dtype=pl.UInt32).new_from_index(0, count)


def looked_up(frame: pl.DataFrame, column: str, rows: pl.DataFrame, key: str) -> pl.DataFrame:
    """The frame with what the rows have whose key stands in its column, each once; null where there is none."""
    if not rows.height:  # as of most tables: as literals, nulls take no memory
        return frame.with_columns(
            pl.lit(None, dtype=one.dtype).alias(one.name) for one in rows.drop(key).iter_columns()
        )
    at = places(frame[column].to_frame(), rows[key].to_frame(column))
    return beside(frame, [one[at] for one in rows.iter_columns() if one.name != key])


def beside(frame: pl.DataFrame, columns: list[pl.Series]) -> pl.DataFrame:
    """The frame with further columns, in place of those that are called alike."""
    is_new = not any(column.name in frame.columns for column in columns)
    return frame.hstack(columns) if is_new else frame.with_columns(columns)


def once(rows: pl.DataFrame, key: str) -> pl.DataFrame:
    """The rows with each key once: the first that has it. In a table of a database they are mostly in order."""
    if ascends(rows[key]):
        return rows
    return rows.unique(key, keep="first", maintain_order=True)


def ascends(keys: pl.Series) -> bool:
    """Whether each is greater than the one before it."""
    return len(keys) < 2 or (not keys.null_count() and bool((keys[1:] > keys[:-1]).all()))
