"""Finds which ops need a copy. The ops around a copy that only cast or copy are called by the op that needs it.

outermost_copies(run, range_) -> for each copy, the outermost op around it that only casts or copies, such as aten::to
copy_causes(run, range_) -> for each copy, the name of the op that needs it; null if no op does, but the program itself

`range_` has the numbers of the copies' rows in the trace's ranges.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.nest import nearest
from opspan.findings.run import Run

COPY = "aten::copy_"
_PASSES_ON = (
    r"^aten::(to|_to_copy|copy_|type_as|clone|contiguous|_autocast_to_(reduced|full)_precision)$|^detach$|aten::detach$|"
    r"ToCopyBackward|CopyBackwards"
)


def outermost_copies(run: Run, range_: pl.Series) -> pl.Series:
    ranges = run.trace.ranges
    passes_on = _passes_on(ranges)
    return nearest(ranges, passes_on & ~passes_on.gather(ranges["parent"]).fill_null(value=False)).gather(range_)


def copy_causes(run: Run, range_: pl.Series) -> pl.Series:
    """If a copy in a backward has no op around it that needs it, searches around the forward op instead."""
    ranges = run.trace.ranges
    names = ranges["name"].unique()
    is_optimizer = ranges["name"].is_in(names.filter(names.cast(pl.String).str.starts_with("Optimizer.step")).implode())
    asking = nearest(ranges, (ranges["kind"].is_in(["op", "script"]) & ~_passes_on(ranges)) | is_optimizer)
    cause = asking.gather(range_)
    if "forward" in ranges.columns and ranges["forward"].count():
        forward = ranges["forward"].gather(nearest(ranges, ranges["forward"].is_not_null()).gather(range_))
        cause = cause.zip_with(cause.is_not_null(), asking.gather(forward))
    return ranges["name"].gather(cause).cast(pl.String)


def _passes_on(ranges: pl.DataFrame) -> pl.Series:
    names = ranges["name"].unique()
    names = names.filter(names.cast(pl.String).str.contains(_PASSES_ON).fill_null(value=False))
    return ranges["name"].is_in(names.implode()).fill_null(value=False)
