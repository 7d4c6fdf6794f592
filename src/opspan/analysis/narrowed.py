"""A part of a trace by the numbers of steps that no range has: they are found in all of it, and then it is cut.

narrowed(read, window) -> what `read(window)` gives, and None; or, where that has no numbered steps, the part of
    what `read(None)` gives, and the steps in it
steps_of_all(parts, found, whole) -> the steps of parts that are put side by side
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

Part = tuple[Tables, pl.DataFrame | None]
_TIMES = pl.col("start_ns", "end_ns")


def narrowed(read: Callable[[Window | None], Tables], window: Window | None) -> Part:
    try:
        return read(window), None
    except NoNumberedSteps:
        if window is None or not isinstance(window.steps, tuple):
            raise
    from opspan.analysis.spans import PROCESS

    whole = read(None)
    analysed = Analysis(whole)
    found = analysed.iterations
    if analysed.lanes is not None:
        cycle = pl.col("rank").replace_strict(analysed.lanes.cycle_of, return_dtype=pl.Int32)
        found = found.with_columns(analysed.by_lane.iterations.select(cycle.alias(COLUMN)))
    # As `opspan steps` numbers them: in order, each process from 0.
    numbers = found.select(number=pl.int_range(pl.len()).over(PROCESS))["number"]
    stretch = of_steps(window.steps, numbers, found["start_ns"], found["end_ns"])
    return cut(whole, window, stretch), found.filter(numbers.is_between(*window.steps))


def steps_of_all(parts: Sequence[Tables], found: Sequence[pl.DataFrame], whole: Tables) -> pl.DataFrame:
    """With the numbers and on the clock that the ranks have in `whole`."""
    frames = []
    places: dict[tuple[str, ...], list[tuple[Metadata, int | None]]] = {}
    for rank in whole.ranks:
        for one in rank.cycles or (rank,):
            places.setdefault(one.paths, []).append((rank, one.cycle))
    for part, steps in zip(parts, found, strict=True):
        placed = [(before, *places[before.paths].pop(0)) for before in part.ranks]
        now = [(before, rank) for before, rank, _ in placed]
        by_utc = Shift(clock_shift_ns(part.metadata, parts[0].metadata) or 0)
        steps = steps.with_columns(times(_TIMES, {before.rank: by_utc for before, _ in now}))
        steps = steps.with_columns(renumbered({before.rank: rank.rank for before, rank in now}))
        if COLUMN in steps.columns:
            pass  # of a file that has several cycles itself
        elif cycles := {rank.rank: cycle for _, rank, cycle in placed if cycle is not None}:
            steps = steps.with_columns(
                pl.col("rank").replace_strict(cycles, default=None, return_dtype=pl.Int32).alias(COLUMN)
            )
        is_new = {rank.rank: shift_of(rank) for before, rank in now if shift_of(rank) != shift_of(before)}
        frames.append(steps.with_columns(times(_TIMES, is_new)))
    return pl.concat(frames, how="diagonal")
