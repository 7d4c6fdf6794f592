"""Kernels, copies and fills as rows: as torch's Chrome trace says them, read here with json and nothing else, and as
opspan has them."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from opspan.analysis.analysed import Analysis

_KINDS = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
_CALLS = ("cuda_runtime", "cuda_driver")


class Row(NamedTuple):
    """op: what launched it: the op of torch's that the file names, or the innermost range; None: it is not told."""

    kind: str
    name: str
    op: str | None
    call: str | None
    call_ns: int | None
    start_ns: int | None
    time_ns: int | None
    stream: int | None
    correlation: int | None


def of_chrome(path: Path) -> list[Row]:
    """In the order in which they were launched."""
    events = [event for event in chrome_events(path) if event.get("ph") == "X"]
    ops = {
        event["args"]["External id"]: event["name"]
        for event in events
        if event.get("cat") == "cpu_op" and "External id" in event.get("args", {})
    }
    calls = {event["args"].get("correlation"): event for event in events if event.get("cat") in _CALLS}
    rows = []
    for event in events:
        if (kind := _KINDS.get(event.get("cat", ""))) is None:
            continue
        args = event["args"]
        call = calls.get(args.get("correlation"))
        external = args.get("External id") or (call["args"].get("External id") if call else None)
        rows.append(
            Row(
                kind,
                event["name"],
                ops.get(external),
                call and call["name"],
                call and ns(call["ts"]),
                ns(event["ts"]),
                ns(event["dur"]),
                args.get("stream"),
                args.get("correlation"),
            )
        )
    return in_order(rows)


def of_trace(analysis: Analysis) -> list[Row]:
    """The same of a trace; times are on the trace's own clock."""
    ranges, calls, work = analysis.complete.ranges, analysis.complete.calls, analysis.complete.work
    names = ranges["name"].to_list()
    call_names, call_times = calls["name"].to_list(), calls["start_ns"].to_list()

    rows = []
    for one in work.to_dicts():
        if one["kind"] not in _KINDS.values() or one["is_overhead"]:
            continue
        call, launched_in = one["call"], one["launch_range"]
        times = one["start_ns"], one["end_ns"]
        rows.append(
            Row(
                one["kind"],
                one["full_name"] or one["name"],
                None if launched_in is None else names[launched_in],
                None if call is None else call_names[call],
                None if call is None else call_times[call],
                times[0],
                None if None in times else times[1] - times[0],
                one["stream_id"],
                one["correlation_id"],
            )
        )
    return in_order(rows)


def in_order(rows: list[Row]) -> list[Row]:
    """By the launch; what has none comes last, by its begin."""
    last = 1 << 80
    return sorted(rows, key=lambda row: [last if one is None else one for one in (row.call_ns, row.start_ns)])


def chrome_events(path: Path) -> list[dict[str, Any]]:
    """Numbers with a point are decimal: a double has not room for a time with its nanoseconds."""
    document = json.loads(path.read_text(), parse_float=Decimal)
    return document["traceEvents"] if isinstance(document, dict) else document


def ns(us: Decimal | int) -> int:
    return round(us * 1000)
