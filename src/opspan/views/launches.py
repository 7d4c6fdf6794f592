"""How far launches run ahead of the devices, and how long launched kernels and copies wait until they run: `opspan
launches`."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from opspan.analysis import Analysis
from opspan.analysis.copies import DIRECTION
from opspan.analysis.lanes import in_lanes
from opspan.analysis.launched import STREAM
from opspan.analysis.parts import Part, Parts, count_values, medians
from opspan.analysis.spans import difference, length
from opspan.questions import Options, Question
from opspan.views import fields, of_ranges
from opspan.views.answer import Answer
from opspan.views.fields import Field, share, varying_fields

FULL = 1000  # about this many launches fit into the queue of a stream; further launch calls wait
_NONE = "No work of devices in this trace has a launch call"
_NO_COPIES = "Nothing was copied of which size and time are known"
_FIELDS = (
    Field("launches", "Launches", "count"),
    share("short_launches", "Short", "launches", "Launches", 3),
    Field("call_ns", "Calls", "ns", rank=5),
    Field("work_ns", "Work", "ns"),
    Field("delay_ns", "Delay", "ns", rank=1),
    Field("ahead_ns", "Ahead", "ns", rank=2),
)
_QUEUE = (Field("mean_queue", "Queue", "mean", rank=2), Field("longest_queue", "Longest", "count", rank=1))
COPY = (
    fields.RANK,
    fields.DEVICE_ID,
    Field("peer_device_id", "Other device", "count"),
    fields.FROM,
    fields.TO,
    replace(fields.COPIES, rank=1),
    replace(fields.BYTES, bar=True),
    replace(fields.COPY_TIME, bar=True),
    fields.SPEED,
)
_MEDIANS = ("delay_ns", "ahead_ns")
_col = pl.col


def rows(parts: Parts, options: Options) -> pl.DataFrame:
    by = options.by
    rows = parts["rows"].rows
    if by == "copy":
        rows = rows.with_columns(bytes_per_s=_col("bytes").cast(pl.Float64) / _col("ns").cast(pl.Float64) * 1e9)
        return rows.sort("bytes", descending=True, maintain_order=True)
    keys = STREAM if by == "stream" else (by,)
    for name in _MEDIANS:
        rounded = medians(parts[name], keys, name).with_columns(_col(name).round().cast(pl.Int64))
        rows = rows.join(rounded, on=keys, how="left", nulls_equal=True, maintain_order="left")
    queue = ("longest_queue", "mean_queue") if by == "stream" else ()
    if queue:
        rows = rows.with_columns(mean_queue=pl.when(_col("queue_ns") > 0).then(_col("queued_ns") / _col("queue_ns")))
    last = ("longest_delay_ns", "ahead_ns", *queue)
    rows = rows.select(pl.exclude(*last, "queued_ns", "queue_ns"), *last)
    return rows.sort("work_ns", descending=True, maintain_order=True)


@in_lanes
def parts(analysis: Analysis, options: Options) -> Parts:
    by = options.by
    if by == "copy":
        return {"rows": Part(analysis.copies, DIRECTION)}
    trace = analysis.attributed
    rows = analysis.delays.select("work", "call", "is_first", "is_short", "delay_ns", "ahead_ns")
    took = length().alias("ns")
    rows = rows.with_columns(
        call_ns=trace.calls.select(took)["ns"].gather(rows["call"]),
        work_ns=trace.work.select(took)["ns"].gather(rows["work"]),
    )
    # If a call launches several kernels, this counts as one launch, and its delay is that of the first kernel.
    first = _col("is_first").fill_null(value=False)
    figures = {
        "launches": first.sum().cast(pl.Int64),
        "short_launches": (first & _col("is_short").fill_null(value=False)).sum().cast(pl.Int64),
        "call_ns": _col("call_ns").filter(first).sum(),
        "work_ns": _col("work_ns").sum(),
        "longest_delay_ns": _col("delay_ns").filter(first).max(),
    }
    queue = Part(analysis.queues.select(_col("queued").max()), (), {"queued": "most"})
    rules = {"longest_delay_ns": "most", "longest_queue": "most"}
    keys = STREAM if by == "stream" else (by,)
    if by == "stream":
        rows = rows.with_columns(trace.work[name].gather(rows["work"]) for name in STREAM)
    elif by == "kernel":
        rows = rows.with_columns(trace.work["name"].gather(rows["work"]).alias(by))
    else:
        rows = rows.with_columns(of_ranges.names(analysis, by, trace.calls["range"].gather(rows["call"])))
    launches = rows.filter(first)
    sums = rows.group_by(keys, maintain_order=True).agg(**figures)
    if by == "stream":
        sums = sums.join(_lengths(analysis.queues), on=STREAM, how="left", nulls_equal=True, maintain_order="left")
    else:
        sums, launches = (frame.with_columns(_col(by).cast(pl.String)) for frame in (sums, launches))
    delays = {name: count_values(launches, keys, name) for name in _MEDIANS}
    return {"rows": Part(sums, keys, rules), "queue": queue, **delays}


def _lengths(queues: pl.DataFrame) -> pl.DataFrame:
    """Returns for each stream the largest length of its queue (calls whose work has not begun), and two numbers whose
    ratio is the mean length: the length integrated over time (`queued_ns`), and the time from the first launch until
    the last launched work began (`queue_ns`)."""
    lasted = difference(_col("time_ns"), _col("time_ns").shift(-1)).fill_null(0).cast(pl.Float64)
    return queues.group_by(STREAM, maintain_order=True).agg(
        longest_queue=_col("queued").max(), queued_ns=(_col("queued") * lasted).sum(), queue_ns=lasted.sum()
    )


def answer(parts: Parts, options: Options) -> Answer:
    table, by = rows(parts, options), options.by
    if by == "copy":
        shown = varying_fields(COPY, table, [field.name for field in COPY[3:]])
        return Answer("launches", table, shown, () if table.height else (_NO_COPIES,))
    if by == "stream":
        names = varying_fields(fields.PLACES, table, ["stream_id"])
    else:
        title = "Kernel" if by == "kernel" else f"Launched in ({by})"
        names = [Field(by, title, "name", none="(in none)")]
    queue = _QUEUE if by == "stream" else ()
    return Answer("launches", table, (*names, *_FIELDS, *queue), tuple(_notes(parts, table)))


def _notes(parts: Parts, rows: pl.DataFrame) -> list[str]:
    launches = int(rows["launches"].sum())
    if not launches:
        return [_NONE]
    short = int(rows["short_launches"].sum())
    notes = [
        f"{short / launches:.1%} of {launches:,} launches took longer than what they launched; Delay and Ahead are "
        "medians: from the end and from the begin of the call until the device began"
    ]
    longest = parts["queue"].rows["queued"][0]
    if isinstance(longest, int) and longest >= FULL:
        notes.append(f"A queue was {longest:,} launches long: about {FULL:,} fill it, and then a launch waits")
    return notes


QUESTION = Question("launches", parts, rows, answer)
