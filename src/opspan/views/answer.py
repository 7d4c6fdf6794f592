"""Answer: what a verb prints, as rows for programs, and as some of their columns and sentences for people.

Printing an answer as text, JSON or CSV is the same for all verbs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from opspan.text_columns import Layout, fitted
from opspan.views import spreadsheet
from opspan.views.fields import Field, shares_note
from opspan.views.footer import Run

SCHEMA = 1  # of the JSON; docs/json.md
ROWS_OF_TEXT = 100
_ALL = 10_000  # characters: used if nothing says how wide a line may be


@dataclass(frozen=True)
class Answer:
    name: str
    rows: pl.DataFrame
    fields: Sequence[Field]
    notes: tuple[str, ...] = ()
    exit_code: int = 0
    blocks: Callable[[pl.DataFrame, Layout], list[str]] | None = None  # lines of rows that are no table
    fitted_notes: Callable[[Layout], list[str]] | None = None  # the notes, where they say more if there is more room
    notes_in_json: ClassVar[bool] = True
    lacking: tuple[str, ...] = ()  # what the trace lacks for a fuller answer, for standard error

    def lines(self, limit: int, layout: Layout) -> tuple[list[str], list[str]]:
        """Returns the lines of the first so many rows (-1: of all), and sentences on what had no room in them."""
        rows = limited(self.rows, limit)
        if self.blocks is not None:
            return self.blocks(rows, layout), []
        if not (rows.height and self.fields):
            return [], []
        lines, left_out = fitted([field.column(rows) for field in self.fields], layout.width or _ALL)
        return lines, [*left_out, *shares_note(self.fields)]

    def document(self, runs: Sequence[Run], limit: int) -> dict[str, Any]:
        """Returns what is printed as JSON: docs/json.md."""
        rows = limited(self.rows, limit).to_dicts()
        return {
            "schema": SCHEMA,
            "answer": self.name,
            "rows": [{name: _finite(value) for name, value in row.items()} for row in rows],
            "notes": list(self.notes),
            "issues": [issue for run in runs for issue in run.tables.issues.to_dicts()],
        }


def as_text(answer: Answer, limit: int = ROWS_OF_TEXT, layout: Layout | None = None) -> str:
    layout = layout or Layout()
    lines, notes = answer.lines(limit, layout)
    hidden = answer.rows.height - limited(answer.rows, limit).height
    more = [f"{hidden:,} more rows: --limit -1 shows all"] if hidden else []
    below = layout.lines([*more, *notes])
    below += layout.lines(answer.notes) if answer.fitted_notes is None else answer.fitted_notes(layout)
    return "".join(f"{line}\n" for line in (*lines, *below))


def as_json(answer: Answer, runs: Sequence[Run], limit: int = -1) -> str:
    return json.dumps(answer.document(runs, limit), indent=1, allow_nan=False) + "\n"


def as_csv(answer: Answer, limit: int = -1) -> str:
    rows = limited(answer.rows, limit)
    return spreadsheet.as_csv(rows.with_columns(flat(column) for column in rows.iter_columns()))


def flat(column: pl.Series) -> pl.Series:
    """A list as one cell: texts and numbers with commas between them, anything else as JSON."""
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
    """Returns null for a number that JSON cannot express."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
