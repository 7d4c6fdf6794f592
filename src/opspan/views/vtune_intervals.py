"""A file of intervals for VTune, `out-hostname-<host>.csv`: put it into a result folder of VTune, or use `vtune
-import`.

    name,start_tsc.UTC,end_tsc,pid,tid
    "aten::mm, seq = 3",2026-01-02 03:04:05.000000678,2026-01-02 03:04:05.000001678,812,815

VTune shows rows with a tid as tasks, and rows without a tid as frames. docs/formats/vtune.md describes the format.
opspan can also read it.
"""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl

from opspan.analysis import Analysis
from opspan.errors import UsageError
from opspan.printable import plural
from opspan.tables import Tables

NAME = re.compile(r".+-hostname-(?P<host>.+)\.csv", re.IGNORECASE)
# VTune accepts times of this clock. If the trace has another clock, times are written as UTC, if UTC is known.
MONOTONIC = "CLOCK_MONOTONIC_RAW"
_col = pl.col


def write(analysis: Analysis, path: Path) -> list[str]:
    trace = analysis.tables
    is_mark = _col("is_mark").fill_null(value=False)
    has_ends = _col("start_ns").is_not_null() & _col("end_ns").is_not_null()
    rows = trace.ranges.filter(~is_mark & has_ends).sort("start_ns", maintain_order=True)
    if trace.metadata.clock == MONOTONIC:
        clock, times = MONOTONIC, [_col("start_ns"), _col("end_ns")]
    elif trace.origin_utc_ns is not None:
        clock, times = "UTC", [_utc(name, trace.origin_utc_ns) for name in ("start_ns", "end_ns")]
    else:
        raise UsageError(
            "VTune needs UTC times, and this trace has none; expected one that has. To write an ordinary .csv file, "
            "choose a name without -hostname-"
        )
    # Without a process, a thread id identifies nothing, so it is left out.
    tid = pl.when(_col("pid").is_not_null()).then("tid")
    name = pl.coalesce("text", _col("name").cast(pl.String)).fill_null("")
    rows.select(
        name.str.replace_all(r"[\r\n]+", " ").alias("name"),
        times[0].alias(f"start_tsc.{clock}"),
        times[1].alias("end_tsc"),
        "pid",
        tid.alias("tid"),
    ).write_csv(path)
    return _left_out(trace, rows.height, path)


def _utc(column: str, zero_ns: int) -> pl.Expr:
    return (_col(column) + zero_ns).cast(pl.Datetime("ns")).dt.strftime("%Y-%m-%d %H:%M:%S%.9f")


def _left_out(trace: Tables, written: int, path: Path) -> list[str]:
    notes = []
    marks = int(trace.ranges["is_mark"].fill_null(value=False).sum())
    if marks:
        notes.append(f"{marks:,} marks are not in it: an interval has an end")
    if others := trace.ranges.height - written - marks:
        notes.append(f"{plural(others, 'range')} without a start or an end: not in it")
    others_by_table = [
        f"{frame.height:,} rows of {name}" for name in ("calls", "work") if (frame := trace.frames[name]).height
    ]
    if others_by_table:
        notes.append(f"{' and '.join(others_by_table)} are not in it; .json has them")
    host, match = trace.metadata.host, NAME.fullmatch(path.name)
    if host and match and match["host"] != host:
        notes.append(f"The trace is of host {host}, the name says {match['host']}: VTune will not know the threads")
    return notes
