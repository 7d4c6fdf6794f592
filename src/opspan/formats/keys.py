"""Rows that are found by a number: which row has it, and what stands there. Numbers of rows mostly lie close together,
and are looked up in a list of all that lie between the first and the last; a join takes ten times as long.
"""

from __future__ import annotations

import polars as pl

_CLOSE = 4  # the list may be so many times as long as there are rows


def places(wanted: pl.DataFrame, keys: pl.DataFrame) -> pl.Series:
    """The row of `keys`, which has each once, that each key wanted is in; null where there is none."""
    rows = pl.int_range(keys.height, dtype=pl.UInt32, eager=True)
    if keys.width == 1 and keys.height and keys.to_series().dtype.is_integer():
        numbers, number = keys.to_series(), pl.col(wanted.columns[0])
        first, last = numbers.min(), numbers.max()
        if not numbers.null_count() and isinstance(first, int) and isinstance(last, int):
            count = last - first + 1
            if count <= _CLOSE * keys.height:
                by_number = pl.repeat(None, count, dtype=pl.UInt32, eager=True).scatter(numbers - first, rows)
                is_between = number.is_between(first, last)
                at = wanted.select(pl.when(is_between).then(number - first).cast(pl.UInt32)).to_series()
                return by_number.gather(at)
    return wanted.join(keys.with_columns(place=rows), on=keys.columns, how="left", maintain_order="left")["place"]


def looked_up(frame: pl.DataFrame, column: str, rows: pl.DataFrame, key: str) -> pl.DataFrame:
    """The frame with what the rows have whose key stands in its column, each once; null where there is none."""
    at = places(frame.select(column), rows.select(pl.col(key).alias(column)))
    return frame.with_columns(rows.drop(key).select(pl.all().gather(at)))


def once(rows: pl.DataFrame, key: str) -> pl.DataFrame:
    """The rows with each key once: the first that has it. In a table of a database they are mostly in order."""
    is_next = pl.col(key) > pl.col(key).shift()
    if not rows[key].null_count() and rows.select(is_next.slice(1).all()).item():
        return rows
    return rows.unique(key, keep="first", maintain_order=True)
