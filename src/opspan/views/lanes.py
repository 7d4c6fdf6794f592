"""Puts a span that overlaps another span of its track on a lane beside the track, for formats whose spans must nest."""

from __future__ import annotations

import polars as pl

from opspan import native
from opspan.analysis.nest import trace_end_ns

MOST = 16  # most lanes of a track, because any number of spans in a file may overlap


def lanes(spans: pl.DataFrame) -> pl.Series:
    """Returns the lane of each span: 0 if it nests on its track, 1 if it nests on the first lane beside it, and so on.
    Spans that overlap even on the last lane stay there. `spans`: track, start_ns, end_ns."""
    numbers = pl.zeros(spans.height, dtype=pl.UInt32, eager=True)
    end_ns = trace_end_ns(spans)
    left = columns_to_nest(spans).with_row_index("row")
    for lane in range(1, MOST):
        left = left.filter(native.nest(left, end_ns)["overlaps"])
        if not left.height:
            break
        numbers[left["row"]] = lane
    return numbers


def columns_to_nest(spans: pl.DataFrame) -> pl.DataFrame:
    return spans.select(
        "start_ns",
        "end_ns",
        tid=pl.col("track").cast(pl.Int64),
        domain=pl.lit(None, pl.UInt32),
        is_async=False,
        is_mark=False,
    )
