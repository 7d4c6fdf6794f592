"""The table by name as JSON: what `opspan table --format json` prints."""

from __future__ import annotations

from pathlib import Path

from opspan.trace import Trace
from opspan.views import table


def write(trace: Trace, path: Path) -> list[str]:
    asked = table.Asked()
    attributed = table.prepared(trace, asked)
    found = table.table_of(attributed, asked)
    path.write_text(table.as_json(attributed, found), encoding="utf-8")
    return list(found.notes)
