"""Adds columns to rows: the names of each row's range, and the lines of the program that called the range.

lines_of(trace) -> the lines of each row of ranges and of work, or None if the trace has no lines
with_names(trace, lines, rows) -> rows with op, module and phase; also with lines if `lines` is not None
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.source_lines import knows_lines, line_texts
from opspan.tables import Tables

Lines = tuple[pl.Series, pl.Series]
_NAMES = {"op": "name", "module": "module", "phase": "phase"}


def lines_of(trace: Tables) -> Lines | None:
    return line_texts(trace) if knows_lines(trace) else None


def with_names(trace: Tables, lines: Lines | None, rows: pl.DataFrame) -> pl.DataFrame:
    """Adds the names of the range whose row number is in the column `range`. Adds the lines of the work whose row
    number is in the column `work`; where this is null or missing, adds the lines of the range."""
    ranges = trace.ranges
    rows = rows.with_columns(ranges[column].gather(rows["range"]).alias(name) for name, column in _NAMES.items())
    if lines is None:
        return rows
    of_ranges, of_work = lines
    of_rows = of_ranges.gather(rows["range"])
    if "work" in rows.columns:
        of_rows = of_rows.zip_with(rows["work"].is_null(), of_work.gather(rows["work"]))
    return rows.with_columns(of_rows)
