"""Columns as short JSON: numbers as what they differ from the one before, texts once each."""

from __future__ import annotations

from typing import Any

import polars as pl

from opspan.views.page.columns import LONGEST_TEXT, numbered, text

_col = pl.col
_LENGTHS = (LONGEST_TEXT, 200, 60)  # of a text, in characters: the first with which all of them fit
_EXACT = 2**53
MOST_CHARACTERS = 1_000_000


def deltas(numbers: pl.Series) -> pl.Series | dict[str, pl.Series]:
    """Each less the one before; in the page they are added up again. No nulls. Where many of these are the same one
    after the other, how many there are of each: what is constant, or counts, is two numbers."""
    number = _col("number").cast(pl.Int64)
    changes = numbers.to_frame("number").select(number.diff().fill_null(number.first())).to_series()
    runs = changes.rle().struct.unnest()
    if 2 * runs.height >= len(changes):
        return changes
    return {"count": runs["len"], "delta": runs["value"]}


def shown(texts: pl.Series) -> list[str]:
    """Texts as a page has them: as long as all tables have them, or shorter where that would be too much."""
    strings = texts.cast(pl.String)
    lengths = strings.str.len_chars()
    longest = next((most for most in _LENGTHS if lengths.clip(upper_bound=most).sum() <= MOST_CHARACTERS), _LENGTHS[-1])
    return [text(one, longest) for one in strings]


def of_texts(name: str, title: str, column: pl.Series) -> dict[str, Any]:
    """A column of details: -1 for no text."""
    texts, numbers = numbered(column)
    return {"name": name, "title": title, "unit": "text", "texts": shown(texts), "at": deltas(numbers.fill_null(-1))}


def of_numbers(name: str, title: str, unit: str, column: pl.Series) -> dict[str, Any]:
    """A column of details: `missing` stands for no number. Numbers that the page's program cannot hold are texts."""
    least, most = column.min(), column.max()
    if not (isinstance(least, int) and isinstance(most, int) and least > -_EXACT and most < _EXACT):
        return of_texts(name, title, column.cast(pl.String))
    missing = least - 1 if column.null_count() else None
    filled = column if missing is None else column.fill_null(missing)
    return {"name": name, "title": title, "unit": unit, "missing": missing, "at": deltas(filled)}
