"""Builds the graph that shows what waited for what. `path` walks through it from the end back, `what_if` from the start
forward. docs/analysis.md, "path", has the rules.

    graph(trace, steps, waits) -> Graph.

Work waits for the call that launched it, for the work before it on its stream, for events, and for other nodes of its
CUDA graph. A thread does one thing after the other. At a *join*, a thread may also wait for something else: for the
work that a call waits for, for another thread, or, if the launch queue is full, for the start of work (launch_queue).
The graph has only the joins of a thread. From the joins, the times of everything else on the thread can be computed.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from opspan.analysis.busy import busy_with, whole_times
from opspan.analysis.launch_queue import rooms
from opspan.analysis.launched import STREAM
from opspan.analysis.path_events import ON_STREAM, event_edges, last_ended, sync_rows, timing_edges, wait_call_edges
from opspan.analysis.path_threads import (
    FOR_ROOM,
    FOR_THREAD,
    FOR_WORK,
    JOINS,
    NONE,
    at_or_before,
    handovers,
    is_driving,
    main_threads,
    thread_numbers,
)
from opspan.analysis.replay_order import Order, order_of
from opspan.analysis.spans import PROCESS, only, sum_by
from opspan.analysis.waits import COPY, ITEM, SYNCHRONISE
from opspan.row_numbers import ROW_NUMBER
from opspan.tables.same import unlike

if TYPE_CHECKING:
    from opspan.tables import Tables

_col = pl.col
_WAITS_FOR_WORK = (SYNCHRONISE, COPY, ITEM)


@dataclass(frozen=True)
class Graph:
    """The processes, threads, work and joins of a trace. References between them are row numbers, or NONE."""

    # A row for each process: process, rank, pid, start_ns, end_ns, and:
    #   main, main_ns: the main thread, and the time when it was done.
    #   join: the last join of the main thread.
    #   last: the work that ended last, if it ended later than the main thread; otherwise NONE.
    #   last_ns: the time when the last work ended.
    processes: pl.DataFrame
    # A row for each thread: thread, process, rank, pid, tid.
    threads: pl.DataFrame
    # A row for each piece of work, in order of start_ns: process, row (in the trace's work), range, start_ns, end_ns,
    # what (its kind of time), and:
    #   launch_ns, thread: the time when the work was launched, and the thread that launched it.
    #   join: the last join of this thread before the launch.
    #   before: of all other work that it waited for, the work that ended last.
    work: pl.DataFrame
    # A row for each pair of pieces of work: `work` waited for `before`.
    edges: pl.DataFrame
    # A row for each join, in order of thread, time and reason: thread, process, time_ns, what (the reason), and:
    #   target_ns: the time when the wait was over, because work ended or began, or another thread was done.
    #   work: the work that ended or began, or NONE.
    #   other, entry: the other thread, and the last join of the other thread until target_ns; or NONE.
    #   own_ns: the time when the thread had nothing else left to do.
    #   is_last: whether target_ns is later than own_ns, so that the thread really waited.
    joins: pl.DataFrame

    @cached_property
    def order(self) -> Order:
        """The part of a replay that is the same for every change. It is computed once, because findings replay a graph
        several times."""
        return order_of(self.processes, self.work, self.edges, self.joins)


def graph(trace: Tables, steps: pl.DataFrame, waits: pl.DataFrame) -> Graph:
    processes = whole_times(trace).with_columns(end_ns=pl.max_horizontal("start_ns", "end_ns"))
    processes = processes.with_row_index("process").cast({"process": pl.Int64})
    with ThreadPoolExecutor(1) as pool:
        return _graph(pool, trace, steps, waits, processes)


def _graph(
    pool: ThreadPoolExecutor, trace: Tables, steps: pl.DataFrame, waits: pl.DataFrame, processes: pl.DataFrame
) -> Graph:
    working = pool.submit(_work, trace, processes)
    calls = trace.calls.select(*PROCESS, "tid", "start_ns", "end_ns", "api", "range").with_row_index("call")
    calls = _add_process(only(calls, _col("start_ns").is_not_null()), processes)
    calls = calls.with_columns(end_ns=pl.max_horizontal("start_ns", "end_ns"))
    ranges = trace.ranges.select(*PROCESS, "tid", "start_ns", "end_ns", "kind", "depth", "is_async", "is_mark")
    is_nested = ~_col("is_async") & ~_col("is_mark").fill_null(value=False) & _col("tid").is_not_null()
    ranges = only(ranges, is_nested & _col("start_ns").is_not_null() & (_col("end_ns") >= _col("start_ns")))
    ranges = _add_process(ranges, processes)
    threads = _threads(processes, ranges, calls)
    ranges, calls = (
        frame.with_columns(thread=thread_numbers(frame, threads, ("process", "tid"))) for frame in (ranges, calls)
    )
    main = main_threads(processes, threads, ranges, calls, steps)
    processes = processes.join(main, on="process", how="left", maintain_order="left")
    processes = processes.with_columns(_col("main").fill_null(NONE))
    done = pl.concat(frame.group_by("thread").agg(_col("end_ns").max()) for frame in (ranges, calls))
    done = done.group_by("thread").max()

    work = working.result()
    waiting = pool.submit(_edges, trace, work, calls)
    place = _places(calls, trace.calls.height)
    launched = _launches(work, calls, place, processes)
    has_work = np.zeros(trace.calls.height, dtype=bool)
    has_work[work["call"].drop_nulls().to_numpy()] = True
    driving = only(calls.with_columns(has_work=has_work[calls["call"].to_numpy()]), is_driving(calls["api"]))
    handed_over = handovers(processes, threads, ranges, driving)
    room = rooms(calls, place, trace.calls["name"], work, waits)
    joins = pl.concat((_wait_joins(trace, waits, calls, work), handed_over, room))
    joins = joins.sort("thread", "time_ns", "what", "target_ns", "work", "other")
    joins = joins.with_columns(is_last=_col("target_ns") > _col("own_ns"))
    work = work.with_columns(launched["launch_ns"], launched["thread"].cast(pl.Int32))
    edges, before = _with_inferred(*waiting.result(), trace, work, threads)
    work = work.select(
        *("process", "row", "range", "start_ns", "end_ns", "what", "launch_ns", "thread"),
        join=at_or_before(launched.select("thread", time_ns="launch_ns"), joins, "thread").cast(pl.Int32),
        before=before.cast(pl.Int32),
    )
    edges = edges.cast(ROW_NUMBER)  # a smaller type saves memory: there may be more edges than rows of work
    return Graph(_with_ends(processes, work, joins, done), threads, work, edges, _with_entries(joins))


def _with_ends(processes: pl.DataFrame, work: pl.DataFrame, joins: pl.DataFrame, done: pl.DataFrame) -> pl.DataFrame:
    """Adds to each process: main_ns (when its main thread was done), last (the work that ended last; NONE if the main
    thread was not done earlier), last_ns (when the last work ended), join (the last join of the main thread)."""
    every = work.select("process", "end_ns", last=pl.int_range(pl.len(), dtype=pl.Int64))
    latest = _col("end_ns").max()
    ended = sum_by(every, ("process",), last_ns=latest, last=_col("last").filter(_col("end_ns") == latest).last())
    done = done.rename({"thread": "main", "end_ns": "main_ns"})
    rows = processes.join(ended, on="process", how="left", maintain_order="left")
    rows = rows.join(done, on="main", how="left", maintain_order="left")
    is_later = (_col("last_ns") > _col("main_ns")) | _col("main_ns").is_null()
    join = at_or_before(rows.select(thread="main", time_ns="end_ns"), joins, "thread")
    return rows.with_columns(last=pl.when(is_later).then("last").fill_null(NONE), join=join)


def _add_process(frame: pl.DataFrame, processes: pl.DataFrame) -> pl.DataFrame:
    """Adds `process`, the number of each row's process in Graph.processes."""
    numbers = processes.select("process", *PROCESS)
    if numbers.height == 1:
        return frame.with_columns(process=pl.lit(numbers["process"][0], dtype=pl.Int64))
    rows = frame.join(numbers, on=PROCESS, how="left", nulls_equal=True, maintain_order="left")
    return rows.with_columns(_col("process").fill_null(NONE))


