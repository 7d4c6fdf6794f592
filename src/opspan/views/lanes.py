"""Spans that overlap others of their track, on lanes beside it: for formats in which those of a track are nested."""

from __future__ import annotations

import polars as pl

from opspan import native
from opspan.analysis.nest import trace_end_ns

MOST = 16  # of a track: a file may have as many spans at once as it likes


def lanes(spans: pl.DataFrame) -> pl.Series:
    """`spans`: track, start_ns, end_ns. 0 for what is nested on its track, 1 for what is nested beside it, and so on;
    what overlaps even on the last lane has that one."""
    found = pl.zeros(spans.height, dtype=pl.UInt32, eager=True)
    end_ns = trace_end_ns(spans)
    left = columns_to_nest(spans).with_row_index("row")
    for lane in range(1, MOST):
        left = left.filter(native.nest(left, end_ns)["overlaps"])
        if not left.height:
            break
        found[left["row"]] = lane
    return found


def columns_to_nest(spans: pl.DataFrame) -> pl.DataFrame:
    return spans.select(
        "start_ns",
        "end_ns",
        tid=pl.col("track").cast(pl.Int64),
        domain=pl.lit(None, pl.UInt32),
        is_async=False,
        is_mark=False,
    )
