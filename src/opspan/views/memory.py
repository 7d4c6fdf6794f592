"""The ops that took memory, the peak of the memory in use, and the blocks in use at the peak: `opspan memory`."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from opspan.analysis import Analysis
from opspan.analysis.lanes import in_lanes
from opspan.analysis.memory_use import of_peaks
from opspan.analysis.parts import Part, Parts
from opspan.analysis.spans import DEVICE
from opspan.questions import Options, Question
from opspan.views import of_ranges
from opspan.views.answer import Answer
from opspan.views.fields import DEVICE_ID, MODULE, PHASE, PID, SIZE, Field

_TAKEN_IN = of_ranges.field("Taken in", "op")
_DEVICE = replace(DEVICE_ID, unit="text", none="host")
_FIELDS = {
    "op": (
        _TAKEN_IN,
        _DEVICE,
        Field("calls", "Calls", "count", rank=6),
        Field("self_allocation_bytes", "Self taken", "bytes"),
        Field("self_size_increase_bytes", "Self kept", "bytes", rank=1),
        Field("self_allocation_count", "Self blocks", "count", rank=3),
        Field("allocation_bytes", "Taken", "bytes", rank=2),
        Field("size_increase_bytes", "Kept", "bytes", rank=4),
        Field("allocation_count", "Blocks", "count", rank=5),
    ),
    "block": (
        _TAKEN_IN,
        _DEVICE,
        replace(MODULE, rank=3),
        replace(PHASE, unit="text", rank=2),
        SIZE,
    ),
    "device": (
        PID,
        _DEVICE,
        Field("allocated_bytes", "At most", "bytes"),
        Field("reserved_bytes", "Reserved", "bytes"),
    ),
}
_KEYS = ("rank", "device_id", "op")
_ORDER = ("self_allocation_bytes", "allocation_bytes", "calls")
_NONE = "No memory was recorded: opspan.record(memory=True), or --cuda-memory-usage=true of nsys, does"


def rows(parts: Parts, options: Options) -> pl.DataFrame:
    rows, by = parts["rows"].rows, options.by
    if by == "block":
        return of_peaks(rows)
    if by == "device":
        rows = rows.sort(*DEVICE, "allocated_bytes", descending=[False] * 3 + [True], maintain_order=True)
        return rows.unique(DEVICE, keep="first", maintain_order=True)
    return rows.sort(*_ORDER, *_KEYS, descending=[True] * len(_ORDER) + [False] * len(_KEYS))


@in_lanes
def parts(analysis: Analysis, options: Options) -> Parts:
    if options.by == "op":
        rows = analysis.memory_by_op.rename({"name": "op"}).with_columns(pl.col("op").cast(pl.String))
        rows = rows.rename({name: f"{name}_bytes" for name in ("size_increase", "self_size_increase")})
        return {"rows": Part(rows, _KEYS)}
    if options.by == "block":
        rows = analysis.memory_at_peak.drop("alloc_row", "range").rename({"name": "op"})
        rows = rows.with_columns(pl.col("op", "module", "phase").cast(pl.String))
        return {"rows": Part(rows, times=("peak_ns", "alloc_ns"))}
    return {"rows": Part(analysis.memory_peaks.drop("row"), times=("time_ns",))}


def answer(parts: Parts, options: Options) -> Answer:
    table = rows(parts, options)
    return Answer("memory", table, _FIELDS[options.by], () if table.height else (_NONE,))


QUESTION = Question("memory", parts, rows, answer)
