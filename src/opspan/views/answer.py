"""An Answer is the result of a verb (a subcommand). JSON and CSV have all its columns; text has only some of them.

All verbs share this code to print an answer as text, JSON or CSV. The lines below an answer say how much device
time could be attributed to ranges (and more: `Coverage`), and which problems the files had.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import polars as pl

from opspan.analysis import Coverage
from opspan.analysis.coverage import Share
from opspan.printable import plural, printable
from opspan.tables import Tables
from opspan.text_columns import Layout, fitted
from opspan.views import spreadsheet
from opspan.views.fields import Field, shares_note

SCHEMA = 1  # version of the JSON that docs/json.md describes
ROWS_OF_TEXT = 100
_ALL = 10_000  # maximum width of a line in characters, if the layout has no width
_MOST_ISSUES = 50


class AnalysedRun(Protocol):
    """An analysed trace, or the sums over several traces."""

    @property
    def tables(self) -> Tables: ...
    @property
    def coverage(self) -> Coverage: ...


@dataclass(frozen=True)
class Answer:
    name: str
    rows: pl.DataFrame
    fields: Sequence[Field]
    notes: tuple[str, ...] = ()
    exit_code: int = 0
    # A function that turns the rows into lines of text that are not a table. None: the rows are printed as a table.
    blocks: Callable[[pl.DataFrame, Layout], list[str]] | None = None
    # A function that makes notes to fit the width of a line. None: `notes` are wrapped.
    fitted_notes: Callable[[Layout], list[str]] | None = None
    notes_in_json: ClassVar[bool] = True
    lacking: tuple[str, ...] = ()  # sentences on data that the trace lacks; they are printed to standard error

    def lines(self, limit: int, layout: Layout) -> tuple[list[str], list[str]]:
        """Returns the first `limit` rows (-1: all) as lines of text, and sentences on the columns that did not fit."""
        rows = limited(self.rows, limit)
        if self.blocks is not None:
            return self.blocks(rows, layout), []
        if not (rows.height and self.fields):
            return [], []
        lines, left_out = fitted([field.column(rows) for field in self.fields], layout.width or _ALL)
        return lines, [*left_out, *shares_note(self.fields)]

    def document(self, runs: Sequence[AnalysedRun], limit: int) -> dict[str, Any]:
        """Returns the answer as the document that is printed as JSON (docs/json.md)."""
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


def as_json(answer: Answer, runs: Sequence[AnalysedRun], limit: int = -1) -> str:
    return json.dumps(answer.document(runs, limit), indent=1, allow_nan=False) + "\n"


def as_csv(answer: Answer, limit: int = -1) -> str:
    rows = limited(answer.rows, limit)
    return spreadsheet.as_csv(rows.with_columns(flat(column) for column in rows.iter_columns()))


def flat(column: pl.Series) -> pl.Series:
    """Writes each list as one text. Lists of structs become JSON; the items of other lists are joined with commas."""
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
    """Returns null for NaN and infinities, which JSON cannot express."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


# --- the lines below an answer


def footer_lines(run: AnalysedRun, name: str = "") -> list[str]:
    """Returns sentences on the coverage, then a line for each of the worst issues. If two runs are compared, `name` is
    the name of the run, and each line begins with this name."""
    lines = [*coverage_lines(run.coverage), *issue_lines(run.tables)]
    return [f"{name}: {line}" if name else line for line in lines]


def coverage_lines(coverage: Coverage) -> list[str]:
    return [f"Coverage: {line}" for line in coverage.lines()]


def issue_lines(trace: Tables) -> list[str]:
    lines = []
    worst = trace.issues.sort(pl.col("severity").to_physical(), descending=True, maintain_order=True)
    if worst.height > _MOST_ISSUES:
        worst = _folded(worst)
    for issue in worst.head(_MOST_ISSUES).iter_rows(named=True):
        where = f" [{issue['path']}]" if issue["path"] else ""
        lines.append(f"Issue ({issue['severity']}): {issue['message']}. {issue['advice']}{where}")
    if worst.height > _MOST_ISSUES:
        more = plural(worst.height - _MOST_ISSUES, "more issue")
        lines.append(f"{more}: `--format json` and trace.issues have all of them")
    return [printable(line) for line in lines]


def _folded(issues: pl.DataFrame) -> pl.DataFrame:
    """Merges issues that have the same code, severity and advice. Keeps the message and the path of the first one."""
    same = issues.group_by("code", "severity", "advice", maintain_order=True).agg(
        pl.col("message", "path").first(), files=pl.len()
    )
    others = pl.format("{} [and {} more like it]", "message", pl.col("files") - 1)
    return same.with_columns(message=pl.when(pl.col("files") > 1).then(others).otherwise("message"))


def coverage_values(coverage: Coverage) -> dict[str, Any]:
    """Returns the figures of the coverage as values for JSON."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(coverage):
        value = getattr(coverage, field.name)
        if isinstance(value, Share):
            value = {**dataclasses.asdict(value), "fraction": value.fraction}
        values[field.name] = value
    return {**values, "backward": coverage.backward, "linked": coverage.linked}
