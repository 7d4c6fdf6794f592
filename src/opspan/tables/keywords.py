"""Finds the keyword values of ranges, which a capture has in its payloads: {"keywords": "{\\"grid\\": \\"g\\"}"}."""

from __future__ import annotations

import polars as pl


def keywords_of(ranges: pl.DataFrame) -> pl.Expr | None:
    """Returns the keyword values of each range as a JSON object, or None if no range has any."""
    has_keywords = pl.col("payload_json").str.contains('"keywords": "', literal=True)
    if not ranges.select(has_keywords.any()).item():
        return None
    return pl.when(has_keywords).then(pl.col("payload_json").str.json_path_match("$.keywords"))
