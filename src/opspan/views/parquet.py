"""The trace's own tables as a folder of Parquet files, as Trace.save writes them.

The columns that the analysis adds are not written: they are quick to compute again, and they hold row numbers, which
change when traces are put together.
"""

from __future__ import annotations

from pathlib import Path

from opspan.analysis import Analysis
from opspan.tables import storage


def write(analysis: Analysis, path: Path) -> list[str]:
    storage.write(analysis.tables, path)
    return []
