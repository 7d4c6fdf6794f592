"""Finds the gaps in which a device was idle, the reasons of the gaps, and the ranges that the host was in meanwhile.

    gaps(trace) -> rank, pid, device_id, start_ns, end_ns, next, tid, why, and these columns in ns:
        host_ns: time until the host began the call that launched the next work: the host was late.
        launch_ns: time from the start of that call to the start of the work: the launch took this time.
        queued_ns: time of the gap if the call began before the gap: the work waited for another stream, another rank or
            the device.
        unknown_ns: time of the gap if the call is not in the trace, or no work followed, or the process used more
            devices than any machine has.
    gaps_of_streams(trace) -> the gaps of each stream, with the columns of `gaps`, context_id, stream_id, and:
        elsewhere_ns: time of the gap in which another stream of the device was busy.

    meanwhile(ranges, gaps) -> gap, range, ns: host_ns of each gap, divided among the innermost ranges that the
        launching thread was in (null outside of ranges).
    parts(trace, gaps) -> gap, range, why, ns: the time of each gap. host_ns is divided as in `meanwhile`; the rest
        belongs to the range that launched the next work.
    in_functions(trace, gaps) -> gap, function, why, ns: the time of each gap, divided among functions (rows of the
        table functions) instead of ranges. This also works if the host is in no range.
    in_sampled_functions(trace, gaps) -> gap, sample, function (a name), why, ns: the time of each gap. host_ns is
        divided equally among the samples that the launching thread was taken in meanwhile, and belongs to the innermost
        function of each. The host's time without samples, and all other time, belong to no function and no sample.

A gap is a stretch of time in which a process ran nothing on a device that it used, so the gaps of a device add up to
its idle time. `next` is the row of the work that ended the gap, null if no work followed. `tid` is the thread that
launched this work. `why` names the longest of the four times. `trace` must be attributed.
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
from opspan.analysis.samples import innermost_functions, of_time
from opspan.analysis.spans import (
    DEVICE,
    PROCESS,
    THREAD,
    distinct,
    in_order,
    length,
    look_up,
    number_groups,
    only,
    time_in,
    union,
    within,
)
from opspan.row_numbers import ROW_NUMBER

if TYPE_CHECKING:
    from opspan.tables import Tables

_col = pl.col
WHY = ("host", "launch", "queued", "unknown")
REASON = pl.Enum(WHY)
# If a process uses more devices than this, the reason of the gaps is `unknown`. Each gap is cut by all ranges in it, so
# a crafted file with many devices would take very long. Real machines have at most 64 devices.
_MOST_DEVICES = 256
_GAP = ("start_ns", "end_ns", "next", "tid", "why", *(f"{name}_ns" for name in WHY))


def gaps(trace: Tables) -> pl.DataFrame:
    columns = (*DEVICE, "start_ns", "end_ns", "kind", "is_overhead", "call")
    work = on_device(trace.work.select(columns).with_row_index("row"))
    busy = within_part(union(work, DEVICE), trace)
    wholes = within_part(whole_times(trace), trace)
    calls = trace.calls.select("tid", call_ns="start_ns")
    called = calls[work["call"]] if calls.height else calls.clear(work.height)
    work = work.select(*DEVICE, "start_ns", "end_ns", "row").hstack(called)
    # If a coarse clock gives all work of a device the length 0, the device counts as used, and all of its time as idle.
    used = distinct(work, DEVICE).join(wholes, on=PROCESS, nulls_equal=True).sort(DEVICE)
    used, busy, work = number_groups(DEVICE, used, busy, work)
    # A gap begins when the process begins or when work ends. It ends when work begins or when the process ends.
    busy = busy.filter(_col("of").is_in(used["of"].implode()))
    begins = in_order(pl.concat([used.select("of", ns="start_ns"), busy.select("of", ns="end_ns")]), "of")
    ends = in_order(pl.concat([busy.select("of", ns="start_ns"), used.select("of", ns="end_ns")]), "of")
    rows = begins.select("of", start_ns="ns", end_ns=ends["ns"]).filter(length() > 0)
    rows = look_up(rows, used.select(*DEVICE, "of"), ("of",))
    rows = _with_next(rows, work)
    if used.height > _MOST_DEVICES:
        several = used.filter(pl.len().over(PROCESS) > _MOST_DEVICES)
        rows = rows.with_columns(call_ns=pl.when(~_col("of").is_in(several["of"].implode())).then("call_ns"))
    return _with_reasons(rows).select(*DEVICE, *_GAP)


def before_work_ns(trace: Tables, gaps: pl.DataFrame) -> int:
    """Returns the idle time of each device before its first work, summed over all devices."""
    begins = within_part(whole_times(trace), trace).select(*PROCESS, "start_ns")
    first = gaps.drop_nulls("next").join(begins, on=[*PROCESS, "start_ns"], how="semi", nulls_equal=True)
    return int(first.select(length().sum()).item())


def gaps_of_streams(trace: Tables) -> pl.DataFrame:
    """Returns the gaps of all streams. Handles all streams at once, because there may be thousands."""
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
    # If several kernels or copies begin at the same time, the one that was launched first ended the gap.
    rows = rows.sort("stream", "start_ns", "call_ns", "row", nulls_last=True)
    until = _col("end_ns").cum_max().over("stream").shift(1)
    is_same = _col("stream") == _col("stream").shift(1)
    gaps = rows.with_columns(end_ns=_col("start_ns"), start_ns=pl.when(is_same).then(until), next="row")
    gaps = gaps.filter(_col("start_ns") < _col("end_ns")).join(streams, on="stream", maintain_order="left")
    elsewhere = time_in(work.select(*DEVICE, "start_ns", "end_ns"), gaps, DEVICE).alias("elsewhere_ns")
    return _with_reasons(gaps).select(*STREAM, *_GAP).with_columns(elsewhere)


def _with_reasons(gaps: pl.DataFrame) -> pl.DataFrame:
    is_known = _col("call_ns").is_not_null() & (_col("call_ns") <= _col("end_ns"))
    is_late = is_known & (_col("call_ns") >= _col("start_ns"))

    def when(condition: pl.Expr, ns: pl.Expr) -> pl.Expr:
        return pl.when(condition).then(ns).otherwise(0)

    gaps = gaps.with_columns(
        host_ns=when(is_late, _col("call_ns") - _col("start_ns")),
        launch_ns=when(is_late, _col("end_ns") - _col("call_ns")),
        queued_ns=when(is_known & ~is_late, length()),
        unknown_ns=when(~is_known, length()),
    )
    most = pl.max_horizontal(f"{name}_ns" for name in WHY)
    why = pl.coalesce(pl.when(_col(f"{name}_ns") == most).then(pl.lit(name, dtype=REASON)) for name in WHY)
    return gaps.with_columns(why=why)


def _with_next(gaps: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """Adds the work that ended each gap of a device. If several kernels or copies begin when a gap ends, the one that
    was launched first is added. Equal values of `of` mean the same device."""
    ran = only(work, length() > 0)
    moments = gaps.select("of", start_ns="end_ns", end_ns=_col("end_ns") + 1)
    pairs = within(ran, "start_ns", moments, ("of",))
    if (pairs["stretch"] == pairs["stretch"].shift(1)).any():
        pairs = pairs.hstack(ran.select("call_ns", number="row")[pairs["row"]])
        pairs = pairs.sort("stretch", "call_ns", "number", nulls_last=True)
        pairs = pairs.unique("stretch", keep="first", maintain_order=True)
    place = pl.Series([None], dtype=ROW_NUMBER).new_from_index(0, gaps.height).scatter(pairs["stretch"], pairs["row"])
    return gaps.hstack(ran.select("tid", "call_ns", next="row")[place])


def meanwhile(ranges: pl.DataFrame, gaps: pl.DataFrame) -> pl.DataFrame:
    pieces = _pieces(_late(gaps), openings(ranges))
    return pieces.group_by("gap", "range", maintain_order=True).agg(_col("ns").sum())


def _late(gaps: pl.DataFrame) -> pl.DataFrame:
    """Returns the first part of each gap, in which the device waited for the host."""
    late = gaps.with_row_index("gap").filter(_col("host_ns") > 0)
    return late.select("gap", *THREAD, "start_ns", end_ns=_col("start_ns") + _col("host_ns"))


def _pieces(late: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Cuts the stretches of `late` where any span begins or ends on the same thread. Returns the pieces: gap, the
    columns of the thread, time_ns (the start), ns, and range (the row of the innermost span)."""
    nothing, no_kind = (pl.lit(None, dtype=dtype) for dtype in (ROW_NUMBER, pl.UInt8))
    pieces = native.cut(late.select(*THREAD_KEY, "start_ns", "end_ns", range=nothing, kind=no_kind), spans)
    threads = late.select("gap", *THREAD)[pieces["stretch"]]
    return threads.with_columns(pieces.select("range", time_ns="start_ns", ns=_col("end_ns") - _col("start_ns")))


