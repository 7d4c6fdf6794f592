"""When a device had nothing to do, why, and what the host was in meanwhile.

    gaps(trace) -> rank, pid, device_id, start_ns, end_ns, next, tid, why, and in ns
        host_ns      until the host began the call that launched what came next: it came late
        launch_ns    from then on
        queued_ns    the launch had begun before the gap did: it waited for another stream or rank, or on the device
        unknown_ns   the call is not in the trace, or nothing came any more, or the process used more devices
                     than any machine has
    gaps_of_streams(trace) -> the same for each stream: rank, pid, device_id, context_id, stream_id, ..., and
        elsewhere_ns  for how long of it another stream of the device was busy
    meanwhile(ranges, gaps) -> gap, range, ns: the time host_ns of each gap, by the innermost range that the launching
        thread was in; null: in none

    parts(trace, gaps) -> gap, range, why, ns: all of each gap: host_ns as `meanwhile` has it, the rest by the range of
        what came next
    in_functions(trace, gaps) -> gap, function, why, ns: the same by functions, rows of the table functions: the one
        that the host was in, in a range or outside of all

A gap is a stretch of the process' whole time in which nothing of it ran on a device that it used: those of a device add
up to its idle time. `next`: row of the work that ended it, null at the end; `tid`: the thread that launched that;
`why`: which of the four times is the longest. `trace`: attributed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from opspan import native
from opspan.analysis.averages import on_device
from opspan.analysis.busy import whole_times, within_part
from opspan.analysis.functions import spans_of
from opspan.analysis.launched import STREAM
from opspan.analysis.nest import THREAD_KEY, innermost, openings
from opspan.analysis.spans import (
    DEVICE,
    PROCESS,
    distinct,
    in_order,
    length,
    looked_up,
    numbered,
    only,
    time_in,
    union,
    within,
)

if TYPE_CHECKING:
    from opspan.tables import Tables

_col = pl.col
WHY = ("host", "launch", "queued", "unknown")
REASON = pl.Enum(WHY)
_THREAD = (*PROCESS, "tid")
# A process with more devices is not explained: each gap is cut by all ranges in it, and a made file with a kernel on
# each of many devices has as many long gaps. Machines have 64 devices at most, as many as a mask of them has bits.
_MOST_DEVICES = 256
_GAP = ("start_ns", "end_ns", "next", "tid", "why", *(f"{name}_ns" for name in WHY))


def gaps(trace: Tables) -> pl.DataFrame:
    columns = (*DEVICE, "start_ns", "end_ns", "kind", "is_overhead", "call")
    work = on_device(trace.work.select(columns).with_row_index("row"))
    busy = within_part(union(work, DEVICE), trace)
    whole = within_part(whole_times(trace), trace)
    calls = trace.calls.select("tid", call_ns="start_ns")
    called = calls[work["call"]] if calls.height else calls.clear(work.height)
    work = work.select(*DEVICE, "start_ns", "end_ns", "row").hstack(called)
    # A device whose work has no length, by a clock too coarse for it, was used as well: all of its time is idle.
    used = distinct(work, DEVICE).join(whole, on=PROCESS, nulls_equal=True).sort(DEVICE)
    used, busy, work = numbered(DEVICE, used, busy, work)
    # Gaps begin with the whole time and where the device was busy last; they end where it is next, and with the time.
    busy = busy.filter(_col("of").is_in(used["of"].implode()))
    begins = in_order(pl.concat([used.select("of", ns="start_ns"), busy.select("of", ns="end_ns")]), "of")
    ends = in_order(pl.concat([busy.select("of", ns="start_ns"), used.select("of", ns="end_ns")]), "of")
    found = begins.select("of", start_ns="ns", end_ns=ends["ns"]).filter(length() > 0)
    found = looked_up(found, used.select(*DEVICE, "of"), ("of",))
    found = _with_next(found, work)
    if used.height > _MOST_DEVICES:
        several = used.filter(pl.len().over(PROCESS) > _MOST_DEVICES)
        found = found.with_columns(call_ns=pl.when(~_col("of").is_in(several["of"].implode())).then("call_ns"))
    return _with_reasons(found).select(*DEVICE, *_GAP)


def before_work_ns(trace: Tables, gaps: pl.DataFrame) -> int:
    """Returns how long the devices of a trace, together, were idle before the first work of each."""
    begins = within_part(whole_times(trace), trace).select(*PROCESS, "start_ns")
    first = gaps.drop_nulls("next").join(begins, on=[*PROCESS, "start_ns"], how="semi", nulls_equal=True)
    return int(first.select(length().sum()).item())


def gaps_of_streams(trace: Tables) -> pl.DataFrame:
    """All streams at once: there may be thousands."""
    columns = (*STREAM, "start_ns", "end_ns", "kind", "is_overhead", "call")
    work = on_device(trace.work.select(columns).with_row_index("row")).drop_nulls(("start_ns", "end_ns"))
    streams = distinct(work, STREAM).sort(STREAM).with_row_index("stream")
    times = within_part(whole_times(trace), trace).rename({"start_ns": "begin_ns", "end_ns": "close_ns"})
    streams = streams.join(times, on=PROCESS, nulls_equal=True, maintain_order="left")
    work = work.join(streams.select(*STREAM, "stream"), on=STREAM, nulls_equal=True)
    calls = trace.calls.select("tid", call_ns="start_ns")
    work = work.hstack(calls[work["call"]] if calls.height else calls.clear(work.height))
    ran = work.filter(length() > 0).select("stream", "start_ns", "end_ns", "row", "tid", "call_ns")
    edges = [pl.lit(None, dtype=ran.schema[name]).alias(name) for name in ("row", "tid", "call_ns")]
    begins = streams.select("stream", start_ns="begin_ns", end_ns="begin_ns").with_columns(edges)
    closes = streams.select("stream", start_ns="close_ns", end_ns="close_ns").with_columns(edges)
    bounds = streams.select("stream", "begin_ns", "close_ns")
    ran = ran.join(bounds, on="stream", maintain_order="left").filter(
        _col("end_ns") > _col("begin_ns"), _col("start_ns") < _col("close_ns")
    )
    rows = pl.concat([begins, ran.drop("begin_ns", "close_ns"), closes])
    # Of several that begin together, that which was launched first is what ended the gap.
    rows = rows.sort("stream", "start_ns", "call_ns", "row", nulls_last=True)
    until = _col("end_ns").cum_max().over("stream").shift(1)
    is_same = _col("stream") == _col("stream").shift(1)
    found = rows.with_columns(end_ns=_col("start_ns"), start_ns=pl.when(is_same).then(until), next="row")
    found = found.filter(_col("start_ns") < _col("end_ns")).join(streams, on="stream", maintain_order="left")
    elsewhere = time_in(work.select(*DEVICE, "start_ns", "end_ns"), found, DEVICE).alias("elsewhere_ns")
    return _with_reasons(found).select(*STREAM, *_GAP).with_columns(elsewhere)


def _with_reasons(found: pl.DataFrame) -> pl.DataFrame:
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
    why = pl.coalesce(pl.when(_col(f"{name}_ns") == most).then(pl.lit(name, dtype=REASON)) for name in WHY)
    return found.with_columns(why=why)


def _with_next(found: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """With the work that each gap of a device ends with: of several that begin then, the one that was launched first.
    `work`: all that ran; `of`: on which device."""
    ran = only(work, length() > 0)
    moments = found.select("of", start_ns="end_ns", end_ns=_col("end_ns") + 1)
    pairs = within(ran, "start_ns", moments, ("of",))
    if (pairs["stretch"] == pairs["stretch"].shift(1)).any():
        pairs = pairs.hstack(ran.select("call_ns", number="row")[pairs["row"]])
        pairs = pairs.sort("stretch", "call_ns", "number", nulls_last=True)
        pairs = pairs.unique("stretch", keep="first", maintain_order=True)
    place = pl.Series([None], dtype=pl.UInt32).new_from_index(0, found.height).scatter(pairs["stretch"], pairs["row"])
    return found.hstack(ran.select("tid", "call_ns", next="row")[place])


def meanwhile(ranges: pl.DataFrame, found: pl.DataFrame) -> pl.DataFrame:
    pieces = _pieces(_late(found), openings(ranges))
    return pieces.group_by("gap", "range", maintain_order=True).agg(_col("ns").sum())


def _late(found: pl.DataFrame) -> pl.DataFrame:
    """The host's part of each gap."""
    late = found.with_row_index("gap").filter(_col("host_ns") > 0)
    return late.select("gap", *_THREAD, "start_ns", end_ns=_col("start_ns") + _col("host_ns"))


