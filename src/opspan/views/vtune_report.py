"""A report that `vtune -report` printed, with the columns that it has: `opspan table report.csv`."""

from __future__ import annotations

import polars as pl

from opspan.views.answer import Answer, Shown, texts


def answer(rows: pl.DataFrame) -> Answer:
    """The first column has names. Of a narrow terminal's columns the last go first."""
    first, *others = rows.columns
    shown = (
        Shown(first, first, texts, is_name=True),
        *(Shown(name, name, texts, at) for at, name in enumerate(others)),
    )
    return Answer("vtune_report", rows, shown)
