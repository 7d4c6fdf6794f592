"""Several traces as one, on one clock. Row numbers, sums and ends that were found for each are found again for all."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from opspan.analysis.analysed import Analysis
from opspan.analysis.modules import modules
from opspan.analysis.phases import phases
from opspan.analysis.steps import steps, steps_named, torch_steps
from opspan.tables import Tables, tables
from opspan.tables.clocks import BY_COLLECTIVES


def side_by_side(traces: Sequence[Tables]) -> Tables:
    """All traces as ranks of one run. If one of them was analysed, the result is analysed too."""
    whole = tables.side_by_side(traces)
    if len(traces) == 1 and any(BY_COLLECTIVES in rank.options for rank in whole.ranks):
        return whole  # it was saved so
    if len(traces) == 1 and len(whole.ranks) == 1:
        return whole
    from opspan.analysis.clocks import one_clock  # with all that tells what a collective is

    on_one_clock = one_clock(whole)
    return whole if len(traces) == 1 and on_one_clock is whole else analysed_like(on_one_clock, traces)


def analysed_like(whole: Tables, parts: Sequence[Tables]) -> Tables:
    """`whole`, which was put together from `parts`, analysed as far as any of them was."""
    if not any(part.is_analysed for part in parts):
        return whole
    attributed = Analysis(whole).attributed
    ranges = attributed.ranges
    if any("module" in part.ranges.columns for part in parts):
        ranges = modules(ranges, attributed.functions)
    if stepped := [part.ranges for part in parts if "step" in part.ranges.columns]:
        # The pattern that found the steps is not known, but the names of the steps are.
        found = {name for frame in stepped for name in frame["step"].unique()} - {None}
        torchs = {name for frame in stepped for name in torch_steps(frame)["name"]}
        are_ranges = found <= set(ranges["name"].unique().to_list())  # and not between marks
        named = pl.Series(sorted(found), dtype=pl.String)
        ranges = steps_named(ranges, named) if are_ranges and found != torchs else steps(ranges)
    if any("phase" in part.ranges.columns for part in parts):
        ranges = phases(ranges)
    return attributed.replace(ranges=ranges)
