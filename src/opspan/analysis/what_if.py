"""Computes how long a run would take if ops or kinds of time were faster, by replaying the graph of `path`.

    what_if(trace, times, waits, graph, factors, meetings) -> Times.

`factors` has factors for names of ops, and for kinds of time (path_cuts.KINDS). docs/analysis.md, "path", has the
rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import polars as pl

from opspan.analysis.nest import innermost, nearest
from opspan.analysis.path import on_path, walk
from opspan.analysis.path_cuts import KINDS, OF_HOST, OF_WORK
from opspan.analysis.path_threads import NONE, at_or_before, bound_by, driving
from opspan.analysis.replay import Host, Replay, Weights, replay, scale
from opspan.analysis.spans import PROCESS, THREAD, length
from opspan.row_numbers import ROW_NUMBER

if TYPE_CHECKING:
    from opspan.analysis.meetings import Meetings
    from opspan.analysis.path_graph import Graph
    from opspan.tables import Tables

_col = pl.col
_LONGEST = 2**53  # ns (104 days); floats do not represent longer times exactly
_KNOWN = pl.when(_col("before_ns") <= _LONGEST).then("after_ns")


@dataclass(frozen=True)
class Times:
    """How long steps and processes took (before_ns), and would take after the change (after_ns)."""

    steps: pl.DataFrame  # the times of steps; `number` is the row of the step in `times`
    processes: pl.DataFrame  # the times of processes (rank, pid)


def what_if(
    trace: Tables,
    times: pl.DataFrame,
    waits: pl.DataFrame,
    graph: Graph,
    factors: Mapping[str, float],
    meetings: Meetings,
) -> Times:
    of_kind = {kind: factors.get(kind, 1.0) for kind in KINDS}
    of_op = {name: factor for name, factor in factors.items() if name not in KINDS}
    host = _host(trace, waits, graph, of_kind, of_op)
    replayed = replay(_weights(trace, graph, of_kind, of_op), host, graph, meetings=meetings)
    numbers = graph.processes.select("process", *PROCESS)
    rows = times.with_row_index("number").join(numbers, on=PROCESS, nulls_equal=True, maintain_order="left")
    path = on_path(graph, walk(graph))
    ends = [
        _predict(rows.select("process", time_ns=name), path, graph, host, replayed, meetings)
        for name in ("start_ns", "end_ns")
    ]
    steps = rows.select("number", before_ns=length(), after_ns=pl.lit(ends[1] - ends[0]))
    ended = pl.lit(replayed.ends)
    processes = graph.processes.select(*PROCESS, before_ns=length(), after_ns=ended - _col("start_ns"))
    return Times(*(frame.with_columns(after_ns=_KNOWN) for frame in (steps, processes)))


def _weights(trace: Tables, graph: Graph, of_kind: dict[str, float], of_op: dict[str, float]) -> Weights:
    work = graph.work
    kinds = {kind: of_kind[kind] for kind in OF_WORK}
    took = work["what"].replace_strict(kinds, default=1.0, return_dtype=pl.Float64).to_numpy().copy()
    if of_op:
        named = _is_named(trace.ranges, of_op)
        took *= _factors(trace.ranges, nearest(trace.ranges, named).gather(work["range"]), of_op)
    bound = bound_by(work)
    delayed = np.where(bound == NONE, of_kind["launch"], of_kind["queued"])
    delayed[work["launch_ns"].is_null().to_numpy()] = of_kind["unknown"]
    return Weights(took, delayed, of_kind["unknown"])


def _is_named(ranges: pl.DataFrame, of_op: Mapping[str, float]) -> pl.Series:
    return ranges["name"].is_in(pl.Series(list(of_op), dtype=pl.Categorical).implode()).fill_null(value=False)


def _factors(ranges: pl.DataFrame, rows: pl.Series, of_op: Mapping[str, float]) -> npt.NDArray[np.float64]:
    names = ranges["name"].gather(rows).cast(pl.String)
    return names.replace_strict(dict(of_op), default=1.0, return_dtype=pl.Float64).fill_null(1.0).to_numpy()


def _host(trace: Tables, waits: pl.DataFrame, graph: Graph, of_kind: dict[str, float], of_op: dict[str, float]) -> Host:
    is_range = ~trace.ranges["is_mark"].fill_null(value=False)
    named = trace.ranges.filter(_is_named(trace.ranges, of_op) & is_range) if of_op else trace.ranges.clear()
    parts = [named.select(*THREAD, "start_ns", "end_ns")]
    has_kinds = any(of_kind[kind] != 1 for kind in OF_HOST)
    calls, waiting = (
        frame.select(*THREAD, "start_ns", "end_ns", is_async=pl.lit(False)) for frame in (driving(trace.calls), waits)
    )
    if has_kinds:
        threads = graph.processes.join(graph.threads.select("thread", "process", "tid"), on="process")
        parts += [threads.select(*THREAD, "start_ns", "end_ns")]
        parts += [frame.drop("is_async") for frame in (calls, waiting)]
    times = pl.concat(part.select(*THREAD, time_ns=name) for part in parts for name in ("start_ns", "end_ns"))
    cuts = times.drop_nulls("time_ns").unique().join(graph.threads, on=THREAD, nulls_equal=True)
    cuts = cuts.sort("thread", "time_ns")
    factor = _factors(named, innermost(named, cuts), of_op) if of_op else np.ones(cuts.height)
    if has_kinds:
        in_wait, in_call = (innermost(frame, cuts).is_not_null().to_numpy() for frame in (waiting, calls))
        of_call = np.where(in_call, of_kind["call"], of_kind["host"])
        factor = factor * np.where(in_wait, of_kind["wait"], of_call)
    return Host(cuts.select("thread", "time_ns", factor=factor))


def _predict(
    moments: pl.DataFrame, path: pl.DataFrame, graph: Graph, host: Host, replayed: Replay, meetings: Meetings
) -> pl.Series:
    """Returns the new times of some moments of the path (process, time_ns) after the change."""
    at = moments["time_ns"].to_numpy()
    begins = path.select("process", time_ns="start_ns")
    place = at_or_before(moments.select("process", "time_ns"), begins, "process", strict=True)
    on = path[place.set(place == NONE, None).cast(ROW_NUMBER)].with_columns(time_ns=moments["time_ns"])
    node = on["node"].fill_null(NONE).to_numpy()
    start, end, start_ns, end_ns = (  # the last value, 0, is for moments that are not in work (NONE)
        np.append(times.to_numpy(), 0)[node]
        for times in (replayed.begun, replayed.end, graph.work["start_ns"], graph.work["end_ns"])
    )
    took, delayed = (np.append(some, 1.0)[node] for some in (replayed.weights.took, replayed.weights.delayed))
    working = start + scale(at - start_ns, took)
    waiting = start - scale(start_ns - at, delayed)
    # If ranks wait for each other in a collective, each rank goes on once the last rank has reached it.
    parts = dict(meetings.parts.select("node", "tail_ns").iter_rows())
    # NaN for work in which ranks do not wait for each other
    tail = np.array([parts.get(one) for one in node.tolist()], dtype=np.float64)
    has_met = end_ns - at <= tail
    met = end - scale(end_ns - at, took)
    came = np.minimum(start + (at - start_ns), end - scale(np.nan_to_num(tail).astype(np.int64), took))
    working = np.where(np.isnan(tail), working, np.where(has_met, met, came))

    joins = graph.joins
    join = at_or_before(on.select(_col("thread").fill_null(NONE), "time_ns"), joins, "thread").to_numpy()
    clock = host.clock(on["thread"].fill_null(NONE), on["time_ns"])
    shift = replayed.shift.to_numpy()
    hosting = shift[join] + clock
    if joins.height:
        next_ = np.minimum(join + 1, joins.height - 1)
        after = joins[next_]
        is_tail = (after["thread"] == on["thread"]) & after["is_last"] & (after["target_ns"] <= on["time_ns"])
        is_tail &= after["time_ns"] >= on["time_ns"]
        # the wait of the next join is already over at this moment, so the thread is as late as after that join
        tail = shift[next_] + clock
        hosting = np.where(is_tail.fill_null(value=False).to_numpy(), tail, hosting)

    processes = moments.select("process").join(
        graph.processes.with_columns(end=replayed.ends), on="process", maintain_order="left"
    )
    begun = processes["start_ns"].to_numpy()
    kind = on["kind"]
    moved = np.where(kind.is_in(OF_WORK).to_numpy(), working, waiting)
    moved = np.where((kind == "host").to_numpy(), hosting, moved)
    is_unknown = ((kind == "unknown") & (on["node"] == NONE)).fill_null(value=False).to_numpy()
    moved = np.where(is_unknown, begun + scale(at - begun, replayed.weights.unknown), moved)
    moved = np.where((place == NONE).to_numpy(), at, moved)
    done = processes.select(pl.max_horizontal("main_ns", "last_ns")).to_series().fill_null(2**63 - 1).to_numpy()
    last = processes["end"].to_numpy() - scale(processes["end_ns"].to_numpy() - at, replayed.weights.unknown)
    return pl.Series("time_ns", np.where(at >= done, last, moved), dtype=pl.Int64)
