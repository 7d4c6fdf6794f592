"""Estimates what a run would gain if computing hid its collectives, or if its devices took no time.

    backward_ns(rows, work) -> for each collective, the sum of the durations of the backward kernels that were launched
        before it on its device. Any other computing kernel resets the sum. Null if no kernel was launched before
    unhidden(rows) -> rank, pid, device_id, step, left_ns: how long collectives would stay exposed if they ran beside
        the backward
    savings_of(analysis) -> rank, pid, saves_ns: how much sooner a process would be done, at most, if its devices took
        no time
    knows_waits(analysis, graph, known, times) -> whether the waits of all hosts for devices are known. They are known
        if each process has calls that synchronise, and if a queue with a known limit explains nearly all time of slow
        launches in each process

`rows` are collectives with the columns of `Run.collectives`. A collective is exposed while its device runs nothing
else.

A bucket of gradients can be sent when its part of the backward is done. So the first of n collectives could begin after
1/n of the backward. The last one would stay exposed, because no computing is left to hide it. If the collectives take
longer than the rest of the backward, the excess would stay exposed. The longer of these two times is left_ns.

A process gains at most the time that its host waited for devices, and the time of the work after its last launch. A
faster device does not help a host that never waits.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis import Analysis
from opspan.analysis.averages import on_device
from opspan.analysis.path_graph import Graph
from opspan.analysis.path_threads import FOR_ROOM
from opspan.analysis.spans import DEVICE, PROCESS, THREAD, length, number_groups, union
from opspan.analysis.waits import DRAIN, SYNCHRONISE
from opspan.findings.lateness import waited_ns

_col = pl.col
_NEARLY = 0.9
_HARDLY = 0.01  # share of a process's time: slow launches without an explanation may take this much in sum
_LONG = 4  # a launch is unusually long if it takes more than this many times the usual time of its name


def backward_ns(rows: pl.DataFrame, work: pl.DataFrame) -> pl.Series:
    """Takes collectives (`rows`) with `at_ns`, the time at which the collective was launched, and the computing kernels
    (`work`) with `launched_ns`, `ns` and `phase`."""
    if not rows.height:
        return pl.Series("backward_ns", dtype=pl.Int64)
    work = work.drop_nulls("launched_ns").sort("launched_ns")
    is_backward = (_col("phase") == "backward").fill_null(value=False)
    work = work.with_columns(sum_ns=pl.when(is_backward).then("ns").otherwise(0).cum_sum().over(DEVICE))
    before = pl.when(~is_backward).then("sum_ns").forward_fill().over(DEVICE).fill_null(0)
    work = work.select(*DEVICE, "launched_ns", backward_ns=_col("sum_ns") - before)
    queries, work = number_groups(DEVICE, rows.select(*DEVICE, "at_ns").with_row_index("row").sort("at_ns"), work)
    rows = queries.join_asof(work, left_on="at_ns", right_on="launched_ns", by="of", check_sortedness=False)
    return rows.sort("row")["backward_ns"]


def unhidden(rows: pl.DataFrame) -> pl.DataFrame:
    """Returns only steps in which nearly all exposed time belongs to collectives that were launched after the whole
    backward. In all other steps collectives already overlap with the backward, so the network is too slow."""
    at = [*DEVICE, "step"]
    rows = rows.with_columns(ns=_col("exposed_ns") - waited_ns()).filter(_col("backward_ns") > 0, _col("ns") > 0)
    rows = rows.sort("start_ns").with_columns(all_ns=_col("ns").sum().over(at))
    rows = rows.filter(_col("backward_ns") == _col("backward_ns").max().over(at))
    facts = {"all_ns": _col("all_ns").first(), "count": pl.len(), "last_ns": _col("ns").last()}
    sums = rows.group_by(at).agg(_col("ns").sum(), _col("backward_ns").first(), **facts)
    sums = sums.filter(_col("count") > 1, _col("ns") >= _NEARLY * _col("all_ns"))
    beyond = _col("ns") - (_col("backward_ns") * (1 - 1 / _col("count"))).cast(pl.Int64)
    return sums.select(*at, left_ns=pl.max_horizontal("last_ns", beyond))


def savings_of(analysis: Analysis) -> pl.DataFrame:
    """Returns an upper bound of what each process can save: the time that its host waited for devices, and the time of
    its work after its last launch. A launch that takes far longer than usual counts as a wait, because it may have
    waited for room in a full queue. Processes without any call that synchronises are left out, because their files do
    not show when the host waited."""
    none = pl.DataFrame(schema={"rank": pl.Int32, "pid": pl.Int64, "saves_ns": pl.Int64})
    if not on_device(analysis.complete.work.select("kind", "is_overhead")).height:
        return none
    trace, waits = analysis.attributed, analysis.waits
    drains = waits.filter(_col("why").is_in(DRAIN)).select(*PROCESS, "start_ns", "end_ns")
    calls, long = _launching(analysis)
    ends = calls.group_by(PROCESS).agg(start_ns=_col("end_ns").max())  # the end of the last launch
    done = trace.work.group_by(PROCESS).agg(_col("end_ns").max())
    tail = ends.join(done, on=PROCESS, nulls_equal=True).filter(length() > 0)
    columns = [*PROCESS, "start_ns", "end_ns"]
    held = union(pl.concat(rows.select(columns) for rows in (drains, long, tail)), PROCESS)
    sums = held.group_by(PROCESS).agg(saves_ns=length().sum())
    known = waits.filter(_col("why") == SYNCHRONISE).select(PROCESS).unique()
    return known.join(sums, on=PROCESS, how="left", nulls_equal=True).with_columns(_col("saves_ns").fill_null(0))


def _launching(analysis: Analysis) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns the calls that launched work without waiting for the work. Also returns, as a second frame, the calls
    that took far longer than usual calls of the same name. In that frame, a call begins at the time at which a usual
    call would have ended."""
    trace = analysis.attributed
    launched = trace.work["call"].drop_nulls().unique()
    calls = trace.calls.select(*PROCESS, "tid", "name", "start_ns", "end_ns").with_row_index("call")[launched]
    calls = calls.join(analysis.waits.select("call"), on="call", how="anti").drop_nulls(("start_ns", "end_ns"))
    # In a damaged file the median may be too large for an integer. _LONG times this limit still fits.
    usual_ns = length().median().clip(upper_bound=2.0**60)
    calls = calls.with_columns(usual_ns=usual_ns.over(*PROCESS, "name").cast(pl.Int64))
    long = calls.filter(length() > _LONG * _col("usual_ns"))
    return calls, long.with_columns(start_ns=_col("start_ns") + _col("usual_ns"))


def knows_waits(analysis: Analysis, graph: Graph, known: pl.DataFrame, times: pl.DataFrame) -> bool:
    """Takes the result of `savings_of` as `known`, and rank, pid and time_ns of the processes as `times`."""
    if known.height < times.select(PROCESS).n_unique():
        return False
    joins = graph.joins.filter(_col("what") == FOR_ROOM, "is_last").join(graph.threads.drop("process"), on="thread")
    _, long = _launching(analysis)
    long = long.join(joins, left_on=[*THREAD, "end_ns"], right_on=[*THREAD, "time_ns"], how="anti", nulls_equal=True)
    sums = long.group_by(PROCESS).agg(ns=length().sum())
    times = times.group_by(PROCESS).agg(_col("time_ns").sum()).join(sums, on=PROCESS, nulls_equal=True)
    return not times.filter(_col("ns") > _HARDLY * _col("time_ns")).height
