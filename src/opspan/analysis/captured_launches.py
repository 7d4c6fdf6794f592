"""Finds the launches of a recording that were captured into a graph (such as a CUDA graph), and so were not executed.

    has_captures(calls) -> whether the recording has the begin of a capture.
    captured_launches(trace) -> a row for each such launch, by thread, and in order of time:
        range: the row of the innermost range around it.
        rank, pid, tid: the thread.
        capture: equal for the launches between the begin and the end of one capture on one thread. Null if the
            recording does not have the begin.
        kind: "kernel", "memcpy" or "memset".
        kernel: name of the kernel; null if the tool did not record it with the call.

A captured launch is a call that has the name of a launch, but no work, because nothing runs during a capture. If
the recording has begins or ends of captures, only launches between them count. Calls and work must be attributed.
"""

from __future__ import annotations

import polars as pl

from opspan.row_numbers import ROW_NUMBER
from opspan.tables import Tables

_LAUNCH = "Launch|Memcpy|Memset"
_OTHER = "Graph|HostFunc|Capture|Attribute"
_BEGIN_CAPTURE, _END_CAPTURE = "StreamBeginCapture", "StreamEndCapture"
_KERNEL = r'"kernel"\s*:\s*"((?:[^"\\]|\\.)*)"'
_THREAD = ["rank", "pid", "tid"]
_col = pl.col


def has_captures(calls: pl.DataFrame) -> bool:
    """Returns whether the recording has the begin of a capture."""
    names = calls["name"].unique().drop_nulls().cast(pl.String)
    return bool(names.str.contains(_BEGIN_CAPTURE, literal=True).any())


def captured_launches(trace: Tables) -> pl.DataFrame:
    calls = trace.calls.select(
        *_THREAD, "start_ns", "name", "payload_json", "range", call=pl.int_range(pl.len(), dtype=ROW_NUMBER)
    )
    name = _col("name").cast(pl.String)
    boundaries = _boundaries(calls)
    launches = calls.filter(name.str.contains(_LAUNCH) & ~name.str.contains(_OTHER))
    launched = trace.work.select("call").drop_nulls().unique()
    launches = launches.join(launched, on="call", how="anti").drop_nulls("start_ns")
    launches = _in_captures(launches.sort("start_ns", "call"), boundaries).sort(*_THREAD, "start_ns", "call")
    is_copy, is_fill = name.str.contains("Memcpy"), name.str.contains("Memset")
    kind = pl.when(is_copy).then(pl.lit("memcpy")).when(is_fill).then(pl.lit("memset")).otherwise(pl.lit("kernel"))
    return launches.select(
        "range",
        *_THREAD,
        "capture",
        kind=kind,
        kernel=_unescaped(_col("payload_json").str.extract(_KERNEL)),
    )


def _unescaped(text: pl.Expr) -> pl.Expr:
    return text.str.replace_all(r"\\(.)", "$1")


def _boundaries(calls: pl.DataFrame) -> pl.DataFrame:
    """Returns the calls that begin and end captures, by time."""
    names = calls["name"].unique().drop_nulls().cast(pl.String)
    named = names.filter(names.str.contains(f"{_BEGIN_CAPTURE}|{_END_CAPTURE}"))
    rows = calls.filter(_col("name").is_in(named.cast(pl.Categorical).implode())).drop_nulls("start_ns")
    is_begin = _col("name").cast(pl.String).str.contains(_BEGIN_CAPTURE)
    return rows.select(*_THREAD, "start_ns", is_begin=is_begin, capture=_col("call")).sort("start_ns", "capture")


def _in_captures(launches: pl.DataFrame, boundaries: pl.DataFrame) -> pl.DataFrame:
    """Adds the capture of each launch. If there are boundaries, drops launches outside of captures."""
    if not boundaries.height:
        return launches.with_columns(capture=pl.lit(None, dtype=ROW_NUMBER))
    first = boundaries.group_by(_THREAD).agg(starts_inside=~_col("is_begin").first())
    rows = launches.join_asof(
        boundaries.select(*_THREAD, "start_ns", "is_begin", "capture"),
        on="start_ns",
        by=_THREAD,
        check_sortedness=False,
    )
    rows = rows.join(first, on=_THREAD, how="left", nulls_equal=True, maintain_order="left")
    # If a thread's first boundary is an end, the recording began during a capture.
    is_first = _col("is_begin").is_null() & _col("starts_inside")
    is_inside = _col("is_begin").fill_null(value=False) | is_first.fill_null(value=False)
    return rows.filter(is_inside).drop("is_begin", "starts_inside")
