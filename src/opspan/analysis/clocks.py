"""Aligns the clocks of several hosts by collectives, because all ranks are done with a collective at the same time.

    one_clock(trace) -> the trace, with ranks moved in time (and a new issue) if their clocks differed.
    clocks(rows, ranks) -> how much the clocks differ, computed only from collectives.
    collectives_of(trace) -> the collectives, for a trace that need not be analysed.

`rows` are the collectives of all files. Their ranks are numbered as in `ranks`, and each time is on the clock of its
rank. Ranks that read the same clock of a host are moved together. docs/ranks.md says when clocks are aligned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import polars as pl

from opspan.analysis.analysed import Analysis
from opspan.analysis.collective_names import TOGETHER, ranges_named
from opspan.analysis.kernels import is_communication
from opspan.tables import Issues, Metadata, Tables
from opspan.tables.clocks import BY_COLLECTIVES, Shift, shifted, times
from opspan.tables.ranks import runs_of
from opspan.tables.tables import STRETCH
from opspan.tables.window import without_lost_parents

# Even on the same clock, the times at which two devices end a collective differ by up to this much.
LEAST_ERROR_NS = 20_000
# The least number of collectives from which an offset can be computed, and the least number for a drift.
LEAST, LEAST_OF_DRIFT = 4, 30
_SURER = 2  # a drift is assumed only if it makes the error smaller by this factor

_col = pl.col


class Clock(NamedTuple):
    """The clock of a rank: the shift that moves its times to the clock of the first rank, and the shift's accuracy."""

    shift: Shift
    collectives: int  # how many collectives the shift was computed from
    within_ns: int  # after the shift, the ends of nine in ten of these collectives differ by at most this
    drifted_ns: int = 0  # how much the clock drifted from the first to the last of these collectives

    @property
    def is_apart(self) -> bool:
        """Whether the shift or the drift is larger than the error."""
        return max(abs(self.shift.ns), abs(self.drifted_ns)) > self.within_ns


def one_clock(trace: Tables) -> Tables:
    alignment = align(trace.ranks, trace.issues, lambda: collectives_of(trace))
    if alignment is None:
        return trace
    frames = {name: shifted(name, frame, alignment.shifts) for name, frame in trace.frames.items()}
    frames["issues"] = alignment.issues
    return Tables(alignment.ranks, **frames)


class ClockAlignment(NamedTuple):
    """The metadata, issues and shifts of ranks that are brought to one clock."""

    ranks: tuple[Metadata, ...]
    issues: pl.DataFrame
    shifts: dict[int, Shift]  # the shift of each rank that must be moved, by rank number


def align(
    ranks: Sequence[Metadata], issues_before: pl.DataFrame, rows: Callable[[], pl.DataFrame]
) -> ClockAlignment | None:
    """Aligns the clocks of ranks. Returns None if no change is needed. `rows` is a function that returns the
    collectives."""
    places, first = _places(ranks), ranks[0]
    has_several_runs = (issues_before["code"] == "doubled_rank").any() or bool(runs_of(ranks))
    if len(set(places.values())) < 2 or has_several_runs:
        return None
    known = clocks(rows(), ranks)
    apart = {number: clock for number, clock in known.items() if clock.is_apart}
    issues = Issues()
    for number, clock in apart.items():
        issues.add("clocks_aligned", detail=_sentence(number, clock))
    lost = [rank for rank in ranks if rank.rank not in known and places[rank.rank] != places[first.rank]]
    hosts = {rank.host for rank in lost if None not in (rank.host, first.host)} - {first.host}
    unaligned = issues_before["code"] == "clocks_not_aligned"
    issues.add("clocks_of_hosts", 0 if unaligned.any() else len(hosts))
    # If all files without a UTC time are aligned now, the issue clocks_not_aligned is removed.
    is_solved = all(rank not in lost for rank in ranks if None in (rank.origin_utc_ns, first.origin_utc_ns))
    remaining = issues_before.filter(~unaligned) if is_solved and known else issues_before
    if not known and not len(issues):
        return None
    shifts = {number: clock.shift for number, clock in apart.items()}
    metadata = tuple(_move(rank, known, apart) for rank in ranks)
    return ClockAlignment(metadata, pl.concat([remaining, issues.frame()]), shifts)


def _move(rank: Metadata, known: Mapping[int, Clock], apart: Mapping[int, Clock]) -> Metadata:
    """Returns the metadata of a rank, with the shift of this rank in the options."""
    clock = known.get(rank.rank)
    if clock is None or (rank.rank not in apart and BY_COLLECTIVES in rank.options):
        return rank
    shift = clock.shift if rank.rank in apart else Shift()
    facts = {"shift_ns": shift.ns, "drift": shift.drift, "since_ns": shift.since_ns}
    facts |= {"collectives": clock.collectives, "within_ns": clock.within_ns}
    options = {**rank.options, BY_COLLECTIVES: facts}
    if STRETCH in options:  # start and end of the part of the trace that was read
        options[STRETCH] = [shift.of(time) for time in options[STRETCH]]
    cycles = tuple(_move(replace(one, rank=rank.rank), known, apart) for one in rank.cycles)
    return replace(rank, options=options, cycles=cycles)


def _sentence(number: int, clock: Clock) -> str:
    drift = f" and {clock.shift.drift * 1e6:+.3f} in a million" if clock.shift.drift else ""
    return (
        f"rank {number} by {clock.shift.ns / 1e6:+,.3f} ms{drift}, within {clock.within_ns / 1e6:,.3f} ms, as "
        f"{clock.collectives:,} collectives say"
    )


