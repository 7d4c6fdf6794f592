"""Numbers ranges as torch.profiler's `External id` does, so that other tools find the range of a call or of a
kernel."""

from __future__ import annotations

import polars as pl

IS_ANNOTATION = pl.col("source") == "user"  # ranges that the user made and opspan recorded


def external_ids(ranges: pl.DataFrame) -> pl.Series:
    """Returns a number for each op and annotation. The number of an op is its op id. Numbers of annotations are above
    all op ids."""
    above = pl.int_range(pl.len()) + pl.col("op_id").max().fill_null(0) + 1
    return ranges.select(pl.coalesce("op_id", pl.when(IS_ANNOTATION).then(above))).to_series()
