"""Replays the graph of `path` from the start forward: computes when work would start and end, and when processes would
end, if some times changed.

    replay(weights, host, graph, is_free, meetings) -> Replay.
    Weights: the factors by which the times and delays of work change.
    Host: a clock for each thread: the measured times, changed by the factors of what the thread itself does.
        Replay.shift has how much later the thread is because waits changed.

docs/analysis.md, "path", has the rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl
from polars.selectors import integer

from opspan import native
from opspan.analysis.path_threads import BEGUN, NONE, at_or_before
from opspan.analysis.spans import LEAST, MOST

if TYPE_CHECKING:
    from opspan.analysis.meetings import Meetings
    from opspan.analysis.path_graph import Graph

_col = pl.col
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Weights:
    """The factors by which times change: how long each kernel or copy took, how long it was delayed, and times of an
    unknown kind. A single number is the factor for all work."""

    took: npt.NDArray[np.float64] | float
    delayed: npt.NDArray[np.float64] | float
    unknown: float


@dataclass(frozen=True)
class Replay:
    begun: pl.Series  # the start of each row of work
    end: pl.Series  # the end of each row of work
    # for each join: by how much changed waits delay the thread after the join, compared with the thread's clock in
    # `Host`; one more value, 0, is for the row number NONE (no join)
    shift: pl.Series
    ends: pl.Series  # the end of each process
    weights: Weights


def scale(ns: Ints, factor: npt.NDArray[np.float64] | float) -> Ints:
    """Multiplies times by a factor. A factor of 1 changes nothing, not even by rounding."""
    if isinstance(factor, float) and factor == 1:
        return ns
    scaled = np.rint(np.clip(ns * np.asarray(factor), -(2.0**62), 2.0**62)).astype(np.int64)
    return np.where(np.equal(factor, 1.0), ns, scaled)


class Host:
    """The clocks of threads. `cuts` has thread, time_ns and factor, and is sorted. From time_ns until the next cut, all
    that the thread does takes `factor` times as long."""

    def __init__(self, cuts: pl.DataFrame) -> None:
        length = cuts.select((_col("time_ns").shift(-1) - _col("time_ns")).over("thread").fill_null(0)).to_series()
        saved = length.to_numpy() - scale(length.to_numpy(), cuts["factor"].to_numpy())
        cuts = cuts.with_columns(saved=pl.lit(pl.Series("saved", saved, dtype=pl.Int64)))
        # From here on, `saved` is a running sum: the time saved from the beginning until each cut.
        self.cuts = cuts.with_columns(saved=(_col("saved").cum_sum() - _col("saved")).over("thread"))
        # The last value belongs to NONE, the row number of times before the first cut.
        self._time, self._saved = (np.append(self.cuts[name].to_numpy(), 0) for name in ("time_ns", "saved"))
        self._factor = np.append(self.cuts["factor"].to_numpy(), 1.0)

    def clock(self, thread: pl.Series, time_ns: pl.Series) -> Ints:
        """Returns, for each measured time of a thread, the time that the thread's clock shows."""
        at = time_ns.fill_null(0).to_numpy()
        if not self.cuts.height:
            return at
        place = at_or_before(pl.DataFrame({"thread": thread, "time_ns": time_ns}), self.cuts, "thread").to_numpy()
        saved: Ints = self._saved[place]
        changed = np.flatnonzero((self._factor != 1)[place])
        within = place[changed]
        since = at[changed] - self._time[within]
        saved[changed] += since - scale(since, self._factor[within])
        clock: Ints = at - saved
        return clock


def replay(
    weights: Weights, host: Host, graph: Graph, is_free: pl.Series | None = None, meetings: Meetings | None = None
) -> Replay:
    """Replays the graph. `is_free` says for each join whether its thread goes on without waiting."""
    count = graph.work.height
    joins = _joins(host, graph, is_free)
    work, joins = (rows.cast({integer(): pl.Int64}) for rows in (_work(weights, host, graph, meetings), joins))
    times = native.replay(work, joins, count)
    begun, end = times["begun_ns"], times["end_ns"]
    shift = end[count:].append(pl.Series([0]))
    ends = _ends(graph, host, end[:count], shift, weights.unknown)
    return Replay(begun[:count], end[:count], shift, ends, weights)