def parts(trace: Tables, gaps: pl.DataFrame) -> pl.DataFrame:
    host = meanwhile(trace.ranges, gaps).select("gap", "range", pl.lit("host", dtype=REASON).alias("why"), "ns")
    launched_in = trace.work["range"].gather(gaps["next"])
    return pl.concat([host, *_rest(gaps, launched_in.alias("range"))])


def _rest(gaps: pl.DataFrame, owners: pl.Series) -> list[pl.DataFrame]:
    """Returns the times of each gap other than host_ns. `owners` has the range or function that gets them."""
    rows = gaps.with_columns(owners).with_row_index("gap")
    return [
        rows.filter(_col(f"{why}_ns") > 0).select(
            "gap", owners.name, pl.lit(why, dtype=REASON).alias("why"), ns=f"{why}_ns"
        )
        for why in WHY[1:]
    ]


def in_functions(trace: Tables, gaps: pl.DataFrame) -> pl.DataFrame:
    ranges, functions = trace.ranges, spans_of(trace.functions, trace.ranges)
    cuts = functions.select(*THREAD_KEY, "start_ns", "end_ns", is_async=pl.lit(False), kind=pl.lit(0, dtype=pl.UInt8))
    pieces = _pieces(_late(gaps), pl.concat([openings(ranges), cuts]))
    range_, function = pieces["range"], innermost(functions, pieces)
    # A range may lie inside a function or around it. The inner one of the two began last.
    is_inside = functions["start_ns"].gather(function) > ranges["start_ns"].gather(range_)
    function = function.zip_with(is_inside | range_.is_null(), ranges["function"].gather(range_))
    host = pieces.select("gap", function.alias("function"), pl.lit("host", dtype=REASON).alias("why"), "ns")
    launched_in = ranges["function"].gather(trace.work["range"].gather(gaps["next"]))
    if trace.calls.height:
        launches = trace.calls.select(*THREAD, time_ns="start_ns")[trace.work["call"].gather(gaps["next"])]
        launched_in = launched_in.zip_with(launched_in.is_not_null(), innermost(functions, launches))
    return pl.concat([host, *_rest(gaps, launched_in.alias("function"))])


