"""When a device had nothing to do, why, and what the host was in meanwhile.

    gaps(trace) -> rank, pid, device_id, start_ns, end_ns, next, tid, why, and in ns
        host_ns      until the host began the call that launched what came next: it came late
        launch_ns    from then on
        queued_ns    the launch had begun before the gap did: it waited for another stream or rank, or on the device
        unknown_ns   the call is not in the trace, or nothing came any more
    meanwhile(ranges, gaps) -> gap, range, ns: the time host_ns of each gap, by the innermost range that the launching
        thread was in; null: in none

    parts(trace, gaps) -> gap, range, why, ns: all of each gap: host_ns as `meanwhile` has it, the rest by the range of
        what came next

A gap is a stretch of the process' whole time in which nothing of it ran on a device that it used: those of a device add
up to its idle time. `next`: row of the work that ended it, null at the end; `tid`: the thread that launched that;
`why`: which of the four times is the longest. `trace`: attributed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from opspan.analysis.averages import on_device
from opspan.analysis.busy import whole_times
from opspan.analysis.nest import innermost
from opspan.analysis.spans import DEVICE, PROCESS, apart, length, union, within

if TYPE_CHECKING:
    from opspan.tables import Tables

_col = pl.col
WHY = ("host", "launch", "queued", "unknown")
_THREAD = (*PROCESS, "tid")


def gaps(trace: Tables) -> pl.DataFrame:
    columns = (*DEVICE, "start_ns", "end_ns", "kind", "is_overhead", "call")
    work = on_device(trace.work.select(columns).with_row_index("row"))
    busy = union(work, DEVICE)
    whole = whole_times(trace).rename({"start_ns": "begin_ns", "end_ns": "close_ns"})
    # A device whose work has no length, by a clock too coarse for it, was used as well: all of its time is idle.
    ends = work.select(DEVICE).unique().join(whole, on=PROCESS, nulls_equal=True)
    between = pl.concat(
        [
            ends.select(*DEVICE, start_ns="begin_ns", end_ns="begin_ns"),
            busy,
            ends.select(*DEVICE, start_ns="close_ns", end_ns="close_ns"),
        ]
    ).sort(*DEVICE, "start_ns", "end_ns")
    found = between.select(*DEVICE, start_ns="end_ns", end_ns=_col("start_ns").shift(-1).over(DEVICE))
    found = found.filter(length() > 0)
    calls = trace.calls.select("tid", call_ns="start_ns")
    called = calls[work["call"]] if calls.height else calls.clear(work.height)
    found = _with_next(found, work.select("row", *DEVICE, "start_ns", "end_ns").hstack(called))
    is_known = _col("call_ns").is_not_null() & (_col("call_ns") <= _col("end_ns"))
    is_late = is_known & (_col("call_ns") >= _col("start_ns"))

    def when(condition: pl.Expr, ns: pl.Expr) -> pl.Expr:
        return pl.when(condition).then(ns).otherwise(0)

    found = found.with_columns(
        host_ns=when(is_late, _col("call_ns") - _col("start_ns")),
        launch_ns=when(is_late, _col("end_ns") - _col("call_ns")),
        queued_ns=when(is_known & ~is_late, length()),
        unknown_ns=when(~is_known, length()),
    )
    most = pl.max_horizontal(f"{name}_ns" for name in WHY)
    why = pl.coalesce(pl.when(_col(f"{name}_ns") == most).then(pl.lit(name)) for name in WHY)
    times = [f"{name}_ns" for name in WHY]
    return found.with_columns(why=why).select(*DEVICE, "start_ns", "end_ns", "next", "tid", "why", *times)


def _with_next(found: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """With the work that each gap ends with: of several that begin then, the one that was launched first."""
    columns = ("row", "tid", "call_ns")
    parts, work_of = [], apart(work.filter(length() > 0), DEVICE)
    for key, mine in apart(found, DEVICE).items():
        first = work_of.get(key, work.clear()).sort("start_ns", "call_ns", "row", nulls_last=True)
        place = first["start_ns"].search_sorted(mine["end_ns"], side="left")
        next_ = first.select(*columns, begins_ns="start_ns")[place.set(place == first.height, None)]
        is_next = next_["begins_ns"] == mine["end_ns"]
        parts.append(mine.hstack(next_.select(pl.when(is_next).then(_col(name)).alias(name) for name in columns)))
    none = found.clear().hstack(work.clear().select(columns))
    return pl.concat([none, *parts]).sort(*DEVICE, "start_ns").rename({"row": "next"})


def meanwhile(ranges: pl.DataFrame, found: pl.DataFrame) -> pl.DataFrame:
    late = found.with_row_index("gap").filter(_col("host_ns") > 0)
    late = late.select("gap", *_THREAD, "start_ns", end_ns=_col("start_ns") + _col("host_ns"))
    times = ranges.select(*_THREAD, "start_ns", "end_ns", "is_mark")
    whole = times.filter(~_col("is_mark").fill_null(value=False))
    changes = pl.concat(whole.select(*_THREAD, time_ns=name) for name in ("start_ns", "end_ns")).drop_nulls("time_ns")
    inside = within(changes, "time_ns", late, _THREAD)
    pieces = pl.concat(
        [
            late.select("gap", *_THREAD, time_ns="start_ns"),
            changes[inside["row"]].select(late["gap"].gather(inside["stretch"]), *_THREAD, "time_ns"),
        ]
    ).unique(["gap", "time_ns"])
    pieces = pieces.join(late.select("gap", "end_ns"), on="gap").sort("gap", "time_ns")
    until = pl.coalesce(_col("time_ns").shift(-1).over("gap"), "end_ns")
    pieces = pieces.with_columns(range=innermost(ranges, pieces), ns=until - _col("time_ns"))
    return pieces.filter(_col("ns") > 0).group_by("gap", "range", maintain_order=True).agg(_col("ns").sum())


def parts(trace: Tables, found: pl.DataFrame) -> pl.DataFrame:
    host = meanwhile(trace.ranges, found).select("gap", "range", pl.lit("host").alias("why"), "ns")
    launched_in = trace.work["range"].gather(found["next"])
    numbered = found.with_columns(launched_in.alias("range")).with_row_index("gap")
    rest = [
        numbered.filter(_col(f"{why}_ns") > 0).select("gap", "range", pl.lit(why).alias("why"), ns=f"{why}_ns")
        for why in WHY[1:]
    ]
    return pl.concat([host, *rest])
