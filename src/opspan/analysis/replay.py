"""The graph of `path` walked forward with other times: when all work would begin and end, and each process be done.

    replay(weights, host, found, is_free, meetings) -> Replayed
    Weights     by which factors the times and delays of work change
    Host        the clock of each thread, if nothing made it wait: it goes slower, or faster, where a factor says so

docs/analysis.md, "path", has the rules.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from opspan.analysis.path_threads import BEGUN, FOR_ROOM, FOR_WORK, NONE, at_or_before
from opspan.analysis.spans import LEAST, MOST

if TYPE_CHECKING:
    from opspan.analysis.meetings import Meetings
    from opspan.analysis.path_graph import Graph

_col = pl.col
Ints = npt.NDArray[np.int64]
_AT_A_TIME = 2**16  # work: an object for each of its numbers takes ten times its room


@dataclass(frozen=True)
class Weights:
    """Holds, for each work, the factors by which its time and its delay would change."""

    took: npt.NDArray[np.float64]  # factors
    delayed: npt.NDArray[np.float64]
    unknown: float


@dataclass(frozen=True)
class Replayed:
    begun: list[int]  # of each work
    end: list[int]
    shift: list[int]  # of each join: how much later its thread is then than its clock says; the last: of none
    ends: list[int]  # of each process
    weights: Weights


def fitting(times: list[int]) -> pl.Series:
    try:
        return pl.Series(np.array(times, dtype=np.int64))
    except OverflowError:
        pass
    return pl.Series([min(max(time, LEAST), MOST) for time in times], dtype=pl.Int64)


def scaled(ns: Ints, factor: npt.NDArray[np.float64] | float) -> Ints:
    """Exactly the same where the factor is 1."""
    scaled = np.rint(np.clip(ns * np.asarray(factor), -(2.0**62), 2.0**62)).astype(np.int64)
    return np.where(np.equal(factor, 1.0), ns, scaled)


class Host:
    """`cuts`: thread, time_ns, factor, in order: from then on the thread takes so many times its time."""

    def __init__(self, cuts: pl.DataFrame) -> None:
        length = cuts.select((_col("time_ns").shift(-1) - _col("time_ns")).over("thread").fill_null(0)).to_series()
        saved = length.to_numpy() - scaled(length.to_numpy(), cuts["factor"].to_numpy())
        cuts = cuts.with_columns(saved=pl.lit(pl.Series("saved", saved, dtype=pl.Int64)))
        # Until then.
        self.cuts = cuts.with_columns(saved=(_col("saved").cum_sum() - _col("saved")).over("thread"))

    def clock(self, thread: pl.Series, time_ns: pl.Series) -> Ints:
        at = time_ns.fill_null(0).to_numpy()
        if not self.cuts.height:
            return at
        place = at_or_before(pl.DataFrame({"thread": thread, "time_ns": time_ns}), self.cuts, "thread").to_numpy()
        since = at - self.cuts["time_ns"].to_numpy()[place]
        factor = self.cuts["factor"].to_numpy()[place]
        saved = self.cuts["saved"].to_numpy()[place] + (since - scaled(since, factor))
        return np.where(place == NONE, at, at - saved)


def replay(
    weights: Weights, host: Host, found: Graph, is_free: pl.Series | None = None, meetings: Meetings | None = None
) -> Replayed:
    """`is_free`: for each join whether its thread does not wait there, as if what it waited for had been done."""
    work, joins, order = found.work, found.joins, found.order
    took = scaled((work["end_ns"] - work["start_ns"]).to_numpy(), weights.took)
    delay = scaled(order.delay_ns, weights.delayed)
    launched = np.where(order.is_launched, host.clock(work["thread"], work["launch_ns"]), order.begun_ns)
    others = order.others
    nodes = _rows(
        np.arange(work.height), order.bound, delay, order.entered, launched, order.is_alone, order.other, took
    )

    joined = host.clock(joins["thread"], joins["time_ns"])
    has_own = joins["own_ns"] != np.iinfo(np.int64).min
    own = host.clock(joins["thread"], joins["own_ns"].set(~has_own, None))
    done = host.clock(joins["thread"], joins["target_ns"])
    what = joins["what"].to_numpy()
    lag = np.where(what == BEGUN, 0, joined - done)
    target = host.clock(joins["other"], joins["target_ns"])
    waits_not = np.zeros(joins.height, dtype=np.bool_) if is_free is None else is_free.to_numpy()
    binds = joins["is_last"].to_numpy() & ~waits_not
    is_first = (joins["thread"] != joins["thread"].shift(1)).fill_null(value=True).to_numpy()
    of_work, entry = joins["work"].to_numpy(), joins["entry"].to_numpy()
    columns = (what, of_work, entry, target, lag, order.own_entry, own, has_own.to_numpy(), joined)
    in_order = _rows(
        order.joins, order.work_between, *(each[order.joins] for each in (*columns, waits_not, binds, is_first))
    )

    end, begun_at = [0] * work.height, [0] * work.height
    arrivals = None if meetings is None else meetings.arrivals(weights.took)
    met = {} if arrivals is None else arrivals.of
    at, shift = [0] * joins.height, [0] * (joins.height + 1)  # the last is that of NONE: nothing shifted yet

    def run(count: int) -> None:
        """The next so many of the work."""
        for node, before, delayed, join, launched, is_alone, one, ns in itertools.islice(nodes, count):
            time = shift[join] + launched
            if before == NONE:
                time += delayed
            else:
                then = end[before] + delayed
                if is_alone or then > time:
                    time = then
            if one != NONE:
                then = end[one] if one >= 0 else max(end[some] for some in others[node])
                if then > time:
                    time = then
            begun_at[node], end[node] = time, time + ns
            if arrivals and node in met:
                arrivals.come(node, begun_at, end)

    for (
        node,
        count,
        kind,
        one,
        join,
        until,
        late,
        own_join,
        own_ns,
        is_own,
        clock,
        is_open,
        is_last,
        is_new,
    ) in in_order:
        if count:
            run(count)
        if is_open:
            by = LEAST
        elif kind == FOR_WORK:
            by = end[one]
        elif kind == FOR_ROOM:
            by = begun_at[one]
        else:
            by = shift[join] + until
        # What did not bind might have taken less than it did: nothing.
        time = by + late if is_last else by
        then = shift[own_join] + (own_ns if is_last else clock)
        if then > time and (is_own or not is_last):
            time = then
        if not is_new and at[node - 1] > time:
            time = at[node - 1]
        at[node], shift[node] = time, time - clock
    run(work.height)
    return Replayed(begun_at, end, shift, _ends(found, host, end, shift, weights.unknown), weights)


def _rows(*columns: npt.NDArray[Any]) -> Iterator[tuple[Any, ...]]:
    parts = (slice(begin, begin + _AT_A_TIME) for begin in range(0, columns[0].size, _AT_A_TIME))
    return itertools.chain.from_iterable(zip(*(each[part].tolist() for each in columns), strict=True) for part in parts)


def _ends(found: Graph, host: Host, end: list[int], shift: list[int], unknown: float) -> list[int]:
    """When each process is done: its main thread, and all of its work."""
    processes = found.processes
    work = pl.DataFrame({"process": found.work["process"], "end": fitting(end)})
    last = processes.join(work.group_by("process").max(), on="process", how="left", maintain_order="left")
    join = at_or_before(processes.select(thread="main", time_ns="main_ns"), found.joins, "thread").to_list()
    clock = host.clock(processes["main"], processes["main_ns"]).tolist()
    found_ends = []
    rows = processes.select("end_ns", "main_ns", "last_ns").iter_rows()
    for place, (end_ns, main_ns, last_ns) in enumerate(rows):
        measured = [ns for ns in (main_ns, last_ns) if ns is not None]
        then = [] if main_ns is None else [shift[join[place]] + clock[place]]
        then += [] if last_ns is None else [last["end"][place]]
        after = end_ns - max(measured) if measured else 0
        after = after if unknown == 1 else round(after * unknown)
        found_ends.append(max(then) + after if measured else end_ns)
    return found_ends
