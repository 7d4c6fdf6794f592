"""Several traces as one. Row numbers, sums and ends that were found for each trace are found again for the whole."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from opspan.analysis.analysed import attribute
from opspan.analysis.modules import modules
from opspan.analysis.phases import phases
from opspan.analysis.steps import steps, steps_named, torch_steps
from opspan.tables import Tables, tables


def side_by_side(traces: Sequence[Tables]) -> Tables:
    """All traces as ranks of one run. If one of them was analysed, the result is analysed too."""
    whole = tables.side_by_side(traces)
    return whole if len(traces) == 1 else analysed_like(whole, traces)


def analysed_like(whole: Tables, parts: Sequence[Tables]) -> Tables:
    """`whole`, which was put together from `parts`, analysed as far as any of them was."""
    if not any(part.is_analysed for part in parts):
        return whole
    attributed = attribute(whole)
    ranges = attributed.ranges
    if any("module" in part.ranges.columns for part in parts):
        ranges = modules(ranges, attributed.functions)
    if stepped := [part.ranges for part in parts if "step" in part.ranges.columns]:
        # The pattern that found the steps is not known, but the names of the steps are.
        found = {name for frame in stepped for name in frame["step"].unique()} - {None}
        torchs = {name for frame in stepped for name in torch_steps(frame)}
        ranges = steps(ranges) if found == torchs else steps_named(ranges, pl.Series(sorted(found), dtype=pl.String))
    if any("phase" in part.ranges.columns for part in parts):
        ranges = phases(ranges)
    return attributed.replace(ranges=ranges)
