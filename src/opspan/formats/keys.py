"""Rows that are found by a number: which row has it, and what stands there. Numbers of rows mostly lie close together,
and are looked up in a list of all that lie between the first and the last, or are the places themselves; a join takes
ten times as long.

Series are computed with where a query over a frame would do as well: most tables are small, and each query costs as
much as a thousand rows.
"""

from __future__ import annotations

import polars as pl

_CLOSE = 4  # the list may be so many times as long as there are rows


def places(wanted: pl.DataFrame, keys: pl.DataFrame) -> pl.Series:
    """The row of `keys`, which has each once, that each key wanted is in; null where there is none."""
    if not keys.height:
        return pl.repeat(None, wanted.height, dtype=pl.UInt32, eager=True)
    if keys.width == 1 and keys.to_series().dtype.is_integer():
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
    if count > _CLOSE * len(numbers):
        return _searched(wanted, numbers) if in_order else None
    least, most = wanted.min(), wanted.max()
    if isinstance(least, int) and isinstance(most, int) and (least < first or most > last):
        wanted = wanted.set((wanted < first) | (wanted > last), None)
    at = (wanted - first).cast(pl.UInt32)
    if in_order and count == len(numbers):
        return at
    rows = pl.int_range(len(numbers), dtype=pl.UInt32, eager=True)
    return pl.repeat(None, count, dtype=pl.UInt32, eager=True).scatter(numbers - first, rows).gather(at)


def _searched(wanted: pl.Series, numbers: pl.Series) -> pl.Series:
    at = numbers.search_sorted(wanted)
    at = at.set(at == len(numbers), 0)
    none = pl.Series([None], dtype=at.dtype).new_from_index(0, len(at))
    return at.zip_with((numbers.gather(at) == wanted).fill_null(value=False), none).cast(pl.UInt32)


def looked_up(frame: pl.DataFrame, column: str, rows: pl.DataFrame, key: str) -> pl.DataFrame:
    """The frame with what the rows have whose key stands in its column, each once; null where there is none."""
    if not rows.height:  # as of most tables: as literals, nulls take no memory
        return frame.with_columns(
            pl.lit(None, dtype=one.dtype).alias(one.name) for one in rows.drop(key).iter_columns()
        )
    at = places(frame[column].to_frame(), rows[key].to_frame(column))
    return frame.with_columns([one.gather(at) for one in rows.iter_columns() if one.name != key])


def once(rows: pl.DataFrame, key: str) -> pl.DataFrame:
    """The rows with each key once: the first that has it. In a table of a database they are mostly in order."""
    keys = rows[key]
    if not keys.null_count() and (keys[1:] > keys[:-1]).all():
        return rows
    return rows.unique(key, keep="first", maintain_order=True)
