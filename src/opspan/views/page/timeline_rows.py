"""Which row of its lane a shape is drawn on: below those that it lies in, as deep as they are nested.

    rows_of(shapes) -> for each shape (lane, start_ns, length_ns) its row, from 0

What overlaps another shape of its lane in part stands below all that nests, with what nests in it. No two shapes of a
row overlap, but for those of the last row: there is everything for which a lane has no more rows.
"""

from __future__ import annotations

import polars as pl

from opspan import native
from opspan.analysis.spans import bounded
from opspan.views.lanes import columns_to_nest

_col = pl.col
MOST_ROWS = 96  # of a lane; functions of Python are about as deep as that
LAST_ROW = MOST_ROWS - 1
_MOST_LAYERS = 16


def rows_of(shapes: pl.DataFrame) -> pl.Series:
    end_ns = bounded(_col("start_ns").cast(pl.Int128) + _col("length_ns"))
    end_ns = end_ns if _may_be_past(shapes) else _col("start_ns") + _col("length_ns")
    left = columns_to_nest(shapes.select("start_ns", end_ns.alias("end_ns"), track="lane"))
    nested = native.nest(left, 0)
    rows, overlaps = nested["depth"], nested["overlaps"]
    if overlaps.any():
        rows = _in_layers(left, rows, overlaps)
    return rows.clip(upper_bound=LAST_ROW).cast(pl.UInt32)


def _may_be_past(shapes: pl.DataFrame) -> bool:
    start, length = shapes["start_ns"].max(), shapes["length_ns"].max()
    return isinstance(start, int) and isinstance(length, int) and start + length > 2**63 - 1


def _in_layers(shapes: pl.DataFrame, rows: pl.Series, overlaps: pl.Series) -> pl.Series:
    """With those that overlap below the others, nested for themselves; and so on with what overlaps those."""
    left = shapes.with_columns(row=rows, shape=pl.int_range(pl.len(), dtype=pl.UInt32), first=pl.lit(0, pl.UInt32))
    for _ in range(_MOST_LAYERS):
        lower = left.filter(~overlaps).group_by("tid").agg(below=_col("row").max() + 1)
        left = left.filter(overlaps).join(lower, on="tid", how="left", maintain_order="left")
        if not left.height:
            return rows
        nested = native.nest(left, 0)
        left = left.with_columns(row=_col("below") + nested["depth"]).drop("below")
        rows = rows.scatter(left["shape"], left["row"])
        overlaps = nested["overlaps"]
    return rows.scatter(left["shape"].filter(overlaps), LAST_ROW)
