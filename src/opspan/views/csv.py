"""A CSV file for spreadsheets: a row for each range, as in `ranges` of the analysis database (docs/sqlite.md)."""

from __future__ import annotations

from pathlib import Path

from opspan.analysis import Analysis
from opspan.views.relational import relational
from opspan.views.spreadsheet import write_csv


def write(analysis: Analysis, path: Path) -> list[str]:
    write_csv(relational(analysis)["ranges"], path)
    trace = analysis.tables
    rest = [f"{len(frame):,} rows of {name}" for name, frame in trace.frames.items() if name != "ranges" and len(frame)]
    return [f"A .csv has ranges only; .sqlite and .parquet have {', '.join(rest)} as well"] if rest else []
