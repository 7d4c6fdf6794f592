"""Writes columns as short JSON: each number as the difference from the previous number, and each distinct text once."""

from __future__ import annotations

from typing import Any

import polars as pl

from opspan.views.page.columns import LONGEST_TEXT, numbered, text

_col = pl.col
# Limits for the length of a text. The first limit with which all texts together are short enough is used.
_LENGTHS = (LONGEST_TEXT, 200, 60)
_EXACT = 2**53
MOST_CHARACTERS = 1_000_000


def deltas(numbers: pl.Series) -> pl.Series | dict[str, pl.Series]:
    """Returns the difference of each number from the previous number; the page adds the differences up again. `numbers`
    must not have nulls. If many neighbouring differences are equal, returns each run of equal differences as one
    difference and its count."""
    number = _col("number").cast(pl.Int64)
    changes = numbers.to_frame("number").select(number.diff().fill_null(number.first())).to_series()
    runs = changes.rle().struct.unnest()
    if 2 * runs.height >= len(changes):
        return changes
    return {"count": runs["len"], "delta": runs["value"]}


def shown(texts: pl.Series) -> list[str]:
    """Cuts texts for a page: to the usual length, or shorter if all texts together would be too long."""
    strings = texts.cast(pl.String)
    lengths = strings.str.len_chars()
    longest = next((most for most in _LENGTHS if lengths.clip(upper_bound=most).sum() <= MOST_CHARACTERS), _LENGTHS[-1])
    return [text(string, longest) for string in strings]


def of_texts(name: str, title: str, column: pl.Series) -> dict[str, Any]:
    """Returns a column of details that are texts. `at` has the number of each row's text; -1 stands for null."""
    texts, numbers = numbered(column)
    return {"name": name, "title": title, "unit": "text", "texts": shown(texts), "at": deltas(numbers.fill_null(-1))}


def of_numbers(name: str, title: str, unit: str, column: pl.Series) -> dict[str, Any]:
    """Returns a column of details that are numbers, in which `missing` stands for null. If a number is too large
    for the page's program, or is no integer, the numbers become texts."""
    least, most = column.min(), column.max()
    if not (isinstance(least, int) and isinstance(most, int) and least > -_EXACT and most < _EXACT):
        return of_texts(name, title, column.cast(pl.String))
    missing = least - 1 if column.null_count() else None
    filled = column if missing is None else column.fill_null(missing)
    return {"name": name, "title": title, "unit": unit, "missing": missing, "at": deltas(filled)}
