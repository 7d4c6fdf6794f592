"""Groups rows by the op, module, phase, step or function of the range that they belong to."""

from __future__ import annotations

import polars as pl

from opspan.analysis import Analysis
from opspan.analysis.functions import names_of_functions
from opspan.views.fields import Field

OF_RANGES = ("op", "module", "phase", "step", "function")


def names(analysis: Analysis, by: str, ranges: pl.Series) -> pl.Series:
    """Returns the name of the op, module, ... (as `by` says) of each range, or null. `ranges` has row numbers of
    ranges. The names stay categorical, because callers show only a few of them as strings."""
    trace = analysis.complete
    if by == "function":
        return names_of_functions(trace.ranges, trace.functions).gather(ranges)
    return trace.ranges["name" if by == "op" else by].gather(ranges).alias(by)


def field(title: str, by: str) -> Field:
    return Field(by, f"{title} ({by})", "name", none="(in none)")
