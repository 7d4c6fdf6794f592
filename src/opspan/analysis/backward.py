"""Compares forward ops with their backward.

    pairs(ranges) -> a row for each combination of an op, its input sizes and its linked backward op:
        op, sizes, backward: name and input sizes of the forward op, and name of the backward op.
        count: how many pairs of a forward op and a backward op the row sums up.
        forward_ns: time of the forward ops.
        backward_ns: time of the backward ops.
        backward_device_ns: device time of the backward ops and all ranges inside.

Rows with the largest backward_device_ns come first. Call `autograd` and `device_time` first.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.autograd import LINKED
from opspan.analysis.averages import DURATION

_col = pl.col
_SUMS = ("forward_ns", "backward_ns", "backward_device_ns")


def pairs(ranges: pl.DataFrame) -> pl.DataFrame:
    linked = ranges.select(
        "forward", "link", backward="name", backward_ns=DURATION, backward_device_ns="device_ns"
    ).filter(_col("link") == LINKED)
    forward = ranges.select(op="name", sizes="sizes", forward_ns=DURATION)[linked["forward"]]
    rows = pl.concat([forward, linked], how="horizontal").group_by("op", "sizes", "backward", maintain_order=True)
    sums = rows.agg(pl.len().cast(pl.Int64).alias("count"), _col(_SUMS).sum())
    return sums.sort("backward_device_ns", "backward_ns", descending=True, maintain_order=True)
