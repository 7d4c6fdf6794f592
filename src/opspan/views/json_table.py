"""The table by name as JSON: what `opspan table --format json` prints."""

from __future__ import annotations

from pathlib import Path

from opspan.analysis import Analysis
from opspan.views import table


def write(analysis: Analysis, path: Path) -> list[str]:
    by_name = table.table_of(analysis, table.Asked())
    path.write_text(table.as_json(analysis, by_name), encoding="utf-8")
    return list(by_name.notes)
