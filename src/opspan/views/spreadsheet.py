"""Writes rows as CSV in which a spreadsheet finds no formulas.

Excel and similar programs read a cell as a formula if it begins with one of = + - @, even if the cell is quoted. A
formula can send other cells to a server, or start a program. The name of a range can be any text. So a text that
begins with one of these characters gets an apostrophe in front, and a spreadsheet shows it as text. If a text has
apostrophes before such a character, it gets one more apostrophe. So removing one apostrophe always gives back the
original (docs/security.md). Numbers stay as they are, even if they are written as texts.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

# Matches texts that a spreadsheet may run. Tabs and line ends are included because the text after them may become a
# cell. The last four characters are the full-width forms of = + - @, which Excel accepts in East Asia.
_BEGINS = r"^'*[=+\-@\t\r\n\x{FF1D}\x{FF0B}\x{FF0D}\x{FF20}]"
_NUMBER = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"


def as_csv(frame: pl.DataFrame) -> str:
    return _safe(frame).write_csv()


def write_csv(frame: pl.DataFrame, path: Path) -> None:
    _safe(frame).write_csv(path)


def _safe(frame: pl.DataFrame) -> pl.DataFrame:
    # _changed checks each distinct text once, even if a million rows have it.
    texts = [column for column in frame.iter_columns() if column.dtype in (pl.String, pl.Categorical, pl.Enum)]
    frame = frame.with_columns(changed for column in texts if (changed := _changed(column)) is not None)
    titles = pl.Series(frame.columns, dtype=pl.String)
    return frame.rename(dict(zip(titles, _with_apostrophes(titles), strict=True)))


def _changed(column: pl.Series) -> pl.Series | None:
    texts = column.unique().cast(pl.String)
    odd = texts.filter(_is_formula(texts).fill_null(value=False))
    if odd.is_empty():
        return None
    return column.cast(pl.String).replace(odd, _with_apostrophes(odd)).alias(column.name)


def _with_apostrophes(texts: pl.Series) -> pl.Series:
    return pl.select(pl.when(_is_formula(texts)).then(pl.lit("'") + texts).otherwise(texts)).to_series()


def _is_formula(texts: pl.Series) -> pl.Series:
    return texts.str.contains(_BEGINS) & ~texts.str.contains(_NUMBER)
