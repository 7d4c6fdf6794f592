"""Who took memory, how much was in use at most, and what there was of it then: `opspan memory`."""

from __future__ import annotations

import polars as pl

from opspan.analysis import Analysis
from opspan.analysis.lanes import in_lanes
from opspan.analysis.memory_use import of_peaks
from opspan.analysis.parts import Part, Parts
from opspan.analysis.spans import DEVICE
from opspan.views import of_ranges
from opspan.views.answer import Answer, Shown, sizes, texts

BY = ("op", "block", "device")
_KEYS = ("rank", "device_id", "op")
_ORDER = ("self_allocation_bytes", "allocation_bytes", "calls")
_NONE = "No memory was recorded: opspan.record(memory=True), or --cuda-memory-usage=true of nsys, does"


def rows_of(analysis: Analysis, by: str = "op") -> pl.DataFrame:
    return rows(parts(analysis, by), by)


@in_lanes
def parts(analysis: Analysis, by: str) -> Parts:
    of_ranges.check(by, BY)
    return {"rows": _part(analysis, by)}


def rows(parts: Parts, by: str) -> pl.DataFrame:
    each = parts["rows"].rows
    if by == "block":
        return of_peaks(each)
    if by == "device":
        return each.sort(*DEVICE, "allocated_bytes", descending=[False] * 3 + [True], maintain_order=True).unique(
            DEVICE, keep="first", maintain_order=True
        )
    return each.sort(*_ORDER, *_KEYS, descending=[True] * len(_ORDER) + [False] * len(_KEYS))


def _part(analysis: Analysis, by: str) -> Part:
    if by == "op":
        rows = analysis.memory_by_op.rename({"name": "op"}).with_columns(pl.col("op").cast(pl.String))
        rows = rows.rename({name: f"{name}_bytes" for name in ("size_increase", "self_size_increase")})
        return Part(rows, _KEYS)
    if by == "block":
        rows = analysis.memory_at_peak.drop("alloc_row", "range").rename({"name": "op"})
        return Part(rows.with_columns(pl.col("op", "module", "phase").cast(pl.String)), times=("peak_ns", "alloc_ns"))
    return Part(analysis.memory_peaks.drop("row"), times=("time_ns",))


def answer(analysis: Analysis, by: str) -> Answer:
    return answer_of(parts(analysis, by), by)


def answer_of(parts: Parts, by: str) -> Answer:
    table = rows(parts, by)
    device = Shown("Device", "device_id", _device)
    shown: dict[str, tuple[Shown, ...]] = {
        "op": (
            of_ranges.shown("Taken in", "op"),
            device,
            Shown("Calls", "calls", texts, 6),
            Shown("Self taken", "self_allocation_bytes", sizes),
            Shown("Self kept", "self_size_increase_bytes", sizes, 1),
            Shown("Self blocks", "self_allocation_count", texts, 3),
            Shown("Taken", "allocation_bytes", sizes, 2),
            Shown("Kept", "size_increase_bytes", sizes, 4),
            Shown("Blocks", "allocation_count", texts, 5),
        ),
        "block": (
            of_ranges.shown("Taken in", "op"),
            device,
            Shown("Module", "module", texts, 3, is_name=True),
            Shown("Phase", "phase", texts, 2),
            Shown("Size", "bytes", sizes),
        ),
        "device": (
            Shown("Process", "pid", texts),
            device,
            Shown("At most", "allocated_bytes", sizes),
            Shown("Reserved", "reserved_bytes", sizes),
        ),
    }
    return Answer("memory", table, shown[by], () if table.height else (_NONE,))


def _device(rows: pl.DataFrame, column: str) -> list[str]:
    return [text or "host" for text in texts(rows, column)]
