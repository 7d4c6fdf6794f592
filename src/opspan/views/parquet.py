"""The trace's own tables as a folder of Parquet files: what Trace.save writes, as an export.

The columns that the analysis adds are not written: they are quickly computed again, and they hold row numbers, which
change when traces are put side by side.
"""

from __future__ import annotations

from pathlib import Path

from opspan.analysis import Analysis
from opspan.tables import storage


def write(analysis: Analysis, path: Path) -> list[str]:
    storage.write(analysis.tables, path)
    return []
