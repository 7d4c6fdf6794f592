"""From the call to its work on the device: how long a launch takes, how far the host is ahead, and what is in a queue.

    delays(calls, work) -> a row for each work of a device that has a call, in the order of the work
        work      UInt32   row of the work
        call      UInt32   row of its call
        is_first  Boolean  no other work of the call began before it
        delay_ns  Int64    from the end of the call to the begin of the work; negative if it began before that
        ahead_ns  Int64    from the begin of the call to the begin of the work: how far the host is ahead of the device
        is_short  Boolean  all of the call's work together took less time than the call

    queues(calls, work) -> a row for each time at which the length of a queue changed
        rank, pid, device_id, context_id, stream_id    the stream
        time_ns   Int64
        queued    Int64    how many calls the host has begun whose work on this stream has not begun, from then on

docs/analysis.md, "launched", says what is what. Work must be attributed (`launches`) first.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.averages import on_device
from opspan.analysis.spans import apart, bounded, difference, length

_col = pl.col
_QUEUE = {"time_ns": pl.Int64, "queued": pl.Int64}
STREAM = ("rank", "pid", "device_id", "context_id", "stream_id")


def delays(calls: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    rows = _with_calls(calls, work)
    took = length()
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
    if rows["call"].is_unique().all():  # no graphs: a call has one work
        waiting = rows
    else:
        waiting = rows.group_by(*STREAM, "call").agg(_col("called_ns").first(), _col("start_ns").min())
    found = [pl.DataFrame(schema={**{name: work.schema[name] for name in STREAM}, **_QUEUE})]
    for key, some in apart(waiting, STREAM).items():
        names = (pl.lit(value, dtype=work.schema[name]).alias(name) for name, value in zip(STREAM, key, strict=True))
        found.append(_queue(some).select(*names, *_QUEUE))
    return pl.concat(found).sort(STREAM, maintain_order=True)


def _queue(waiting: pl.DataFrame) -> pl.DataFrame:
    """Of one stream: how many have been called by each time, less how many have begun."""
    called = waiting["called_ns"].sort()
    # Work that began before its call, by clocks that differ, has not been in the queue at all.
    left = waiting.select(pl.max_horizontal("called_ns", "start_ns")).to_series().sort()
    times = pl.concat([called, left.rename(called.name)]).unique().sort().alias("time_ns")
    queued = called.search_sorted(times, side="right").cast(pl.Int64) - left.search_sorted(times, side="right")
    changed = queued != queued.shift(1, fill_value=0)
    return pl.DataFrame([times, queued.alias("queued")]).filter(changed)


def _with_calls(calls: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """The work of devices that has a call, with when the call began and ended."""
    columns = work.select("kind", "is_overhead", *STREAM, "start_ns", "end_ns", "call").with_row_index("work")
    rows = on_device(columns).filter(_col("call").is_not_null())
    return rows.with_columns(
        calls["start_ns"].gather(rows["call"]).alias("called_ns"),
        calls["end_ns"].gather(rows["call"]).alias("called_until"),
    )
