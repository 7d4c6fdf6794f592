"""How launches keep up with what devices do: `opspan launches`."""

from __future__ import annotations

import polars as pl

from opspan.analysis import Analysed
from opspan.analysis.launched import STREAM
from opspan.analysis.spans import difference, length
from opspan.views import of_ranges
from opspan.views.answer import Answer, Shown, rates, shares_of, sizes, texts, times

BY = (*of_ranges.OF_RANGES, "kernel", "stream", "copy")
FULL = 1000  # about so many launches fit a stream's queue: the next waits
_NONE = "No work of devices in this trace has a launch call"
_NO_COPIES = "Nothing was copied of which size and time are known"
_SIDES = {"copy_from": "From", "copy_to": "To"}
_col = pl.col


def rows_of(found: Analysed, by: str = "op") -> pl.DataFrame:
    of_ranges.check(by, BY)
    if by == "copy":
        return found.copies.sort("bytes", descending=True, maintain_order=True)
    trace = found.attributed
    rows = found.delays.select("work", "call", "is_first", "is_short", "delay_ns", "ahead_ns")
    took = length().alias("ns")
    rows = rows.with_columns(
        call_ns=trace.calls.select(took)["ns"].gather(rows["call"]),
        work_ns=trace.work.select(took)["ns"].gather(rows["work"]),
    )
    # What a call launched at once is one launch: the first work says how long it took to begin.
    first = _col("is_first").fill_null(value=False)
    figures = {
        "launches": first.sum(),
        "short_launches": (first & _col("is_short").fill_null(value=False)).sum(),
        "call_ns": _col("call_ns").filter(first).sum(),
        "work_ns": _col("work_ns").sum(),
        "delay_ns": _col("delay_ns").filter(first).median().round().cast(pl.Int64),
        "longest_delay_ns": _col("delay_ns").filter(first).max(),
        "ahead_ns": _col("ahead_ns").filter(first).median().round().cast(pl.Int64),
    }
    if by == "stream":
        rows = rows.with_columns(trace.work[name].gather(rows["work"]) for name in STREAM)
        sums = rows.group_by(STREAM, maintain_order=True).agg(**figures)
        sums = sums.join(_lengths(found.queues), on=STREAM, how="left", nulls_equal=True, maintain_order="left")
    else:
        names = trace.work["name"].gather(rows["work"]) if by == "kernel" else _names(found, rows, by)
        sums = rows.with_columns(names.alias(by)).group_by(by, maintain_order=True).agg(**figures)
        sums = sums.with_columns(_col(by).cast(pl.String))
    return sums.sort("work_ns", descending=True, maintain_order=True)


def _names(found: Analysed, rows: pl.DataFrame, by: str) -> pl.Series:
    """Of the range that the call was made in."""
    return of_ranges.names(found, by, found.attributed.calls["range"].gather(rows["call"]))


def _lengths(queues: pl.DataFrame) -> pl.DataFrame:
    """For each stream how long its queue was at most, and at the mean of the time from its first launch to its last."""
    lasted = difference(_col("time_ns"), _col("time_ns").shift(-1)).fill_null(0).cast(pl.Float64)
    whole = lasted.sum()
    return queues.group_by(STREAM, maintain_order=True).agg(
        longest_queue=_col("queued").max(),
        mean_queue=pl.when(whole > 0).then((_col("queued") * lasted).sum() / whole),
    )


def answer(found: Analysed, by: str) -> Answer:
    rows = rows_of(found, by)
    if by == "copy":
        return Answer("launches", rows, _of_copies(rows), () if rows.height else (_NO_COPIES,))
    if by == "stream":
        several = [name for name in STREAM if rows[name].n_unique() > 1 or name == "stream_id"]
        names = [Shown(name.removesuffix("_id").capitalize(), name, texts) for name in several]
        queue = [Shown("Queue", "mean_queue", _rounded, 2), Shown("Longest", "longest_queue", texts, 1)]
    else:
        title = "Kernel" if by == "kernel" else f"Launched in ({by})"
        names, queue = [Shown(title, by, of_ranges.or_none, is_name=True)], []
    shown = (
        *names,
        Shown("Launches", "launches", texts),
        Shown("Short", "short_launches", shares_of("launches"), 3),
        Shown("Calls", "call_ns", times, 5),
        Shown("Work", "work_ns", times),
        Shown("Delay", "delay_ns", _times, 1),
        Shown("Ahead", "ahead_ns", _times, 2),
        *queue,
    )
    return Answer("launches", rows, shown, tuple(_notes(found, rows)))


def _of_copies(rows: pl.DataFrame) -> tuple[Shown, ...]:
    several = [name for name in ("rank", "device_id", "peer_device_id") if rows[name].n_unique() > 1]
    titles = {"rank": "Rank", "device_id": "Device", "peer_device_id": "Other device"}
    return (
        *(Shown(titles[name], name, texts) for name in several),
        *(Shown(title, name, texts) for name, title in _SIDES.items()),
        Shown("Copies", "count", texts, 1),
        Shown("Bytes", "bytes", sizes),
        Shown("Time", "ns", times),
        Shown("Speed", "bytes_per_s", rates),
    )


def _notes(found: Analysed, rows: pl.DataFrame) -> list[str]:
    launches = int(rows["launches"].sum())
    if not launches:
        return [_NONE]
    short = int(rows["short_launches"].sum())
    notes = [
        f"{short / launches:.1%} of {launches:,} launches took longer than what they launched; Delay and Ahead are "
        "medians: from the end and from the begin of the call until the device began"
    ]
    longest = found.queues["queued"].max() if found.queues.height else 0
    if isinstance(longest, int) and longest >= FULL:
        notes.append(f"A queue was {longest:,} launches long: about {FULL:,} fill it, and then a launch waits")
    return notes


def _times(rows: pl.DataFrame, column: str) -> list[str]:
    """Times that may be negative: the device began before the call returned."""
    signed = rows.select(pl.col(column).abs(), is_negative=pl.col(column) < 0)
    cells = times(signed, column)
    return [f"-{cell}" if negative else cell for cell, negative in zip(cells, signed["is_negative"], strict=True)]


def _rounded(rows: pl.DataFrame, column: str) -> list[str]:
    return ["" if value is None else f"{value:,.1f}" for value in rows[column].to_list()]
