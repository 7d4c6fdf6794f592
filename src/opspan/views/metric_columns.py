"""Adds metrics from tools' reports (the table `metrics` of a trace) as columns of the table that is grouped by name."""

from __future__ import annotations

import math

import polars as pl

from opspan.printable import printable
from opspan.tables import Tables
from opspan.tables.metrics import wide
from opspan.text_columns import TextColumn


def with_metrics(rows: pl.DataFrame, trace: Tables) -> pl.DataFrame:
    """Adds a column for each metric. The value is null for names that are not in the report."""
    metrics = wide(trace.metrics).with_columns(pl.col("rank").cast(pl.Int64))
    taken = {title: f"{title} (report)" for title in set(metrics.columns[2:]) & set(rows.columns)}
    return rows.join(metrics.rename(taken), on=["rank", "name"], how="left", maintain_order="left")


def as_text(metrics: pl.DataFrame) -> list[TextColumn]:
    """Returns columns of a text table. They have rank 1, so that columns with a higher rank are dropped first if there
    is little room."""
    return [
        TextColumn(printable(column.name), [_cell(value) for value in column.to_list()], rank=1) for column in metrics
    ]


def _cell(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return "--" if value is None else str(value)
    return f"{value:,.0f}" if value == int(value) and abs(value) >= 1 else f"{value:.6g}"
