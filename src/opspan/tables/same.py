"""Whether a column has the same value in all rows. Many have, and then much need not be done for each of them."""

from __future__ import annotations

import polars as pl


def is_one(rows: pl.DataFrame, name: str) -> bool:
    """All rows have the same value: most traces are of one process, and one device."""
    return is_same(name, rows)


def is_same(name: str, *frames: pl.DataFrame) -> bool:
    """All rows of all frames have the same value."""
    column = pl.col(name)
    # As an expression, for which a literal need not become a column.
    asked = (column.min().alias("low"), column.max().alias("high"), column.null_count().alias("nulls"))
    found = {frame.select(asked).row(0) for frame in frames}
    low, high, nulls = found.pop()
    return not found and low is not None and low == high and nulls == 0
