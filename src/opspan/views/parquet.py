"""The tables of a trace as a folder of Parquet files. Trace.save writes the same form.

The columns that the analysis adds are not written: they are quick to compute again, and they contain row numbers, which
change when several traces are merged.
"""

from __future__ import annotations

from pathlib import Path

from opspan.analysis import Analysis
from opspan.tables import storage


def write(analysis: Analysis, path: Path) -> list[str]:
    storage.write(analysis.tables, path)
    return []
