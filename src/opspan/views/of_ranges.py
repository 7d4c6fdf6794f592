"""Rows by what they are in, where what they are about belongs to ranges: the op, module, phase, step or function."""

from __future__ import annotations

import polars as pl

from opspan.analysis import Analysis
from opspan.views.fields import Field

OF_RANGES = ("op", "module", "phase", "step", "function")


def names(analysis: Analysis, by: str, ranges: pl.Series) -> pl.Series:
    """Returns, for each of these rows of ranges, the name of the op, module, ... that it is in; null: it is in none.
    The names are not yet strings: only those that are left at the end are worth the conversion."""
    trace = analysis.complete
    if by == "function":
        return trace.functions["name"].gather(trace.ranges["function"].gather(ranges)).alias(by)
    return trace.ranges["name" if by == "op" else by].gather(ranges).alias(by)


def field(title: str, by: str) -> Field:
    return Field(by, f"{title} ({by})", "name", none="(in none)")
