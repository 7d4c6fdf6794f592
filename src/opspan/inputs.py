"""Converts the values of ops' non-tensor arguments between opspan's form and torch.profiler's form.

    opspan          [null, [4, 4], 0.1, false, "inf", "1.0+2.0j"]                JSON with a value for each argument
    torch.profiler  ["", "[4, 4]", "0.10000000000000001", "False", "inf", ...]   JSON with a text for each argument

A value is None (unknown), a number, a bool, or a list of these. Numbers that JSON cannot represent (infinities, NaN and
complex numbers) are texts that Python can parse.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import polars as pl

# The empty text and the words of torch.profiler, each with its value.
_WORDS = {"": None, "True": True, "False": False}


def values_of(text: str | None) -> list[Any]:
    """Parses the JSON text in opspan's form. Returns an empty list if the text is not such JSON."""
    try:
        entries = json.loads(text or "[]")
    except (ValueError, RecursionError):
        return []
    return _read(entries) if isinstance(entries, list) else []


def from_torch(text: str) -> str | None:
    """Converts torch.profiler's text to opspan's text. Returns None if the text is not a list or if all its values are
    unknown."""
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entries, list):
        return None
    values = [_of_torch(value) if isinstance(value, str) else value for value in entries]
    return json.dumps(_written(values)) if any(value is not None for value in values) else None


def to_torch(text: str) -> str:
    """Converts opspan's text to torch.profiler's text."""
    return json.dumps([_to_torch(value) for value in values_of(text)])


def map_texts(column: pl.Series, convert: Callable[[str], str | None]) -> pl.Series:
    """Converts the texts of a column. Calls `convert` only once for equal texts."""
    distinct = column.unique().drop_nulls()
    if not len(distinct):
        return column.cast(pl.Categorical)
    texts = pl.Series([convert(text) for text in distinct.cast(pl.String)], dtype=pl.Categorical)
    return column.replace_strict(distinct, texts, default=None, return_dtype=pl.Categorical)


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return [_read(item) for item in value]
    return _number(value) if isinstance(value, str) else value


def _written(value: Any) -> Any:
    """Returns the value with texts in place of numbers that JSON cannot represent."""
    if isinstance(value, list):
        return [_written(item) for item in value]
    if isinstance(value, complex):
        return f"{value.real!r}{value.imag:+}j"
    return str(value) if isinstance(value, float) and value - value != 0 else value


def _of_torch(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if text.startswith("[") and text.endswith("]"):
        return [_of_torch(item) for item in text[1:-1].split(", ")] if text != "[]" else []
    return _number(text)


def _to_torch(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_to_torch(item) for item in value) + "]"
    return "" if value is None else str(_written(value))


def _number(text: str) -> Any:
    """Parses a number as Python does. Returns the text itself if it is not a number."""
    for kind in (int, float, complex):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