def _pieces(late: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """The stretches of `late`, cut where any span begins or ends on the same thread: gap, its thread, time_ns, ns, and
    the range that it is in, by its row in `spans`."""
    nothing, no_kind = (pl.lit(None, dtype=dtype) for dtype in (pl.UInt32, pl.UInt8))
    pieces = native.cut(late.select(*THREAD_KEY, "start_ns", "end_ns", range=nothing, kind=no_kind), spans)
    whose = late.select("gap", *_THREAD)[pieces["stretch"]]
    return whose.with_columns(pieces.select("range", time_ns="start_ns", ns=_col("end_ns") - _col("start_ns")))


def parts(trace: Tables, found: pl.DataFrame) -> pl.DataFrame:
    host = meanwhile(trace.ranges, found).select("gap", "range", pl.lit("host", dtype=REASON).alias("why"), "ns")
    launched_in = trace.work["range"].gather(found["next"])
    return pl.concat([host, *_rest(found, launched_in.alias("range"))])


def _rest(found: pl.DataFrame, whose: pl.Series) -> list[pl.DataFrame]:
    """What of each gap is not the host's, by `whose` it is."""
    numbered = found.with_columns(whose).with_row_index("gap")
    return [
        numbered.filter(_col(f"{why}_ns") > 0).select(
            "gap", whose.name, pl.lit(why, dtype=REASON).alias("why"), ns=f"{why}_ns"
        )
        for why in WHY[1:]
    ]


def in_functions(trace: Tables, found: pl.DataFrame) -> pl.DataFrame:
    ranges, functions = trace.ranges, spans_of(trace.functions, trace.ranges)
    cuts = functions.select(*THREAD_KEY, "start_ns", "end_ns", is_async=pl.lit(False), kind=pl.lit(0, dtype=pl.UInt8))
    pieces = _pieces(_late(found), pl.concat([openings(ranges), cuts]))
    range_, function = pieces["range"], innermost(functions, pieces)
    # A range may be around functions as well: the host was in what began last.
    is_inside = functions["start_ns"].gather(function) > ranges["start_ns"].gather(range_)
    function = function.zip_with(is_inside | range_.is_null(), ranges["function"].gather(range_))
    host = pieces.select("gap", function.alias("function"), pl.lit("host", dtype=REASON).alias("why"), "ns")
    launched_in = ranges["function"].gather(trace.work["range"].gather(found["next"]))
    if trace.calls.height:
        launches = trace.calls.select(*_THREAD, time_ns="start_ns")[trace.work["call"].gather(found["next"])]
        launched_in = launched_in.zip_with(launched_in.is_not_null(), innermost(functions, launches))
    return pl.concat([host, *_rest(found, launched_in.alias("function"))])
