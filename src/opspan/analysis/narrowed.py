"""Cuts steps out of a trace, by their numbers. If ranges do not name the steps, the steps of the whole trace are found
first.

narrowed(read, window) -> the part of the trace, and the steps in it. If ranges name the steps, the part is the result
    of `read(window)`, and the steps are None. Otherwise the part is cut out of `read(None)`.
steps_of_all(parts, steps, trace) -> the steps of all parts, for `trace`, which was made of these parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl

from opspan.analysis.analysed import Analysis
from opspan.errors import NoNumberedSteps
from opspan.tables import Metadata, Tables
from opspan.tables.clocks import Shift, shift_of, times
from opspan.tables.cycles import COLUMN
from opspan.tables.tables import clock_shift_ns, renumbered
from opspan.tables.window import Window, cut, of_steps

PartAndSteps = tuple[Tables, pl.DataFrame | None]
_TIMES = pl.col("start_ns", "end_ns")


def narrowed(read: Callable[[Window | None], Tables], window: Window | None) -> PartAndSteps:
    try:
        return read(window), None
    except NoNumberedSteps:
        if window is None or not isinstance(window.steps, tuple):
            raise
    from opspan.analysis.spans import PROCESS

    trace = read(None)
    analysed = Analysis(trace)
    steps = analysed.iterations
    if analysed.lanes is not None:
        cycle = pl.col("rank").replace_strict(analysed.lanes.cycle_of, return_dtype=pl.Int32)
        steps = steps.with_columns(analysed.by_lane.iterations.select(cycle.alias(COLUMN)))
    # Steps are numbered as `opspan steps` shows them: in order, from 0 in each process.
    numbers = steps.select(number=pl.int_range(pl.len()).over(PROCESS))["number"]
    stretch = of_steps(window.steps, numbers, steps["start_ns"], steps["end_ns"])
    return cut(trace, window, stretch), steps.filter(numbers.is_between(*window.steps))


def steps_of_all(parts: Sequence[Tables], steps_of_parts: Sequence[pl.DataFrame], trace: Tables) -> pl.DataFrame:
    """Returns the steps of all parts, with the rank numbers and the clock of `trace`, which was made of the parts."""
    frames = []
    places: dict[tuple[str, ...], list[tuple[Metadata, int | None]]] = {}
    for rank in trace.ranks:
        for one in rank.cycles or (rank,):
            places.setdefault(one.paths, []).append((rank, one.cycle))
    for part, steps in zip(parts, steps_of_parts, strict=True):
        origins = [(before, *places[before.paths].pop(0)) for before in part.ranks]
        now = [(before, rank) for before, rank, _ in origins]
        by_utc = Shift(clock_shift_ns(part.metadata, parts[0].metadata) or 0)
        steps = steps.with_columns(times(_TIMES, {before.rank: by_utc for before, _ in now}))
        steps = steps.with_columns(renumbered({before.rank: rank.rank for before, rank in now}))
        cycles = {rank.rank: cycle for _, rank, cycle in origins if cycle is not None}
        if cycles and COLUMN not in steps.columns:  # if a file has several cycles, its steps already have the column
            steps = steps.with_columns(
                pl.col("rank").replace_strict(cycles, default=None, return_dtype=pl.Int32).alias(COLUMN)
            )
        is_new = {rank.rank: shift_of(rank) for before, rank in now if shift_of(rank) != shift_of(before)}
        frames.append(steps.with_columns(times(_TIMES, is_new)))
    return pl.concat(frames, how="diagonal")
