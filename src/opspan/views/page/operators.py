"""Ops, by each of the ways to group them."""

from __future__ import annotations

from typing import Any

import polars as pl

from opspan.views.page.columns import Column, table
from opspan.views.page.section import Section, Subject
from opspan.views.table import Asked, table_of

_BY = {"name": "op", "shape": "op and sizes", "module": "module", "phase": "phase", "step": "step"}
_COLUMNS = (
    Column("name", "Op", "name"),
    Column("sizes", "Sizes", "text"),
    Column("module", "Module", "name"),
    Column("phase", "Phase", "name"),
    Column("step", "Step", "name"),
    Column("rank", "Rank", "count"),
    Column("count", "Calls", "count"),
    Column("self_cpu_ns", "Host, self", "ns", bar=True),
    Column("cpu_ns", "Host, total", "ns"),
    Column("self_device_ns", "Device, self", "ns", bar=True),
    Column("device_ns", "Device, total", "ns"),
)


def section(subject: Subject) -> Section:
    tables = [_table(subject, by) for by in _BY]
    if not any(one["rows"]["values"][0] for one in tables):
        return Section("Operators", None, "There are no ops or ranges in this trace", f"opspan summary {subject.typed}")
    return Section("Operators", {"tables": tables})


def _table(subject: Subject, by: str) -> dict[str, Any]:
    rows = table_of(subject.found, Asked(by)).rows
    device = "self_device_ns" in rows.columns and rows["self_device_ns"].sum()
    if not device:
        rows = rows.select(pl.exclude("self_device_ns", "device_ns"))
    return {
        "by": by,
        "title": _BY[by],
        "sort": "self_device_ns" if device else "self_cpu_ns",
        "rows": table(rows, _COLUMNS),
    }
