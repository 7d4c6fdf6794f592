"""What a verb answers: rows for programs, some of their columns for people, and sentences for both.

A view that answers makes an Answer of an Analysis; printing it as text, JSON or CSV is the same for all of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polars as pl

from opspan.events.times import format_memory, format_time
from opspan.printable import printable
from opspan.text_columns import Column, Layout, cut, fitted
from opspan.views import spreadsheet
from opspan.views.footer import Run

SCHEMA = 1  # of the JSON; docs/json.md
ROWS_OF_TEXT = 100
_ALL = 10_000  # characters: used if nothing says how wide a line may be


@dataclass(frozen=True)
class Shown:
    """A column as people see it. `text` makes its cells; `rank`: how early it goes where there is little room."""

    title: str
    column: str
    text: Callable[[pl.DataFrame, str], list[str]]
    rank: int = 0
    is_name: bool = False
    share_of: str = ""  # if its cells are shares: of what, in words, or the title of the column that is the whole


@dataclass(frozen=True)
class Answer:
    name: str
    rows: pl.DataFrame
    shown: tuple[Shown, ...]
    notes: tuple[str, ...] = ()
    exit_code: int = 0
    blocks: Callable[[pl.DataFrame, Layout], list[str]] | None = None  # lines of rows that are no table
    fitted_notes: Callable[[Layout], list[str]] | None = None  # the notes, where they say more if there is more room


def texts(rows: pl.DataFrame, column: str) -> list[str]:
    return ["" if value is None else printable(str(value)) for value in rows[column].to_list()]


def time_text(ns: int) -> str:
    return format_time(ns / 1000)


def short_name(name: str, width: int) -> str:
    return cut(printable(name), width, cut_end=False)


def times(rows: pl.DataFrame, column: str) -> list[str]:
    return ["" if value is None else time_text(value) for value in rows[column].to_list()]


def sizes(rows: pl.DataFrame, column: str) -> list[str]:
    return ["" if value is None else format_memory(value) for value in rows[column].to_list()]


def rates(rows: pl.DataFrame, column: str) -> list[str]:
    return ["" if value is None else f"{value / 1e9:,.3f} GB/s" for value in rows[column].to_list()]


def marks(rows: pl.DataFrame, column: str) -> list[str]:
    return ["*" if value else "" for value in rows[column].to_list()]


def shares_of(whole: str) -> Callable[[pl.DataFrame, str], list[str]]:
    """Cells in percent of another column."""

    def cells(rows: pl.DataFrame, column: str) -> list[str]:
        pairs = rows.select(column, whole).iter_rows()
        return ["" if part is None or not of else f"{100 * part / of:.1f}%" for part, of in pairs]

    return cells


def share(title: str, column: str, whole: str, of: str, rank: int = 0) -> Shown:
    """A column in percent of the column `whole`, which people know as `of`."""
    return Shown(title, column, shares_of(whole), rank, share_of=of)


def shares_said(shown: Sequence[Shown]) -> list[str]:
    """A line that says of what each column of shares is one."""
    titles: dict[str, list[str]] = {}
    for one in shown:
        if one.share_of:
            titles.setdefault(one.share_of, []).append(one.title)
    said = "; ".join(f"{', '.join(some)} of {whole}" for whole, some in titles.items())
    return [f"Shares: {said}"] if said else []


def as_text(answer: Answer, limit: int, layout: Layout) -> str:
    rows = limited(answer.rows, limit)
    notes = []
    if rows.height < answer.rows.height:
        notes.append(f"{answer.rows.height - rows.height:,} more rows: --limit -1 shows all")
    lines: list[str] = []
    if answer.blocks is not None:
        lines = answer.blocks(rows, layout)
    elif rows.height and answer.shown:
        columns = [
            Column(shown.title, shown.text(rows, shown.column), shown.rank, 16 if shown.is_name else None)
            for shown in answer.shown
        ]
        lines, left_out = fitted(columns, layout.width or _ALL)
        notes += [*left_out, *shares_said(answer.shown)]
    lines += layout.lines(notes)
    lines += layout.lines(answer.notes) if answer.fitted_notes is None else answer.fitted_notes(layout)
    return "".join(f"{line}\n" for line in lines)


def as_json(runs: Sequence[Run], answer: Answer, limit: int) -> str:
    document = {
        "schema": SCHEMA,
        "answer": answer.name,
        "rows": [
            {name: _finite(value) for name, value in row.items()} for row in limited(answer.rows, limit).to_dicts()
        ],
        "notes": list(answer.notes),
        "issues": [issue for found in runs for issue in found.tables.issues.to_dicts()],
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def as_csv(answer: Answer, limit: int) -> str:
    rows = limited(answer.rows, limit)
    return spreadsheet.as_csv(rows.with_columns(flat(column) for column in rows.iter_columns()))


def flat(column: pl.Series) -> pl.Series:
    """A list as one cell: of texts and numbers, with commas between them; of anything else, as JSON."""
    if not isinstance(column.dtype, pl.List):
        return column
    if isinstance(column.dtype.inner, pl.Struct):
        cells = [None if cell is None else json.dumps(cell.to_list()) for cell in column]
    else:
        cells = [None if cell is None else ", ".join(map(str, cell)) for cell in column]
    return pl.Series(column.name, cells, dtype=pl.String)


def limited(rows: pl.DataFrame, limit: int) -> pl.DataFrame:
    return rows.head(limit) if limit >= 0 else rows


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value
