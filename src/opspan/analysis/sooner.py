"""How much sooner processes would have been done without something: the graph of `path`, replayed without it.

    sooner(found, quick, took, unwaited) -> rank, pid, saved_ns: of each process
    released(found, trace, is_paced) -> the graph that it takes

    quick       rank, pid, tid, start_ns, end_ns, factor: stretches in which a thread takes so many times its time
    took        for each row of Graph.work by what factor its time changes
    unwaited    rank, pid, tid, end_ns: calls that no longer wait for work

Files seldom say which events streams wait for. The first work that a thread launches after it told a stream to wait is
taken to wait for what was launched last on another stream. Work that had been launched, whose stream was free, and that
begins as other work of the process ends, within CLOSE, is taken to have waited for that. Work whose launch is not in
the file, and that does not follow other work as closely, is taken to have been launched by the main thread as it began.

What waits for something else then waits for that: a device that has work in its queue loses nothing by a host that is
late, and a host that need not wait for its device goes on ahead of it, as far as a full queue is known to let it.
Each process is replayed by itself: what it waited for others in collectives, it waits again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import polars as pl

from opspan.analysis.nest import innermost
from opspan.analysis.path_threads import FOR_WORK, NONE, at_or_before
from opspan.analysis.replay import Host, Weights, fitting, replay
from opspan.analysis.spans import PROCESS

if TYPE_CHECKING:
    from opspan.analysis.path_graph import Graph
    from opspan.tables import Tables

_col = pl.col
_THREAD = (*PROCESS, "tid")
_WAIT_EVENT = r"^(cuda|cu|hip)StreamWaitEvent"
CLOSE = 20_000  # ns; work that waits for an event of another stream begins some 10 us after it


def sooner(
    found: Graph,
    quick: pl.DataFrame | None = None,
    took: npt.NDArray[np.float64] | None = None,
    unwaited: pl.DataFrame | None = None,
) -> pl.DataFrame:
    same = np.ones(found.work.height)
    weights = Weights(same if took is None else took, same, 1.0)
    is_free = None if unwaited is None else _joins_of(unwaited, found)
    replayed = replay(weights, Host(_cuts(quick, found)), found, is_free)
    after = fitting(replayed.ends)
    return found.processes.select(*PROCESS, saved_ns=_col("end_ns") - after)


def _cuts(quick: pl.DataFrame | None, found: Graph) -> pl.DataFrame:
    """Where stretches overlap, the one that begins last counts."""
    if quick is None or not quick.height:
        return pl.DataFrame(schema={"thread": pl.Int64, "time_ns": pl.Int64, "factor": pl.Float64})
    rows = quick.select(*_THREAD, "start_ns", "end_ns", "factor", is_async=pl.lit(value=False))
    moments = pl.concat(rows.select(*_THREAD, time_ns=name) for name in ("start_ns", "end_ns")).unique()
    moments = moments.join(found.threads, on=_THREAD, nulls_equal=True).sort("thread", "time_ns")
    factor = rows["factor"].cast(pl.Float64).gather(innermost(rows, moments)).fill_null(1.0)
    return moments.select("thread", "time_ns", factor=factor)


def _joins_of(calls: pl.DataFrame, found: Graph) -> pl.Series:
    """For each join whether it is the end of one of these calls."""
    known = calls.join(found.threads, on=_THREAD, nulls_equal=True).select("thread", time_ns="end_ns", of=True)
    rows = found.joins.join(known.unique(), on=["thread", "time_ns"], how="left", maintain_order="left")
    return rows.select(_col("of").fill_null(value=False) & (_col("what") == FOR_WORK)).to_series()


def released(found: Graph, trace: Tables, is_paced: pl.Series) -> Graph:
    """`is_paced`: for each row of Graph.work whether the host may have set the pace of its device: then work of unknown
    launch is never taken to have been launched before."""
    work = found.work
    ends = pl.lit(work["end_ns"].gather(work["before"].set(work["before"] == NONE, None)))
    is_late = pl.lit(is_paced) | (_col("start_ns") - ends > CLOSE).fill_null(value=True)
    main = pl.lit(found.processes["main"].gather(work["process"]).cast(pl.Int32))
    early = _launched_early(work, trace)
    known = pl.when(_col("launch_ns").is_not_null()).then("launch_ns").otherwise(pl.lit(early))
    is_guessed = known.is_null() & is_late
    work = work.with_columns(
        launch_ns=pl.when(is_guessed).then("start_ns").otherwise(known),
        thread=pl.when(_col("launch_ns").is_null() & (is_guessed | known.is_not_null())).then(main).otherwise("thread"),
    )
    entered = at_or_before(work.select(_col("thread").cast(pl.Int64), time_ns="launch_ns"), found.joins, "thread")
    work = work.with_columns(join=entered.cast(pl.Int32))
    more = pl.concat([_unexplained(work, ends), _by_events(replace(found, work=work), trace)]).unique()
    more = more.with_columns(end_ns=work["end_ns"].gather(more["before"]))
    more = more.filter(_col("end_ns") <= work["start_ns"].gather(more["work"])).sort("work", "end_ns")
    latest = more.unique("work", keep="last", maintain_order=True)
    latest = latest.filter(
        (_col("end_ns") > work.select(ends=ends)["ends"].gather(latest["work"])).fill_null(value=True)
    )
    work = work.with_columns(before=work["before"].scatter(latest["work"], latest["before"].cast(pl.Int32)))
    edges = more.select("work", "before").cast(found.edges.schema)
    return replace(found, work=work, edges=pl.concat([found.edges, edges]).unique().sort("work", "before"))


def _launched_early(work: pl.DataFrame, trace: Tables) -> pl.Series:
    """Until when work without a call was launched at the latest: before the first launch of its stream that is in the
    file, if it began before what that launched; null: nobody knows."""
    rows = work.select("start_ns", "launch_ns", stream=_streams(trace).gather(work["row"]))
    first = (
        rows.drop_nulls("launch_ns")
        .group_by("stream")
        .agg(first_ns=_col("launch_ns").min(), begun_ns=_col("start_ns").min())
    )
    rows = rows.join(first, on="stream", how="left", maintain_order="left")
    early = pl.when(_col("launch_ns").is_null() & (_col("start_ns") < _col("begun_ns")))
    return rows.select(at_ns=early.then(pl.min_horizontal("start_ns", "first_ns")))["at_ns"]


def _streams(trace: Tables) -> pl.Series:
    return trace.work.select(stream=pl.struct(*PROCESS, "device_id", "stream_id").rank("dense"))["stream"]


def _unexplained(work: pl.DataFrame, ends: pl.Expr) -> pl.DataFrame:
    """work, before: the one that ended just before it began, where neither its launch nor its stream explain that."""
    ended = work.select("process", "end_ns", before=pl.int_range(pl.len(), dtype=pl.Int64)).sort("end_ns")
    rows = work.select(
        "process", "start_ns", since=pl.max_horizontal("launch_ns", ends), work=pl.int_range(pl.len(), dtype=pl.Int64)
    )
    rows = rows.filter(_col("start_ns") - _col("since") > CLOSE).sort("start_ns")
    rows = rows.join_asof(ended, left_on="start_ns", right_on="end_ns", by="process", check_sortedness=False)
    rows = rows.filter(_col("end_ns") > _col("since"), _col("start_ns") - _col("end_ns") <= CLOSE)
    return rows.select("work", "before")


def _by_events(found: Graph, trace: Tables) -> pl.DataFrame:
    """work, before: of the first work that a thread launches after it told a stream to wait for an event, the one that
    was launched last before on another stream. Nothing, where the file says itself what streams wait for."""
    nothing = pl.DataFrame(schema={"work": pl.Int64, "before": pl.Int64})
    if (trace.work["kind"] == "sync").any():
        return nothing
    names = trace.calls["name"].unique().drop_nulls()
    names = names.filter(names.cast(pl.String).str.contains(_WAIT_EVENT))
    calls = trace.calls.select(*_THREAD, "name", time_ns="start_ns").filter(_col("name").is_in(names.implode()))
    if not calls.height:
        return nothing
    calls = calls.drop_nulls("time_ns").join(found.threads, on=_THREAD, nulls_equal=True).sort("time_ns")
    launched = found.work.select(
        "process", _col("thread").cast(pl.Int64), "launch_ns", work=pl.int_range(pl.len(), dtype=pl.Int64)
    ).with_columns(stream=_streams(trace).gather(found.work["row"]))
    launched = launched.drop_nulls("launch_ns").sort("launch_ns", "work")
    is_other = _col("stream") != _col("stream").shift(1)
    other = pl.when(is_other).then(_col("work").shift(1)).forward_fill().over("process")
    launched = launched.with_columns(other=other)
    first = calls.join_asof(
        launched.select("thread", "launch_ns", "work", to="stream"),
        left_on="time_ns",
        right_on="launch_ns",
        by="thread",
        strategy="forward",
        check_sortedness=False,
    )
    last = first.drop_nulls("work").join_asof(
        launched.select("process", "launch_ns", "stream", "other", last="work"),
        left_on="time_ns",
        right_on="launch_ns",
        by="process",
        check_sortedness=False,
    )
    before = pl.when(_col("stream") == _col("to")).then("other").otherwise("last")
    return last.select("work", before=before).drop_nulls()
