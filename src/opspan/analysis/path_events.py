"""Finds which work waited for work of other streams. Some files state it. Otherwise it is guessed, from calls such as
cudaStreamWaitEvent and from times.

    event_edges(trace, rows, work, calls) -> work, before (row numbers of Graph.work): `work` waited for `before`, by
        the tool's records of waits for events. If a record does not name the event, `before` is guessed.
    wait_call_edges(trace, work, threads) -> work, before: guessed for files that have calls such as cudaStreamWaitEvent
        but do not say which work these calls wait for. Most files are like this.
    timing_edges(work) -> work, before: guessed from times.
    sync_rows(trace, work) -> the waits that the tool recorded.
    last_ended(rows, work, by) -> for each row, the last work that ended at or before the row's until_ns.

wait_call_edges assumes: a call tells a stream to wait. The next work that the thread of the call launches is the work
that waits. Of all work that was launched on other streams before the call, it waits for the last.

timing_edges assumes that work B waited for work A of its process if two things are true. B began at most CLOSE after
the end of A. When B began, more than CLOSE had passed since the launch of B, and since the end of all work that B is
already known to have waited for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import polars as pl

from opspan.analysis.spans import PROCESS
from opspan.row_numbers import ROW_NUMBER

if TYPE_CHECKING:
    from opspan.tables import Tables

_col = pl.col
ON_STREAM = ("process", "device_id", "stream_id")
_WAIT_EVENT = r"^(cuda|cu|hip)StreamWaitEvent"
# ns; work that waits for an event of another stream usually begins about 10 us after the event
CLOSE = 20_000


def event_edges(trace: Tables, rows: pl.DataFrame, work: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Returns a pair for each recorded wait of a stream for an event. `work` is the first work that was launched on
    the waiting stream after the wait; a wait without such work has no pair. `before` is the last work that was launched
    on the event's stream before the event was recorded, or null. If the file does not name the event, `before` is
    guessed: of all work of the process that ended before `work` began, it is the last."""
    none = pl.DataFrame(schema={"work": pl.Int64, "before": pl.Int64})
    sync = sync_rows(trace, work).filter(_col("name").str.contains(r"(?i)stream.wait"))
    if not sync.height:
        return none
    sync = sync.join(calls.select("call", "process", called_ns="start_ns"), on="call")
    launched = rows.join(calls.select("call", launched_ns="start_ns"), on="call", maintain_order="left")
    launched = launched.sort("launched_ns", "work")
    known = launched.select(*ON_STREAM, "launched_ns", "work", before="work")
    first = _last(sync, "called_ns", known, "launched_ns", "work", ON_STREAM, strategy="forward")
    sync = sync.with_columns(work=first).drop_nulls("work")
    recorded = calls.select(record="call", recorded_ns="start_ns", of_process="process").join(
        trace.calls.select("correlation_id").with_row_index("record"), on="record"
    )
    recorded_waits = sync.filter(_col("record_id") > 0, _col("wait_on") >= 0).join(
        recorded, left_on=["process", "record_id"], right_on=["of_process", "correlation_id"], maintain_order="left"
    )
    on = recorded_waits.select("process", "device_id", "recorded_ns", stream_id="wait_on")
    recorded_waits = recorded_waits.select(
        "work", before=_last(on, "recorded_ns", known, "launched_ns", "before", ON_STREAM)
    )
    unsaid = sync.filter(_col("record_id").is_null())
    until = unsaid.select("process", until_ns=work["start_ns"].gather(unsaid["work"]))
    guessed = unsaid.select("work", last_ended(until, work, ("process",)).alias("before"))
    return pl.concat([recorded_waits, guessed])


def sync_rows(trace: Tables, work: pl.DataFrame) -> pl.DataFrame:
    """Returns the waits that the tool recorded: the call, the stream that waits, and the stream and the event that this
    stream waits for."""
    rows = trace.work.select(*PROCESS, "call", "kind", "device_id", "stream_id", "name", "payload_json")
    rows = rows.filter((_col("kind") == "sync") & _col("call").is_not_null())
    # Tools write device 0 for every wait. If the process used only one device, that device is taken instead.
    used = trace.work.select(*PROCESS, "device_id", "kind") if rows.height else rows
    used = used.filter(_col("kind") == "kernel").select(*PROCESS, "device_id").unique()
    used = used.group_by(PROCESS).agg(only=pl.when(pl.len() == 1).then(_col("device_id").first()))
    rows = rows.join(used, on=PROCESS, how="left", nulls_equal=True, maintain_order="left")
    rows = rows.with_columns(device_id=pl.coalesce("only", "device_id"))
    numbers = {
        name: _col("payload_json").str.extract(rf'"{key}"\s*:\s*(-?[0-9]{{1,18}})').cast(pl.Int64, strict=False)
        for name, key in (("wait_on", "wait_on_stream"), ("record_id", "wait_on_cuda_event_record_corr_id"))
    }
    return rows.select("call", "device_id", "stream_id", name=_col("name").cast(pl.String).fill_null(""), **numbers)


