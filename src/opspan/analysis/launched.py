"""Measures the time from calls to their work on devices, how far the host is ahead, and the queues of streams.

    delays(calls, work) -> a row for each kernel, copy or fill (a row of work) whose launch call is known, in the order
        of the work:
        work (UInt32): row of the work.
        call (UInt32): row of its call.
        is_first (Boolean): whether this work began first among all work of the call.
        delay_ns (Int64): from the end of the call to the start of the work; negative if the work began before the call
            ended.
        ahead_ns (Int64): from the start of the call to the start of the work: how far the host is ahead of the device.
        is_short (Boolean): whether all work of the call together took less time than the call.

    queues(calls, work) -> a row for each time at which the length of a queue changed:
        rank, pid, device_id, context_id, stream_id: the stream.
        time_ns (Int64): the time of the change.
        queued (Int64): from this time on, the number of calls that have begun but whose work on this stream has not
            begun.

docs/analysis.md, "launched", has the rules. Work must be attributed (`launches`) first.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.averages import on_device
from opspan.analysis.spans import bounded, difference, distinct, length
from opspan.row_numbers import ROW_NUMBER

_col = pl.col
STREAM = ("rank", "pid", "device_id", "context_id", "stream_id")


def delays(calls: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    rows = _with_calls(calls, work)
    took = length()
    if rows["call"].n_unique() == rows.height:  # without CUDA graphs, each call launched one row of work
        all_took, first = took, _col("work")
    else:
        all_took = bounded(pl.when(took.is_not_null().all()).then(took.cast(pl.Int128).sum())).over("call")
        first = _col("work").sort_by("start_ns", "work", nulls_last=True).first().over("call")
    return rows.select(
        "work",
        "call",
        is_first=pl.when(_col("start_ns").is_not_null()).then(_col("work") == first),
        delay_ns=difference(_col("called_until"), _col("start_ns")),
        ahead_ns=difference(_col("called_ns"), _col("start_ns")),
        is_short=all_took < length(_col("called_ns"), _col("called_until")),
    )


def queues(calls: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    rows = _with_calls(calls, work).drop_nulls(("start_ns", "called_ns"))
    if rows["call"].n_unique() == rows.height:
        waiting = rows
    else:
        waiting = rows.group_by(*STREAM, "call").agg(_col("called_ns").first(), _col("start_ns").min())
    streams = distinct(waiting, STREAM).sort(STREAM).with_row_index("stream")
    if streams.height > 1:
        waiting = waiting.join(streams, on=STREAM, nulls_equal=True)
    else:
        waiting = waiting.with_columns(stream=pl.lit(0, dtype=ROW_NUMBER))
    changes = _queues(waiting.select("stream", "called_ns", "start_ns"), is_one=streams.height < 2).join(
        streams, on="stream", maintain_order="left"
    )
    return changes.select(*STREAM, "time_ns", "queued")


def _queues(waiting: pl.DataFrame, *, is_one: bool) -> pl.DataFrame:
    """Returns the times at which the length of a queue changes. The length is the number of calls that have begun,
    minus the number of calls whose work has begun. Counts all streams at once, because there may be thousands."""
    # If clocks differ, work may seem to begin before its call. Such work counts as never queued.
    begun = pl.max_horizontal("called_ns", "start_ns")
    ends = ((_col("called_ns"), 1), (begun, -1))
    changes = pl.concat(waiting.select("stream", time_ns=time, change=pl.lit(by, pl.Int64)) for time, by in ends)
    changes = changes.sort("time_ns") if is_one else changes.sort("stream", "time_ns")
    # The changes of a stream add up to 0, so the running sum is 0 at the start of each stream.
    changes = changes.with_columns(queued=_col("change").cum_sum())
    is_last = _col("stream").ne_missing(_col("stream").shift(-1)) | _col("time_ns").ne_missing(
        _col("time_ns").shift(-1)
    )
    return changes.filter(is_last).filter(_col("queued") != _col("queued").shift(1, fill_value=0))


def _with_calls(calls: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """Returns the work whose launch call is known, with the start and end of the call."""
    columns = work.select("kind", "is_overhead", *STREAM, "start_ns", "end_ns", "call").with_row_index("work")
    rows = on_device(columns).filter(_col("call").is_not_null())
    return rows.with_columns(
        calls["start_ns"].gather(rows["call"]).alias("called_ns"),
        calls["end_ns"].gather(rows["call"]).alias("called_until"),
    )
