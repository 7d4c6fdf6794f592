"""Which runs a trace is of, as emit_pyroscope named them: by a mark in it, whose text ends in the label run_id."""

from __future__ import annotations

import polars as pl

from opspan.labels import PYROSCOPE_RUN

_name = pl.col("name").cast(pl.String)


def pyroscope_runs(ranges: pl.DataFrame) -> list[str]:
    """Each once, in the order of the trace."""
    marks = ranges.filter(pl.col("is_mark").fill_null(value=False)).filter(_name.str.starts_with(PYROSCOPE_RUN))
    return marks.select(_name.str.strip_prefix(PYROSCOPE_RUN).unique(maintain_order=True)).to_series().to_list()
