"""Loading a capture made by hand, and looking at traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

import opspan
from builders.capture import Capture

# The sentence after the name of a limit that was exceeded.
OVER_BUDGET = r"than are allowed \(.+\); if you trust the file, OPSPAN_BUDGET=10 allows ten times as much"


def load(made: Capture, folder: Path) -> opspan.Trace:
    return opspan.load(made.write(folder / "100-1.opspan"))


def rows(frame: pl.DataFrame, *columns: str) -> list[tuple]:
    return frame.select(columns).rows()


def codes(trace: opspan.Trace) -> dict[str, int]:
    """How often each issue was found."""
    return dict(trace.issues.group_by(pl.col("code").cast(pl.String)).agg(pl.col("count").sum()).iter_rows())


def row(frame: pl.DataFrame, name: str) -> dict[str, Any]:
    """The one row of that name."""
    (found,) = frame.filter(pl.col("name") == name).iter_rows(named=True)
    return found
