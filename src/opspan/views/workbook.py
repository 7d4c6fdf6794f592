"""An Excel workbook: a sheet for each answer, such as findings, ops and kernels. docs/json.md describes the columns.

Texts stay texts: Excel does not read them as formulas, links or numbers. Excel's numbers are doubles. So a column with
integers that a double cannot hold is written as text, and times count from the begin of the trace.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from opspan.analysis import Analysis
from opspan.errors import MissingPackage
from opspan.printable import printable, shortened
from opspan.questions import Options, question
from opspan.tables import Tables
from opspan.views import answer, answer_columns
from opspan.views.contents import holds
from opspan.views.table import table_of

if TYPE_CHECKING:
    from xlsxwriter import Workbook

# Maximum number of rows in a sheet: Excel allows 1,048,576, but so many take minutes to write and to open.
MOST_ROWS = 100_000
MOST_CHARACTERS = 32_767  # maximum number of characters in a cell, in UTF-16 units
_LONGEST_TITLE = 200
_EXACT = 2**53
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_WIDE, _NARROW = 320, 110  # widths of columns in pixels
# Without the first three options, xlsxwriter would write some texts as formulas, links or numbers.
_OPTIONS = {"strings_to_formulas": False, "strings_to_urls": False, "strings_to_numbers": False, "in_memory": True}
# xlsxwriter writes a text of this form as raw XML. A space in front prevents this.
_XML = r"(?s)^<r>.*</r>$"
_col = pl.col


def _table(by: str) -> Callable[[Analysis], pl.DataFrame]:
    def rows_of(analysis: Analysis) -> pl.DataFrame:
        has_memory = by != "kernel" and by != "stream" and bool(analysis.tables.memory.height)
        rows = table_of(analysis, Options(by, memory=has_memory)).rows
        key = {"shape": "sizes"}.get(by, by)
        is_known = key not in rows.columns or rows[key].count()
        return rows if is_known else rows.clear()  # no row has a module (or a step), so there is no sheet

    return rows_of


def _answer(name: str) -> Callable[[Analysis], pl.DataFrame]:
    return lambda analysis: question(name).rows_of(analysis, Options())


# Sheet -> the section of docs/json.md that describes its columns ("": none), and a function that makes its rows.
_SHEETS: dict[str, tuple[str, Callable[[Analysis], pl.DataFrame]]] = {
    "findings": ("findings", _answer("findings")),
    "ops": ("by name, shape, stack", _table("name")),
    "shapes": ("by name, shape, stack", _table("shape")),
    "modules": ("by module, step, phase, function", _table("module")),
    "phases": ("by module, step, phase, function", _table("phase")),
    "steps": ("steps", _answer("steps")),
    "kernels": ("by kernel, stream", _table("kernel")),
    "streams": ("by kernel, stream", _table("stream")),
    **{name: (name, _answer(name)) for name in ("idle", "launches", "waits", "comm", "flops", "memory")},
    "issues": ("", lambda analysis: analysis.tables.issues),
}
_FORMATS = {"ns": "#,##0", "bytes": "#,##0", "share": "0.0%"}  # unit of a column -> how Excel writes its numbers


def write(analysis: Analysis, path: Path) -> list[str]:
    if find_spec("xlsxwriter") is None:
        raise MissingPackage("an Excel workbook needs xlsxwriter: pip install 'opspan[excel]'")
    import xlsxwriter

    file = io.BytesIO()
    notes, empty = [], []
    with xlsxwriter.Workbook(file, _OPTIONS) as book:
        book.set_properties({"created": _recording_time(analysis.tables)})
        _summary(book, analysis)
        for name, (section, rows_of) in _SHEETS.items():
            rows = rows_of(analysis)
            if rows.height:
                notes += _sheet(book, name, _relative(rows, analysis.tables), _formats(section))
            else:
                empty.append(name)
    path.write_bytes(file.getvalue())
    if len(empty) == len(_SHEETS):
        return [f"No sheet but the summary has rows. {holds(analysis.tables)}; a .sqlite or .parquet has all of that"]
    if empty:
        notes.append(f"There are no sheets for {', '.join(empty)}, which have no rows")
    return [*notes, "A .xlsx has sums; .csv has every range, .sqlite and .parquet have all that is in the trace"]


def _recording_time(trace: Tables) -> datetime:
    """Returns the time of the recording. The workbook says that it was created then, so that equal traces make equal
    files."""
    since = timedelta(microseconds=(trace.origin_utc_ns or 0) // 1000)
    return (_EPOCH + max(since, timedelta(days=3653))).replace(tzinfo=None)


def _summary(book: Workbook, analysis: Analysis) -> None:
    summary = question("summary").answer_of(analysis, Options())
    sheet = book.add_worksheet("summary")
    sheet.set_column_pixels(0, 1, _WIDE // 2)
    formats = {name: book.add_format({"num_format": written}) for name, written in _formats("summary").items()}
    number = 0
    for name, value in summary.rows.row(0, named=True).items():
        if value is not None:
            sheet.write(number, 0, name)
            sheet.write(number, 1, value, formats.get(name))
            number += 1
    for line in summary.notes:
        number += 1
        sheet.write_string(number, 0, line)


def _formats(section: str) -> dict[str, str]:
    """Returns the columns of a section of docs/json.md that have a unit, with the format of that unit."""
    units = answer_columns.units(section) if section else {}
    return {name: _FORMATS[unit] for name, unit in units.items() if unit}


def _sheet(book: Workbook, name: str, rows: pl.DataFrame, formats: dict[str, str]) -> list[str]:
    notes = []
    if (more := rows.height - MOST_ROWS) > 0:
        notes.append(f"The last {more:,} rows of {name} were left out: a sheet has {MOST_ROWS:,} here. JSON has all")
        rows = rows.head(MOST_ROWS)
    rows = rows.with_columns(_cells(answer.flat(column)) for column in rows.iter_columns())
    rows, cut = _cut(rows)
    rows = rows.with_columns(_col(pl.String).str.replace(_XML, " ${0}"))
    if cut:
        notes.append(f"{cut:,} texts of {name} were cut: a cell has {MOST_CHARACTERS:,} characters")
    rows = rows.rename(dict(zip(rows.columns, _titles(rows.columns), strict=True)))
    is_text = {column.name: column.dtype == pl.String for column in rows.iter_columns()}
    rows.write_excel(
        book,
        name,
        column_formats={title: formats[title] for title, text in is_text.items() if title in formats and not text},
        dtype_formats={dtype: "General" for dtype in rows.dtypes if dtype.is_numeric()},
        column_widths={title: _WIDE if text else _NARROW for title, text in is_text.items()},
        freeze_panes=(1, 0),
    )
    return notes


def _relative(rows: pl.DataFrame, trace: Tables) -> pl.DataFrame:
    begin = trace.begin_ns("ranges", "functions", "calls", "work") or 0
    return rows.with_columns(_col(name) - begin for name in ("start_ns", "end_ns") if name in rows.columns)


def _cells(column: pl.Series) -> pl.Series:
    """Converts a column to texts, booleans, and numbers that Excel can hold."""
    if column.dtype.is_float():
        return column.set(~column.is_finite(), None)
    if column.dtype.is_integer():
        return column.cast(pl.String) if (column.cast(pl.Int128).abs() > _EXACT).any() else column
    return column if column.dtype in (pl.Boolean, pl.Null) else column.cast(pl.String)


def _cut(rows: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    count = 0
    for column in rows.iter_columns():
        if column.dtype != pl.String:
            continue
        long = column.filter((column.str.len_bytes() > MOST_CHARACTERS).fill_null(value=False)).unique()
        texts = {text: text.encode("utf-16-le")[: 2 * MOST_CHARACTERS].decode("utf-16-le", "ignore") for text in long}
        texts = {text: cut for text, cut in texts.items() if cut != text}
        if texts:
            count += int(column.is_in(list(texts)).sum())
            rows = rows.with_columns(column.replace(texts))
    return rows, count


def _titles(names: list[str]) -> list[str]:
    """Returns printable titles that are distinct even if case is ignored. Only names of columns that
    come from a report can need a change."""
    titles: dict[str, str] = {}
    for name in names:
        title = shown = re.sub(_XML, r" \g<0>", printable(shortened(name, _LONGEST_TITLE)))
        number = 1
        while shown.lower() in titles:
            number += 1
            shown = f"{title} ({number})"
        titles[shown.lower()] = shown
    return list(titles.values())
