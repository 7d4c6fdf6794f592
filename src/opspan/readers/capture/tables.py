"""Reads everything but the ranges of a capture file: threads, process, counters, Python functions, memory, issues."""

from __future__ import annotations

import shlex
from pathlib import PurePath

import numpy as np
import polars as pl

from opspan.readers.capture import layout
from opspan.readers.capture.attributes import Attributes, json_members
from opspan.readers.capture.file import CaptureFile, Units, find
from opspan.tables import Issues
from opspan.tables.schema import MEMORY_EVENT

STEPPED_NS = 1_000_000_000
EXACT = 1 << 53  # a float holds every integer up to this one exactly

MEMORY_EVENTS = pl.Series(["alloc", "free", "out_of_memory", None], dtype=MEMORY_EVENT)  # indexed by a unit's flags
_NO_DEVICE = pl.Series([None], dtype=pl.Int32)
THREAD_NAME = 1  # the type of a NAME unit that names a thread


def read_threads(capture: CaptureFile) -> pl.DataFrame:
    names = {log.tid: log.thread_name or None for log in capture.logs}
    units = capture.units.of(layout.NAME)
    units = units.where(units.u32(2) == THREAD_NAME)
    thread_names = zip(units.u32(3).tolist(), capture.texts.of(units.u32(1)), strict=True)
    names |= {tid: name for tid, name in thread_names if name}
    threads = pl.DataFrame(
        {"tid": list(names), "name": list(names.values())}, schema={"tid": pl.Int64, "name": pl.String}
    )
    own = capture.units.of(layout.ATTRIBUTE)
    own = own.where((own.i64(1) == layout.NO_OWNER) & ((own.u16(1) & layout.OWNER_BY_ID) == 0))
    json = json_members(Attributes(own, capture.tids[own.logs], capture.texts)).select(
        pl.col("row").alias("tid"), ("{" + pl.col("members") + "}").alias("payload_json")
    )
    return threads.with_columns(rank=0, pid=capture.header.pid).join(json, on="tid", how="left", maintain_order="left")


def read_process(capture: CaptureFile) -> pl.DataFrame:
    header = capture.header
    program = header.arguments[0] if header.arguments else ""
    row = {
        "rank": 0,
        "pid": header.pid,
        "parent_pid": header.parent_pid,
        "name": PurePath(program).name or None,
        "command_line": shlex.join(header.arguments) or None,
        "host": header.host or None,
        "is_forked": header.forked,
        "start_ns": header.open_monotonic_ns,
        "end_ns": header.close_monotonic_ns or None,
    }
    return pl.DataFrame([row])


def read_counters(capture: CaptureFile, issues: Issues) -> pl.DataFrame:
    """Returns the table counters. The counter `collecting` is 0 from a pause of the collection on, and 1 again when the
    program resumes it."""
    units = capture.units.of(layout.COUNTER)
    words, types = units.i64(2), units.u16(1) & layout.VALUE_MASK
    values = words.astype(np.float64)
    values[types == layout.VALUE_UINT] = words.view(np.uint64)[types == layout.VALUE_UINT]
    values[types == layout.VALUE_DOUBLE] = words.view(np.float64)[types == layout.VALUE_DOUBLE]
    issues.add("rounded_counters", int(((types != layout.VALUE_DOUBLE) & (np.abs(values) > EXACT)).sum()))
    counters = pl.DataFrame(
        {
            "tid": capture.tids[units.logs],
            "time_ns": units.i64(1),
            "name": capture.texts.categories(units.u32(1)),
            "domain": capture.texts.categories(units.u32(6)),
            "value": values,
        }
    )
    states = capture.units.of(layout.STATE)
    resumed = states.u16(1) & 1
    issues.add("pause_asked_for", int((resumed == 0).sum()))
    collecting = pl.DataFrame(
        {"tid": capture.tids[states.logs], "time_ns": states.i64(1), "value": resumed.astype(np.float64)}
    ).with_columns(pl.lit("collecting").cast(pl.Categorical).alias("name"))
    both = pl.concat([counters, collecting], how="diagonal")
    return both.with_columns(rank=0, pid=capture.header.pid)


def read_functions(capture: CaptureFile) -> pl.DataFrame:
    """Returns the table functions. Word 4 of a call's unit is 1 + the unit number of the enclosing call, or 0."""
    units = capture.units.of(layout.CALL)
    around = units.i64(4) - 1
    parents = find(units.keys, (units.logs << layout.NUMBER_BITS) + np.maximum(around, 0))
    parents[around < 0] = layout.NOWHERE
    frame = pl.DataFrame(
        {
            "id": np.arange(len(units)),
            "tid": capture.tids[units.logs],
            "start_ns": units.i64(1),
            "end_ns": units.i64(2),
            "name": capture.texts.categories(units.u32(1)),
            "parent_id": parents,
        }
    )
    at = pl.col("end_ns"), pl.col("parent_id")
    frame = frame.with_columns(pl.when(at[0] > 0).then(at[0]), pl.when(at[1] >= 0).then(at[1]))
    return frame.with_columns(rank=0, pid=capture.header.pid)


def read_memory(capture: CaptureFile) -> pl.DataFrame:
    units = capture.units.of(layout.MEMORY)
    devices = units.i64(5)
    of_host = (devices & 0xFFFFFFFF) == 0
    frame = pl.DataFrame(
        {
            "tid": capture.tids[units.logs],
            "device_id": pl.Series((devices >> 32).astype(np.int32)).zip_with(pl.Series(~of_host), _NO_DEVICE),
            "time_ns": units.i64(1),
            "event": MEMORY_EVENTS.gather(np.minimum(units.u16(1), len(MEMORY_EVENTS) - 1)),
            "bytes": units.i64(3),
            "address": units.i64(2).view(np.uint64),
            "total_bytes": units.i64(4),
        }
    )
    return frame.with_columns(rank=0, pid=capture.header.pid)


def note_capture(capture: CaptureFile, issues: Issues) -> None:
    """Adds problems of the capture itself as issues."""
    header = capture.header
    if header.state == layout.FULL:
        issues.add("disk_full")
    issues.add("lost_events", header.lost)
    if header.close_monotonic_ns:
        drift_ns = (header.close_utc_ns - header.close_monotonic_ns) - (header.open_utc_ns - header.open_monotonic_ns)
        if abs(drift_ns) > STEPPED_NS:
            issues.add("clock_stepped", detail=f"by {drift_ns / 1e9:+.3f} s")
    kinds = capture.units.kinds
    issues.add("unknown_units", int(((kinds > layout.MEMORY) & (kinds != layout.CALL)).sum()))


def note_texts(capture: CaptureFile, ranges: Units, issues: Issues) -> None:
    """Adds an issue that counts references from ranges to texts that are not in the file."""
    flags = np.where(ranges.u8(1) == layout.TORCH, ranges.u16(1), 0)
    missing = sum(capture.texts.missing(ranges.u32(k)) for k in (1, 10, 13))
    missing += sum(capture.texts.missing(ranges.u32(k)[flags & layout.HAS_INPUTS != 0]) for k in (14, 15))
    issues.add("unknown_strings", missing + capture.texts.missing(ranges.u32(12)[flags & layout.HAS_STACK != 0]))