def _places(ranks: Sequence[Metadata]) -> dict[int, str]:
    """Returns the name of the clock that each rank reads. An unknown clock is named after its rank, so it counts as a
    separate clock."""
    return {
        rank.rank: f"clock {rank.clock} of {rank.host}" if rank.clock and rank.host else f"rank {rank.rank}"
        for rank in ranks
    }


def collectives_of(trace: Tables) -> pl.DataFrame:
    """Returns the collectives. Analyses only the rows that show collectives, which are a small part of a trace."""
    names = trace.work["name"].unique().to_frame().filter(is_communication(_col("name")))["name"]
    work = trace.work.filter(_col("name").is_in(names.implode()))
    collectives = ranges_named(trace.ranges["name"])["name"]
    starts = trace.ranges["name"].unique().drop_nulls()
    starts = starts.filter(starts.cast(pl.String).str.starts_with("ncclCommInitRank"))
    ranges = trace.ranges.filter(_col("name").is_in(pl.concat([collectives, starts]).unique().implode()))
    calls = trace.calls.join(work, on=["rank", "pid", "correlation_id"], how="semi", nulls_equal=True)
    small = Tables(trace.ranks, ranges=without_lost_parents(ranges), calls=calls, work=work)
    return Analysis(small).own_collectives


def clocks(rows: pl.DataFrame, ranks: Sequence[Metadata]) -> dict[int, Clock]:
    """Returns the clock of each rank that has enough collectives in common with the first rank, or with other ranks
    whose clocks are known already. Leaves out the first rank and the ranks that read its clock."""
    places = _places(ranks)
    first = places[ranks[0].rank]
    numbers = list(places)
    place = _col("rank").replace_strict(numbers, list(places.values()), default=None, return_dtype=pl.String)
    ended = _ends(rows.with_columns(place=place).drop_nulls("place"))
    known = {first: Clock(Shift(), 0, 0)}
    while new := _next(ended, known):
        known |= new
    return {number: known[place] for number, place in places.items() if place in known and place != first}


def _ends(rows: pl.DataFrame) -> pl.DataFrame:
    """Returns when each collective ended on each clock. The columns are match (the collective), place (the name of the
    clock) and end_ns."""
    # imported here, because it imports numpy, which most traces do not need
    from opspan.analysis.over_ranks import matched

    # The match must not rely on clocks, because the matched collectives are used to align the clocks.
    pairs = pl.concat([rows, matched(rows, trusts_clocks=False).select("match")], how="horizontal")
    is_timed = _col("kind").is_in(TOGETHER) & _col("time_ns").is_not_null() & _col("end_ns").is_not_null()
    return pairs.filter(is_timed, _col("match").is_not_null()).group_by("match", "place").agg(_col("end_ns").max())


def _next(ended: pl.DataFrame, known: Mapping[str, Clock]) -> dict[str, Clock]:
    """Returns the clocks that have enough collectives in common with the `known` clocks."""
    moved = pl.concat(
        [
            rows.with_columns(times(_col("end_ns"), {0: known[str(place)].shift}))
            for (place,), rows in ended.with_columns(rank=pl.lit(0)).group_by("place")
            if place in known
        ]
        or [ended.clear()],
        how="diagonal",
    )
    theirs = moved.group_by("match").agg(known_ns=_col("end_ns").median().round().cast(pl.Int64))
    others = ended.filter(~_col("place").is_in(list(known))).join(theirs, on="match").sort("end_ns")
    before = max(clock.within_ns for clock in known.values())
    return {
        str(place): _clock(rows.select("end_ns", apart_ns=_col("known_ns") - _col("end_ns")), before)
        for (place,), rows in others.group_by("place", maintain_order=True)
        if rows.height >= LEAST
    }


def _clock(rows: pl.DataFrame, before_ns: int) -> Clock:
    """Returns the clock that fits best. `rows` are collectives, sorted by time: end_ns is their end on this clock, and
    apart_ns is how much must be added to get their end on the known clocks. `before_ns` is the error of the known
    clocks."""
    middle = _median(rows["apart_ns"])
    shift, error = Shift(middle), _error(rows["apart_ns"] - middle)
    drifted = 0
    if rows.height >= LEAST_OF_DRIFT:
        third = rows.height // 3
        early, late = rows.head(third), rows.tail(third)
        lasted = _median(late["end_ns"]) - _median(early["end_ns"])
        slope = (_median(late["apart_ns"]) - _median(early["apart_ns"])) / lasted if lasted else 0.0
        since = _median(rows["end_ns"])
        straight = (rows["end_ns"] - since).cast(pl.Float64) * slope
        rest = (rows["apart_ns"] - straight).round().cast(pl.Int64)
        if slope and _error(rest - _median(rest)) * _SURER < error:
            shift, error = Shift(_median(rest), slope, since), _error(rest - _median(rest))
            drifted = round(slope * (rows["end_ns"][-1] - rows["end_ns"][0]))
    return Clock(shift, rows.height, max(error, LEAST_ERROR_NS) + before_ns, drifted)


def _median(values: pl.Series) -> int:
    middle = values.median()
    return round(middle) if isinstance(middle, (int, float)) else 0


def _error(apart: pl.Series) -> int:
    """Returns the 90th percentile of the absolute values."""
    nine_in_ten = (9 * len(apart) + 9) // 10
    return int(apart.abs().sort()[nine_in_ten - 1])
