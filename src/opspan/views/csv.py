"""Every range in a row, as in the table `ranges` of the analysis database (docs/sqlite.md), for spreadsheets."""

from __future__ import annotations

from pathlib import Path

from opspan.analysis import Analysed
from opspan.views.relational import relational
from opspan.views.spreadsheet import write_csv


def write(found: Analysed, path: Path) -> list[str]:
    write_csv(relational(found)["ranges"], path)
    trace = found.tables
    rest = [f"{len(frame):,} rows of {name}" for name, frame in trace.frames.items() if name != "ranges" and len(frame)]
    return [f"A .csv has ranges only; .sqlite and .parquet have {', '.join(rest)} as well"] if rest else []
