"""The table by name as JSON: what `opspan table --format json` prints."""

from __future__ import annotations

from pathlib import Path

from opspan.analysis import Analysis
from opspan.questions import Options
from opspan.views.answer import as_json
from opspan.views.table import table_of


def write(analysis: Analysis, path: Path) -> list[str]:
    by_name = table_of(analysis, Options())
    path.write_text(as_json(by_name, [analysis]), encoding="utf-8")
    return list(by_name.notes)
