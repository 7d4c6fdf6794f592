"""The answer for a report that `vtune -report` printed, with all its columns: `opspan table report.csv`."""

from __future__ import annotations

import polars as pl

from opspan.views.answer import Answer
from opspan.views.fields import Field


def answer(rows: pl.DataFrame) -> Answer:
    """Returns an answer whose first column has names. On a narrow terminal the last columns are dropped first."""
    first, *others = rows.columns
    numbers = [Field(name, name, "text", rank=place) for place, name in enumerate(others)]
    return Answer("vtune_report", rows, [Field(first, first, "name"), *numbers])
