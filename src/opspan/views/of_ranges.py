"""Groups rows that belong to ranges by the op, module, phase, step or function of the range."""

from __future__ import annotations

import polars as pl

from opspan.analysis import Analysis
from opspan.views.fields import Field

OF_RANGES = ("op", "module", "phase", "step", "function")


def names(analysis: Analysis, by: str, ranges: pl.Series) -> pl.Series:
    """Returns, for each of these rows of ranges, the name of its op, module, ..., or null. The names are not yet
    strings, because callers convert only the few names that they show."""
    trace = analysis.complete
    if by == "function":
        return trace.functions["name"].gather(trace.ranges["function"].gather(ranges)).alias(by)
    return trace.ranges["name" if by == "op" else by].gather(ranges).alias(by)


def field(title: str, by: str) -> Field:
    return Field(by, f"{title} ({by})", "name", none="(in none)")
