"""Puts several traces together on one clock. If one of them was analysed, the result is analysed, too."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from opspan.analysis.analysed import Analysis
from opspan.analysis.modules import modules_of
from opspan.analysis.phases import phases
from opspan.analysis.steps import marked_steps, steps, steps_named
from opspan.tables import Tables, tables
from opspan.tables.clocks import BY_COLLECTIVES


def side_by_side(traces: Sequence[Tables]) -> Tables:
    """Returns all traces as ranks of one run. If one of them was analysed, the result is analysed, too."""
    trace = tables.side_by_side(traces)
    if len(traces) == 1 and any(BY_COLLECTIVES in rank.options for rank in trace.ranks):
        return trace  # the file was saved after its ranks were aligned to one clock by their collectives
    if len(traces) == 1 and len(trace.ranks) == 1:
        return trace
    from opspan.analysis.clocks import one_clock  # imported here, because it loads many other modules

    on_one_clock = one_clock(trace)
    return trace if len(traces) == 1 and on_one_clock is trace else analysed_like(on_one_clock, traces)


def analysed_like(trace: Tables, parts: Sequence[Tables]) -> Tables:
    """Analyses `trace`, which was put together from `parts`. If any of the parts has modules, steps or phases, adds
    them."""
    if not any(part.is_analysed for part in parts):
        return trace
    attributed = Analysis(trace).attributed
    ranges = attributed.ranges
    if any("module" in part.ranges.columns for part in parts):
        ranges = modules_of(attributed)
    if stepped := [part.ranges for part in parts if "step" in part.ranges.columns]:
        # The traces do not keep the pattern of their steps. But the names of the steps are known, and are looked for.
        names = {name for frame in stepped for name in frame["step"].unique()} - {None}
        marked_names = {name for frame in stepped for name in marked_steps(frame)["name"]}
        are_ranges = names <= set(ranges["name"].unique().to_list())  # if not, steps are the times between marks
        named = pl.Series(sorted(names), dtype=pl.String)
        ranges = steps_named(ranges, named) if are_ranges and names != marked_names else steps(ranges)
    if any("phase" in part.ranges.columns for part in parts):
        ranges = phases(ranges)
    return attributed.replace(ranges=ranges)