def wait_call_edges(trace: Tables, work: pl.DataFrame, threads: pl.DataFrame) -> pl.DataFrame:
    """Returns pairs: `work`, and the work `before` that it is assumed to have waited for. The result is empty if the
    file itself states what streams wait for. `work` has process, stream, launch_ns, thread."""
    nothing = pl.DataFrame(schema={"work": pl.Int64, "before": pl.Int64})
    if (trace.work["kind"] == "sync").any():
        return nothing
    names = trace.calls["name"].unique().drop_nulls()
    names = names.filter(names.cast(pl.String).str.contains(_WAIT_EVENT))
    calls = trace.calls.select(*PROCESS, "tid", "name", time_ns="start_ns").filter(_col("name").is_in(names.implode()))
    if not calls.height:
        return nothing
    calls = calls.drop_nulls("time_ns").join(threads, on=(*PROCESS, "tid"), nulls_equal=True).sort("time_ns")
    launched = work.select(
        "process", "stream", "launch_ns", _col("thread").cast(pl.Int64), work=pl.int_range(pl.len(), dtype=pl.Int64)
    )
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


def timing_edges(work: pl.DataFrame) -> pl.DataFrame:
    """Returns the pairs that times suggest. `work` has process, start_ns, end_ns, launch_ns, and before_ns: the end of
    the work that a row is already known to have waited for."""
    rows = work.select(
        "process",
        "start_ns",
        since=pl.max_horizontal("launch_ns", "before_ns"),
        work=pl.int_range(pl.len(), dtype=pl.Int64),
    )
    rows = rows.filter(_col("start_ns") - _col("since") > CLOSE).sort("start_ns")
    ended = work if rows.height else work.clear()  # sorting takes long, so it is left out if there are no rows
    ended = ended.select("process", "end_ns", before=pl.int_range(pl.len(), dtype=pl.Int64)).sort("end_ns")
    rows = rows.join_asof(ended, left_on="start_ns", right_on="end_ns", by="process", check_sortedness=False)
    rows = rows.filter(_col("end_ns") > _col("since"), _col("start_ns") - _col("end_ns") <= CLOSE)
    return rows.select("work", "before")


def last_ended(rows: pl.DataFrame, work: pl.DataFrame, by: tuple[str, ...]) -> pl.Series:
    """Returns, for each row, the row number of the last work that ended at or before the row's `until_ns`. Only work
    with the row's values in the columns `by` counts."""
    ended = work.select(*by, "end_ns", before=pl.int_range(pl.len(), dtype=pl.Int64)).sort("end_ns", "before")
    return _last(rows, "until_ns", ended, "end_ns", "before", by)


def _last(
    rows: pl.DataFrame,
    at: str,
    known: pl.DataFrame,
    time: str,
    value: str,
    by: tuple[str, ...],
    strategy: Literal["backward", "forward"] = "backward",
) -> pl.Series:
    """Returns, for each row, the `value` of the last row of `known` whose `time` is not after the row's `at`. With the
    strategy `forward`, it is the value of the first row of `known` whose `time` is not before `at`. Only rows of
    `known` with the row's values in the columns `by` count; if there is none, the result is null. `known` is sorted by
    `time`."""
    if not rows.height or not known.height:
        return pl.Series(value, [None] * rows.height, dtype=known.schema[value])
    if len(by) == 1:
        keyed_rows, keyed_known = rows.with_columns(key=by[0]), known.with_columns(key=by[0])
    else:
        keys = pl.concat([rows.select(by), known.select(by)]).unique().with_row_index("key")
        keyed_rows, keyed_known = (
            frame.join(keys, on=list(by), how="left", nulls_equal=True, maintain_order="left")
            for frame in (rows, known)
        )
    timed = keyed_rows.select("key", at).with_row_index("place").drop_nulls(at).sort(at)
    nearest = timed.join_asof(
        keyed_known.select("key", time, value),
        left_on=at,
        right_on=time,
        by="key",
        strategy=strategy,
        check_sortedness=False,
    )
    places = rows.select(place=pl.int_range(pl.len(), dtype=ROW_NUMBER))
    return places.join(nearest.select("place", value), on="place", how="left", maintain_order="left")[value]
