"""Numbers for ranges, by which other tools find the range of a call or of work: torch.profiler's `External id`."""

from __future__ import annotations

import polars as pl

IS_ANNOTATION = pl.col("source") == "user"  # a user's own range that opspan recorded


def external_ids(ranges: pl.DataFrame) -> pl.Series:
    """Returns a number for each op and annotation: the op id or, for annotations, a number above all op ids."""
    above = pl.int_range(pl.len()) + pl.col("op_id").max().fill_null(0) + 1
    return ranges.select(pl.coalesce("op_id", pl.when(IS_ANNOTATION).then(above))).to_series()
