"""When a device had nothing to do, why, and what the host was in meanwhile.

    gaps(trace) -> rank, pid, device_id, start_ns, end_ns, next, tid, why, and in ns
        host_ns      until the host began the call that launched what came next: it came late
        launch_ns    from then on
        queued_ns    the launch had begun before the gap did: it waited for another stream or rank, or on the device
        unknown_ns   the call is not in the trace, or nothing came any more
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

from opspan.analysis.averages import on_device
from opspan.analysis.busy import whole_times, within_part
from opspan.analysis.functions import spans_of
from opspan.analysis.launched import STREAM
from opspan.analysis.nest import innermost
from opspan.analysis.spans import DEVICE, PROCESS, apart, length, time_in, union, within

if TYPE_CHECKING:
    from opspan.tables import Tables

_col = pl.col
WHY = ("host", "launch", "queued", "unknown")
_THREAD = (*PROCESS, "tid")
_GAP = ("start_ns", "end_ns", "next", "tid", "why", *(f"{name}_ns" for name in WHY))


def gaps(trace: Tables) -> pl.DataFrame:
    columns = (*DEVICE, "start_ns", "end_ns", "kind", "is_overhead", "call")
    work = on_device(trace.work.select(columns).with_row_index("row"))
    busy = within_part(union(work, DEVICE), trace)
    whole = within_part(whole_times(trace), trace).rename({"start_ns": "begin_ns", "end_ns": "close_ns"})
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
    return _with_reasons(found).select(*DEVICE, *_GAP)


def gaps_of_streams(trace: Tables) -> pl.DataFrame:
    """All streams at once: there may be thousands."""
    columns = (*STREAM, "start_ns", "end_ns", "kind", "is_overhead", "call")
    work = on_device(trace.work.select(columns).with_row_index("row")).drop_nulls(("start_ns", "end_ns"))
    streams = work.select(STREAM).unique().sort(STREAM).with_row_index("stream")
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
    why = pl.coalesce(pl.when(_col(f"{name}_ns") == most).then(pl.lit(name)) for name in WHY)
    return found.with_columns(why=why)


def _with_next(found: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """With the work that each gap ends with: of several that begin then, the one that was launched first."""
    columns = ("row", "tid", "call_ns")
    parts, work_of = [], apart(work.filter(length() > 0), DEVICE)
    for key, mine in apart(found, DEVICE).items():
        some = work_of.get(key, work.clear())
        ends = some.filter(_col("start_ns").is_in(mine["end_ns"].implode()))
        first = ends.sort("start_ns", "call_ns", "row", nulls_last=True)
        place = first["start_ns"].search_sorted(mine["end_ns"], side="left")
        next_ = first.select(*columns, begins_ns="start_ns")[place.set(place == first.height, None)]
        is_next = next_["begins_ns"] == mine["end_ns"]
        parts.append(mine.hstack(next_.select(pl.when(is_next).then(_col(name)).alias(name) for name in columns)))
    none = found.clear().hstack(work.clear().select(columns))
    return pl.concat([none, *parts]).sort(*DEVICE, "start_ns").rename({"row": "next"})


def meanwhile(ranges: pl.DataFrame, found: pl.DataFrame) -> pl.DataFrame:
    pieces = _pieces(_late(found), _times(ranges))
    pieces = pieces.with_columns(range=innermost(ranges, pieces))
    return pieces.group_by("gap", "range", maintain_order=True).agg(_col("ns").sum())


def _late(found: pl.DataFrame) -> pl.DataFrame:
    """The host's part of each gap."""
    late = found.with_row_index("gap").filter(_col("host_ns") > 0)
    return late.select("gap", *_THREAD, "start_ns", end_ns=_col("start_ns") + _col("host_ns"))


def _times(ranges: pl.DataFrame) -> pl.DataFrame:
    rows = ranges.select(*_THREAD, "start_ns", "end_ns", "is_mark")
    return rows.filter(~_col("is_mark").fill_null(value=False)).drop("is_mark")


def _pieces(late: pl.DataFrame, times: pl.DataFrame) -> pl.DataFrame:
    """The stretches of `late`, cut where any of `times` begins or ends on the same thread."""
    late = late.with_row_index("stretch")
    cuts = [late.select("stretch", time_ns="start_ns")]
    for name in ("start_ns", "end_ns"):  # each for itself: they are in order, or nearly so
        inside = within(times, name, late, _THREAD)
        cuts.append(inside.select("stretch", time_ns=times[name].gather(inside["row"])))
    pieces = pl.concat(cuts).sort("stretch", "time_ns")
    whose = late.select("gap", *_THREAD, "end_ns")[pieces["stretch"]]
    is_last = pieces["stretch"] != pieces["stretch"].shift(-1)
    until = pieces["time_ns"].shift(-1).zip_with(~is_last.fill_null(value=True), whose["end_ns"])
    pieces = whose.select("gap", *_THREAD).with_columns(pieces["time_ns"], ns=until - pieces["time_ns"])
    return pieces.filter(_col("ns") > 0)


def parts(trace: Tables, found: pl.DataFrame) -> pl.DataFrame:
    host = meanwhile(trace.ranges, found).select("gap", "range", pl.lit("host").alias("why"), "ns")
    launched_in = trace.work["range"].gather(found["next"])
    return pl.concat([host, *_rest(found, launched_in.alias("range"))])


def _rest(found: pl.DataFrame, whose: pl.Series) -> list[pl.DataFrame]:
    """What of each gap is not the host's, by `whose` it is."""
    numbered = found.with_columns(whose).with_row_index("gap")
    return [
        numbered.filter(_col(f"{why}_ns") > 0).select("gap", whose.name, pl.lit(why).alias("why"), ns=f"{why}_ns")
        for why in WHY[1:]
    ]


def in_functions(trace: Tables, found: pl.DataFrame) -> pl.DataFrame:
    ranges, functions = trace.ranges, spans_of(trace.functions, trace.ranges)
    times = pl.concat([_times(ranges), functions.select(*_THREAD, "start_ns", "end_ns")])
    pieces = _pieces(_late(found), times)
    range_, function = innermost(ranges, pieces), innermost(functions, pieces)
    # A range may be around functions as well: the host was in what began last.
    is_inside = functions["start_ns"].gather(function) > ranges["start_ns"].gather(range_)
    function = function.zip_with(is_inside | range_.is_null(), ranges["function"].gather(range_))
    host = pieces.select("gap", function.alias("function"), pl.lit("host").alias("why"), "ns")
    launched_in = ranges["function"].gather(trace.work["range"].gather(found["next"]))
    if trace.calls.height:
        launches = trace.calls.select(*_THREAD, time_ns="start_ns")[trace.work["call"].gather(found["next"])]
        launched_in = launched_in.zip_with(launched_in.is_not_null(), innermost(functions, launches))
    return pl.concat([host, *_rest(found, launched_in.alias("function"))])