def in_sampled_functions(trace: Tables, gaps: pl.DataFrame) -> pl.DataFrame:
    late = _late(gaps).with_columns(ns=length())
    samples = of_time(trace.samples.with_row_index("sample")).drop_nulls(("tid", "time_ns"))
    pairs = within(samples, "time_ns", late, THREAD).sort("stretch", maintain_order=True)
    rows = samples.select("sample", "stack", "libraries")[pairs["row"]]
    rows = rows.hstack(late.select("gap", "ns")[pairs["stretch"]])
    count, nth = pl.len().over("gap").cast(pl.Int64), pl.int_range(pl.len()).over("gap")
    # Whole nanoseconds are divided so that the sum stays the same.
    share = _col("ns") // count + (nth < _col("ns") % count)
    host = pl.lit("host", dtype=REASON).alias("why")
    sampled = rows.select("gap", "sample", innermost_functions(rows), host, share.alias("ns"))
    unseen = late.join(rows, on="gap", how="anti", maintain_order="left").select("gap", host, "ns")
    nobody = pl.Series("function", [None], dtype=pl.Categorical)
    rest = pl.concat([unseen, *(one.drop("function") for one in _rest(gaps, nobody.new_from_index(0, gaps.height)))])
    rest = rest.with_columns(sample=pl.lit(None, dtype=ROW_NUMBER), function=pl.lit(None, dtype=pl.Categorical))
    return pl.concat([sampled, rest.select(sampled.columns)])
