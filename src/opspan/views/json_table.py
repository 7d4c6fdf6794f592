"""The table by name as JSON: what `opspan table --format json` prints."""

from __future__ import annotations

from pathlib import Path

from opspan.analysis import attribute
from opspan.trace import Trace
from opspan.views import table


def write(trace: Trace, path: Path) -> list[str]:
    attributed = attribute(trace)
    found = table.table_of(attributed, "name")
    path.write_text(table.as_json(attributed, found), encoding="utf-8")
    return list(found.notes)