def _threads(processes: pl.DataFrame, *frames: pl.DataFrame) -> pl.DataFrame:
    key = ["tid"] if processes.height == 1 else ["process", "tid"]
    threads = pl.concat([frame.select(key).unique() for frame in frames]).unique().drop_nulls("tid")
    numbers = processes.select("process", *PROCESS)
    threads = threads.join(numbers, how="cross") if len(key) == 1 else threads.join(numbers, on="process")
    threads = threads.select("process", *PROCESS, "tid").sort("process", "tid")
    return threads.with_row_index("thread").cast({"thread": pl.Int64})


def _places(calls: pl.DataFrame, height: int) -> pl.Series:
    """Returns, for each row of the trace's table of calls, its row number in `calls`. `height` is the height of that
    table."""
    if calls.height == height:
        return calls["call"]
    every = pl.Series([None], dtype=ROW_NUMBER).new_from_index(0, height)
    return every.scatter(calls["call"], pl.int_range(calls.height, dtype=ROW_NUMBER, eager=True))


def _work(trace: Tables, processes: pl.DataFrame) -> pl.DataFrame:
    """Returns the work on devices, in order of start. Leaves out work that does not end later than it starts. The
    column `stream` has a number, counted from 0, for each distinct stream of each process."""
    columns = ("call", "range", "context_id", "stream_id")
    rows = busy_with(trace.work.with_row_index("row"), "row", *columns)
    rows = only(rows, _col("end_ns") > _col("start_ns"))
    rows = _add_process(rows, processes)
    start, end = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    is_after = (start[1:] > start[:-1]) | ((start[1:] == start[:-1]) & (end[1:] >= end[:-1]))
    rows = rows if is_after.all() else rows.sort("start_ns", "end_ns", "row")
    rows = rows.select("process", "row", "range", "call", *STREAM[2:], "start_ns", "end_ns", "what")
    key = unlike(("process", *STREAM[2:]), rows)
    if not key:
        return rows.with_columns(stream=pl.lit(0, dtype=ROW_NUMBER))
    streams = rows.select(key).unique().with_row_index("stream")
    return rows.join(streams, on=key, how="left", nulls_equal=True, maintain_order="left")