def _work(weights: Weights, host: Host, graph: Graph, meetings: Meetings | None) -> pl.DataFrame:
    """Returns the rows of work that native.replay needs. If work waited for several others besides `bound`, further
    rows after all work have a linked list of them (see Order.others)."""
    work, order = graph.work, graph.order
    took = scale((work["end_ns"] - work["start_ns"]).to_numpy(), weights.took)
    launched = np.where(order.is_launched, host.clock(work["thread"], work["launch_ns"]), order.begun_ns)
    columns: dict[str, npt.NDArray[Any]] = {
        "bound": order.bound,
        "delay_ns": scale(order.delay_ns, weights.delayed),
        "join": order.entered,
        "launch_ns": launched,
        "is_alone": order.is_alone,
        "other": order.other,
        "took_ns": took,
    }
    rows = pl.DataFrame(columns).with_columns(
        next=pl.lit(NONE, pl.Int64), **_meeting_columns(weights, work.height, meetings)
    )
    if order.others.height:
        edges = order.others.select(next="next", other="other")
        rows = pl.concat([rows, edges], how="diagonal")
        rows = rows.with_columns(_col(name).fill_null(0) for name in columns if name != "is_alone")
    return rows


def _meeting_columns(weights: Weights, count: int, meetings: Meetings | None) -> dict[str, pl.Series]:
    """Returns two columns for the rows of work. `meeting` identifies the collective, or is null. `tail_ns` is how long
    the work goes on after the kernels of all ranks have begun."""
    of, tail = pl.Series([None], dtype=pl.Int64).new_from_index(0, count), pl.Series([0]).new_from_index(0, count)
    if meetings is not None:
        parts = meetings.parts
        took = weights.took if isinstance(weights.took, float) else weights.took[parts["node"].to_numpy()]
        ns = scale(parts["tail_ns"].to_numpy(), took)
        of, tail = of.scatter(parts["node"], parts["of"]), tail.scatter(parts["node"], pl.Series(ns))
    return {"meeting": of, "tail_ns": tail}


def _joins(host: Host, graph: Graph, is_free: pl.Series | None) -> pl.DataFrame:
    """Returns the rows of joins that native.replay needs, sorted by thread. `in_order` has the row numbers of the
    joins, in the order in which to compute them."""
    joins, order = graph.joins, graph.order
    free = pl.lit(value=False) if is_free is None else pl.lit(is_free)
    clock = host.clock(joins["thread"], joins["time_ns"])
    has_own = joins["own_ns"] != np.iinfo(np.int64).min
    own = host.clock(joins["thread"], joins["own_ns"].set(~has_own, None))
    done = host.clock(joins["thread"], joins["target_ns"])
    return joins.select(
        "what",
        "work",
        "entry",
        is_first=(_col("thread") != _col("thread").shift(1)).fill_null(value=True),
        in_order=pl.lit(pl.Series(order.joins)),
        work_between=pl.lit(pl.Series(order.work_between)),
        target_ns=pl.lit(pl.Series(host.clock(joins["other"], joins["target_ns"]))),
        lag_ns=pl.lit(pl.Series(np.where(joins["what"].to_numpy() == BEGUN, 0, clock - done))),
        own_entry=pl.lit(pl.Series(order.own_entry)),
        own_ns=pl.lit(pl.Series(own)),
        clock_ns=pl.lit(pl.Series(clock)),
        has_own=pl.lit(has_own),
        is_free=free,
        binds=_col("is_last") & ~free,
    )


def _ends(graph: Graph, host: Host, end: pl.Series, shift: pl.Series, unknown: float) -> pl.Series:
    """Returns when each process ends. First, its main thread and all of its work must be done. The measured time from
    then to the end of the process is multiplied by `unknown`, and added."""
    processes = graph.processes
    work = pl.DataFrame({"process": graph.work["process"], "end": end})
    last = processes.join(work.group_by("process").max(), on="process", how="left", maintain_order="left")
    join = at_or_before(processes.select(thread="main", time_ns="main_ns"), graph.joins, "thread").to_list()
    clock = host.clock(processes["main"], processes["main_ns"]).tolist()
    process_ends = []
    rows = processes.select("end_ns", "main_ns", "last_ns").iter_rows()
    for place, (end_ns, main_ns, last_ns) in enumerate(rows):
        measured = [ns for ns in (main_ns, last_ns) if ns is not None]
        then = [] if main_ns is None else [shift[join[place]] + clock[place]]
        then += [] if last_ns is None else [last["end"][place]]
        after = end_ns - max(measured) if measured else 0
        after = after if unknown == 1 else round(after * unknown)
        process_ends.append(min(max(max(then) + after if measured else end_ns, LEAST), MOST))
    return pl.Series(process_ends, dtype=pl.Int64)
