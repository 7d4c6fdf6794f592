"""The table by name as JSON: what `opspan table --format json` prints."""

from __future__ import annotations

from pathlib import Path

from opspan.analysis import attribute
from opspan.trace import Trace
from opspan.views import table


def write(trace: Trace, path: Path) -> list[str]:
    attributed = attribute(trace)
    path.write_text(table.as_json(attributed, table.table_of(attributed, "name")), encoding="utf-8")
    return []