def _launches(work: pl.DataFrame, calls: pl.DataFrame, place: pl.Series, processes: pl.DataFrame) -> pl.DataFrame:
    """Returns, for each piece of work, when it was launched (null if unknown) and by which thread (NONE if unknown)."""
    called = calls.select("thread", called_ns="start_ns", returned_ns="end_ns")
    rows = called[place.gather(work["call"])] if calls.height else called.clear(work.height)
    main = processes["main"].gather(work["process"]) if work.height else work["process"]
    rows = rows.with_columns(work["start_ns"], main.alias("main"))
    returned = pl.when(_col("returned_ns") <= _col("start_ns")).then("returned_ns")
    called_ns = pl.when(_col("called_ns") <= _col("start_ns")).then("called_ns")
    thread = pl.when(_col("thread") == NONE).then("main").otherwise("thread")
    rows = rows.select(thread=thread, launch_ns=pl.coalesce(returned, called_ns))
    return rows.with_columns(thread=pl.when(_col("launch_ns").is_not_null()).then("thread").fill_null(NONE))


def _edges(trace: Tables, work: pl.DataFrame, calls: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
    """Returns the edges: pairs of `work` and the work `before` that it waited for. Also returns, for each row of work,
    the `before` that ended last."""
    rows = work.with_row_index("work").with_columns(_col("work").cast(pl.Int64), until_ns="start_ns")
    in_order = _before_on_stream(rows)
    edges = rows.select("work", before=in_order.set(in_order == NONE, None)).drop_nulls("before")
    more = [event_edges(trace, rows, work, calls)]
    called = work["call"].drop_nulls()
    if called.len() and int((counts := np.bincount(called.to_numpy())).max()) > 1:
        # If a call launched several pieces of work, it launched a CUDA graph, and the pieces are the graph's nodes. A
        # node may wait for a node on another stream.
        launches = pl.Series(np.flatnonzero(counts > 1), dtype=ROW_NUMBER)
        nodes = rows.filter(_col("call").is_in(launches.implode()))
        more.append(nodes.select("work", last_ended(nodes, work, ("process", "call")).alias("before")))
    return _with_more(edges, in_order, pl.concat(more).drop_nulls("before"), work)


def _with_inferred(
    edges: pl.DataFrame, before: pl.Series, trace: Tables, work: pl.DataFrame, threads: pl.DataFrame
) -> tuple[pl.DataFrame, pl.Series]:
    """Adds edges that are guessed, because the file does not state them (path_events.py). `work` must have launch_ns
    and thread."""
    edges, before = _with_more(edges, before, wait_call_edges(trace, work, threads), work)
    ends = work["end_ns"].gather(before.set(before == NONE, None))
    return _with_more(edges, before, timing_edges(work.with_columns(before_ns=ends)), work)


def _with_more(
    edges: pl.DataFrame, before: pl.Series, more: pl.DataFrame, work: pl.DataFrame
) -> tuple[pl.DataFrame, pl.Series]:
    more = more.filter(work["end_ns"].gather(more["before"]) <= work["start_ns"].gather(more["work"]))
    if not more.height:
        return edges, before
    edges = pl.concat([edges, more]).unique().sort("work", "before")
    return edges, latest(work, edges)


def _before_on_stream(work: pl.DataFrame) -> pl.Series:
    """Returns, for each row of work, the last work of the same stream that ended before the row's work began."""
    streams, start, end = (work[name].to_numpy() for name in ("stream", "start_ns", "end_ns"))
    before = np.full(work.height, NONE, dtype=np.int64)
    every = np.arange(work.height)
    if streams.size and streams.max():
        every = np.argsort(streams.astype(np.uint16) if streams.max() < 1 << 16 else streams, kind="stable")
    bounds = np.flatnonzero(np.diff(streams[every])) + 1
    for mine in np.split(every, bounds):
        # On most streams, each piece of work begins after the one before it has ended, so there is nothing to sort.
        if (start[mine[1:]] >= end[mine[:-1]]).all():
            before[mine[1:]] = mine[:-1]
            continue
        ended = mine[np.argsort(end[mine], kind="stable")]
        count = np.searchsorted(end[ended], start[mine], side="right")
        before[mine] = np.where(count > 0, ended[count - 1], NONE)
    return pl.Series("before", before)


def latest(work: pl.DataFrame, edges: pl.DataFrame) -> pl.Series:
    ends = edges.with_columns(work["end_ns"].gather(edges["before"]).alias("end_ns")).sort("work", "end_ns", "before")
    last = ends.unique("work", keep="last", maintain_order=True).select("work", "before")
    every = pl.DataFrame({"work": pl.int_range(work.height, dtype=pl.Int64, eager=True)})
    return every.join(last, on="work", how="left", maintain_order="left")["before"].fill_null(NONE)


def _wait_joins(trace: Tables, waits: pl.DataFrame, calls: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """Returns the joins at the ends of calls that wait for work."""
    rows = waits.select("call", _col("why").cast(pl.String)).filter(_col("why").is_in(_WAITS_FOR_WORK))
    rows = rows.join(calls.select("call", "process", "thread", "start_ns", "end_ns"), on="call", maintain_order="left")
    rows = rows.filter(_col("end_ns") > _col("start_ns"), _col("thread") != NONE).with_columns(until_ns="end_ns")
    if not rows.height:
        return pl.DataFrame(schema=JOINS)
    copies = last_ended(rows, work, ("process", "call"))
    sync = sync_rows(trace, work).unique("call", keep="first", maintain_order=True)
    rows = rows.join(sync, on="call", how="left", maintain_order="left")
    is_of_stream = _col("name").str.contains(r"(?i)^stream.sync").fill_null(value=False)
    is_of_event = _col("name").str.contains(r"(?i)^event.sync").fill_null(value=False) & (_col("wait_on") >= 0)
    rows = rows.with_columns(
        stream_id=pl.when(is_of_event.fill_null(value=False)).then("wait_on").otherwise("stream_id"),
        has_stream=is_of_stream | is_of_event.fill_null(value=False),
    )
    of_stream = last_ended(rows, work, ON_STREAM)
    of_process = last_ended(rows, work, ("process",))
    of_both = pl.when(_col("has_stream")).then(of_stream).otherwise(of_process)
    target = rows.select(pl.coalesce(copies, of_both).alias("work"))["work"]
    joins = rows.select(
        "thread",
        "process",
        time_ns="end_ns",
        what=pl.lit(FOR_WORK, dtype=pl.Int64),
        target_ns=work["end_ns"].gather(target),
        work=target,
        other=pl.lit(NONE, dtype=pl.Int64),
        own_ns="start_ns",
    )
    return joins.drop_nulls("work").select(*JOINS)


def _with_entries(joins: pl.DataFrame) -> pl.DataFrame:
    """Adds `entry`: for a join with another thread, the last join of that thread until target_ns. At target_ns, the
    other thread may also get something new to do, which is a join, too. This join does not count if the wait is for the
    other thread to be done."""
    targets = joins.select(thread="other", time_ns="target_ns")
    any_of = at_or_before(targets, joins, "thread")
    numbered = joins.with_row_index("number").cast({"number": pl.Int64})
    waits = numbered.filter(_col("what").is_in([FOR_WORK, FOR_ROOM]))
    done = at_or_before(targets, waits, "thread")
    done = pl.select(done=pl.when(done != NONE).then(waits["number"].gather(done.set(done == NONE, None)))).to_series()
    earlier = at_or_before(targets, joins, "thread", strict=True)
    of_thread = pl.max_horizontal(pl.lit(done).fill_null(NONE), pl.lit(earlier))
    entry = pl.select(pl.when(pl.lit(joins["what"]) == FOR_THREAD).then(of_thread).otherwise(pl.lit(any_of)))
    return joins.with_columns(entry=entry.to_series().cast(pl.Int64))
