"""Finds the runs that emit_pyroscope labelled in a trace: each of them has a mark with its label run_id."""

from __future__ import annotations

import polars as pl

from opspan.labels import PYROSCOPE_RUN

_name = pl.col("name").cast(pl.String)


def pyroscope_runs(ranges: pl.DataFrame) -> list[str]:
    """Returns the label of each run once, in the order of the trace."""
    marks = ranges.filter(pl.col("is_mark").fill_null(value=False)).filter(_name.str.starts_with(PYROSCOPE_RUN))
    return marks.select(_name.str.strip_prefix(PYROSCOPE_RUN).unique(maintain_order=True)).to_series().to_list()
