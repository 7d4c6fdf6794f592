"""What reports say of the names (the table metrics of a trace) as further columns of the table by name."""

from __future__ import annotations

import math

import polars as pl

from opspan.printable import printable
from opspan.tables import Tables
from opspan.tables.metrics import wide

_GAP = "  "  # as in torch's table


def with_metrics(rows: pl.DataFrame, trace: Tables) -> pl.DataFrame:
    """The rows with a column a metric, null where the report has not got the name."""
    if not trace.metrics.height:
        return rows
    found = wide(trace.metrics).with_columns(pl.col("rank").cast(pl.Int64))
    taken = {title: f"{title} (report)" for title in set(found.columns[2:]) & set(rows.columns)}
    return rows.join(found.rename(taken), on=["rank", "name"], how="left", maintain_order="left")


def beside(text: str, columns: pl.DataFrame) -> str:
    """torch's table with these columns behind its own."""
    if not columns.width:
        return text
    lines = text.split("\n")
    end = lines.index(lines[0], 3)  # titles, and rows, stand between lines that are alike
    for name in columns.columns:
        title = printable(name)
        cells = [cell(value) for value in columns[name].head(end - 3).to_list()]
        width = max(len(entry) for entry in (title, *cells))
        rule = "-" * width
        for place, entry in enumerate([rule, title, rule, *cells, rule]):
            lines[place] += f"{entry:>{width}}{_GAP}"
    return "\n".join(lines)


def cell(value: float | None) -> str:
    """A value as text."""
    if value is None or not math.isfinite(value):
        return "--" if value is None else str(value)
    return f"{value:,.0f}" if value == int(value) and abs(value) >= 1 else f"{value:.6g}"
