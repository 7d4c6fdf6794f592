"""Loading a capture made by hand, and looking at it."""

from __future__ import annotations

from pathlib import Path

import polars as pl

import opspan
from builders import Capture


def load(made: Capture, folder: Path) -> opspan.Trace:
    return opspan.load(made.write(folder / "100-1.opspan"))


def rows(frame: pl.DataFrame, *columns: str) -> list[tuple]:
    return frame.select(columns).rows()
