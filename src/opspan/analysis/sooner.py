"""Computes how much sooner processes would have been done after a change, by replaying the graph of `path`.

    sooner(graph, change, meetings) -> rank, pid, ns: the time that each process would save.
    with_guessed_launches(graph, trace, is_paced) -> the graph that `sooner` takes.

The launch of some work is not in the file. If this work begins within path_events.CLOSE of the end of other work, and
its device cannot have waited for the host, this work is taken to have waited for the other work. Otherwise, the main
thread is assumed to have launched this work when it began, or earlier (`_launched_early`).

Waits that the change does not touch remain. So a late host does not delay a device that has work in its queue. A host
that does not wait for its device runs ahead of it, up to the limit of the launch queue if this is known. If the kernels
of all ranks of a collective are known, the collective goes on once the last rank has reached it. Other collectives take
as long as in the recorded run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from opspan.analysis.nest import innermost
from opspan.analysis.path_events import CLOSE
from opspan.analysis.path_threads import BEGUN, NONE, at_or_before
from opspan.analysis.replay import Host, Weights, replay
from opspan.analysis.spans import DEVICE, PROCESS, THREAD, number_groups, union, within

if TYPE_CHECKING:
    from opspan.analysis.meetings import Meetings
    from opspan.analysis.path_graph import Graph
    from opspan.tables import Tables

_col = pl.col
_STREAM = (*DEVICE, "stream_id")


@dataclass(frozen=True)
class Change:
    """A change of a run: stretches of time on threads, and work, that would take more or less time."""

    # A row for each stretch: rank, pid, tid, start_ns, end_ns, and:
    #   factor: the stretch takes this many times as long.
    #   is_free: whether the thread does not wait in the stretch.
    stretches: pl.DataFrame
    # A row for each piece of work:
    #   row: the row in the trace's work.
    #   factor: the work takes this many times as long.
    #   is_at_once: whether the work begins without a delay after the work that it waits for has ended.
    work: pl.DataFrame


def sooner(graph: Graph, change: Change, meetings: Meetings | None = None) -> pl.DataFrame:
    """Replays the graph with the change. `meetings` are collectives in which ranks wait for each other; if it is None,
    they do not wait."""
    stretches = _on_threads(change.stretches, graph)
    host = Host(_cuts(stretches))
    replayed = replay(_weights(change.work, graph), host, graph, _is_free(stretches, graph), meetings)
    ends = pl.DataFrame({"process": graph.work["process"], "after_ns": replayed.end})
    ends = graph.processes.with_columns(ended_ns=pl.lit(replayed.ends)).join(
        ends.group_by("process").max(), on="process", how="left", maintain_order="left"
    )
    # If the file has no launches, it does not show when the host waits for its devices. In this case, only the end of
    # the last work counts, because the end of the host tells nothing about the devices.
    of_work, of_process = _col("last_ns") - _col("after_ns"), _col("end_ns") - _col("ended_ns")
    ns = pl.when("has_launches").then(of_process).otherwise(pl.coalesce(of_work, of_process))
    return ends.select(*PROCESS, ns=ns)


def _weights(changed: pl.DataFrame, graph: Graph) -> Weights:
    if not changed.height:
        return Weights(1.0, 1.0, 1.0)
    changed = changed.with_columns(_col("row").cast(graph.work.schema["row"]))
    work = graph.work.select("row").join(changed, on="row", how="left", maintain_order="left")
    delayed = np.where(work["is_at_once"].fill_null(value=False).to_numpy(), 0.0, 1.0)
    return Weights(work["factor"].fill_null(1.0).to_numpy(), delayed, 1.0)


def _on_threads(stretches: pl.DataFrame, graph: Graph) -> pl.DataFrame:
    """Adds `thread`, the row of each stretch's thread in Graph.threads. If the thread occurs in several cycles (files
    of one process), only cycles that overlap the stretch count."""
    times = graph.processes.select("process", from_ns="start_ns", to_ns="end_ns")
    threads = graph.threads.join(times, on="process")
    rows = stretches.filter(_col("start_ns") < _col("end_ns")).join(threads, on=THREAD, nulls_equal=True)
    return rows.filter(_col("start_ns") <= _col("to_ns"), _col("end_ns") >= _col("from_ns"))


def _cuts(stretches: pl.DataFrame) -> pl.DataFrame:
    """Returns the times at which a thread becomes faster or slower, in the form that Host needs. If stretches of time
    overlap, the one that begins last counts."""
    apart = stretches.select("thread", "start_ns", "end_ns", "factor").sort("thread", "start_ns")
    follows = (_col("thread") != _col("thread").shift()) | (_col("start_ns") >= _col("end_ns").shift())
    if apart.select(follows.all()).item():
        ends = apart.select("thread", time_ns="end_ns", factor=pl.lit(1.0))
        begins = apart.select("thread", time_ns="start_ns", factor=_col("factor").cast(pl.Float64))
        return pl.concat([ends, begins]).sort("thread", "time_ns", maintain_order=True)
    rows = stretches.select(
        "start_ns", "end_ns", "factor", rank="process", pid="process", tid="thread", is_async=pl.lit(value=False)
    )
    moments = pl.concat(rows.select(*THREAD, time_ns=name) for name in ("start_ns", "end_ns")).unique()
    moments = moments.sort("tid", "time_ns")
    factor = rows["factor"].cast(pl.Float64).gather(innermost(rows, moments)).fill_null(1.0)
    return moments.select(thread="tid", time_ns="time_ns", factor=factor)


def _is_free(stretches: pl.DataFrame, graph: Graph) -> pl.Series:
    """Returns, for each join, whether its thread does not wait: the middle of the wait is in a stretch with is_free."""
    rows = union(stretches.filter("is_free"), ("thread",))
    middle = _col("own_ns") + (_col("time_ns") - _col("own_ns")) // 2
    joins = graph.joins.select("thread", at_ns=pl.when(_col("what") != BEGUN).then(middle))
    free = within(joins, "at_ns", rows, ("thread",))["row"]
    return pl.Series([False]).new_from_index(0, joins.height).scatter(free, True)


def with_guessed_launches(graph: Graph, trace: Tables, is_paced: pl.Series) -> Graph:
    """Returns the graph with guessed launches for work whose launch is not in the file.

    `is_paced` says for each row of Graph.work whether its device may have waited for the host. If so, and the launch is
    unknown, the work is assumed to be launched when it began, or earlier (`_launched_early`).
    """
    work = graph.work
    ends = pl.lit(work["end_ns"].gather(work["before"].set(work["before"] == NONE, None)))
    is_late = pl.lit(is_paced) | (_col("start_ns") - ends > CLOSE).fill_null(value=True)
    main = pl.lit(graph.processes["main"].gather(work["process"]).cast(pl.Int32))
    early = _launched_early(work, trace)
    known = pl.when(_col("launch_ns").is_not_null()).then("launch_ns").otherwise(pl.lit(early))
    is_guessed = known.is_null() & is_late
    work = work.with_columns(
        launch_ns=pl.when(is_guessed).then("start_ns").otherwise(known),
        thread=pl.when(_col("launch_ns").is_null() & (is_guessed | known.is_not_null())).then(main).otherwise("thread"),
    )
    entered = at_or_before(work.select(_col("thread").cast(pl.Int64), time_ns="launch_ns"), graph.joins, "thread")
    work = work.with_columns(join=entered.cast(pl.Int32))
    return replace(graph, processes=_with_launches(graph), work=work)


def _with_launches(graph: Graph) -> pl.DataFrame:
    """Adds has_launches to the processes: whether the file has calls that launched the work of the process. It is true
    for processes without work."""
    known = graph.work.group_by("process").agg(has_launches=(_col("thread") != NONE).any())
    known = graph.processes.join(known, on="process", how="left", maintain_order="left")
    return known.with_columns(_col("has_launches").fill_null(value=True))


def _launched_early(work: pl.DataFrame, trace: Tables) -> pl.Series:
    """Returns, for each row of work, the latest time at which it can have been launched, or null. There is a time only
    if the launch of the work is unknown, and the work began before all work with a known launch on the same stream. The
    time is the earliest of these known launches or, if the work began before that, its start."""
    (streams,) = number_groups(_STREAM, trace.work.select(_STREAM))
    rows = work.select("start_ns", "launch_ns", stream=streams["of"].gather(work["row"]))
    times = {"first_ns": _col("launch_ns").min(), "begun_ns": _col("start_ns").min()}
    first = rows.drop_nulls("launch_ns").group_by("stream").agg(**times)
    rows = rows.join(first, on="stream", how="left", maintain_order="left")
    early = pl.when(_col("launch_ns").is_null() & (_col("start_ns") < _col("begun_ns")))
    return rows.select(at_ns=early.then(pl.min_horizontal("start_ns", "first_ns")))["at_ns"]
