"""What rows of an answer can be by, where what they are about belongs to ranges."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from opspan.analysis import Analysis
from opspan.errors import UsageError
from opspan.views.answer import Shown, texts

OF_RANGES = ("op", "module", "phase", "step", "function")


def check(by: str, known: Sequence[str]) -> None:
    if by not in known:
        raise UsageError(f"there is no answer by {by!r}; expected one of {', '.join(known)}")


def names(analysis: Analysis, by: str, ranges: pl.Series) -> pl.Series:
    """For each of these rows of ranges the name of what it is in by that; null: it is in none. A text is made of it
    when it is known which are left."""
    trace = analysis.complete
    if by == "function":
        return trace.functions["name"].gather(trace.ranges["function"].gather(ranges)).alias(by)
    return trace.ranges["name" if by == "op" else by].gather(ranges).alias(by)


def shown(title: str, by: str) -> Shown:
    return Shown(f"{title} ({by})", by, or_none, is_name=True)


def or_none(rows: pl.DataFrame, column: str) -> list[str]:
    return [text or "(in none)" for text in texts(rows, column)]
