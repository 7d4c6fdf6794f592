"""Assigns lanes, for formats in which the spans of a track must nest. A span that partly overlaps another span of its
track is on an extra lane beside the track."""

from __future__ import annotations

import polars as pl

from opspan import native
from opspan.analysis.nest import trace_end_ns
from opspan.row_numbers import ROW_NUMBER

MOST = 16  # maximum number of lanes of a track; without a limit, a file could need any number of lanes


def lanes(spans: pl.DataFrame) -> pl.Series:
    """Returns the lane of each span: 0 if the span is on the track itself, 1 if it is on the first extra lane, and so
    on. A span that overlaps others on all lanes is on the last lane. `spans` has the columns track, start_ns and
    end_ns."""
    numbers = pl.zeros(spans.height, dtype=ROW_NUMBER, eager=True)
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
        domain=pl.lit(None, ROW_NUMBER),
        is_async=False,
        is_mark=False,
    )
