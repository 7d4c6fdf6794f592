"""Computes the averages of a trace as a data frame, for tables, without making event objects."""

from __future__ import annotations

import json
from typing import Any

import polars as pl

from opspan.events.columns import MEMORY
from opspan.events.event_frames import EventFrames
from opspan.events.texts import shapes_of

_TYPES: dict[str, Any] = {
    **dict.fromkeys(("name", "sizes", "stack"), pl.String),
    **dict.fromkeys(("is_cpu", "is_async"), pl.Boolean),
    **dict.fromkeys(("rank", "count", "cpu_ns", "self_cpu_ns", "device_ns", "self_device_ns", *MEMORY), pl.Int64),
}


def average_rows(events: EventFrames, by_shapes: bool = False, stack_depth: int = 0) -> pl.DataFrame:
    """Returns a row for each average of `key_averages()`, in its order. Sums are in nanoseconds and bytes. The sizes
    and the stack (the innermost function first) are JSON, taken from the first event of the average."""
    groups = events.groups(by_shapes, with_python=False, stack_depth=stack_depth, by_overload=False)
    cpu = events.source.cpu.select("is_async", "sizes", "function")
    firsts = cpu[[group.first for group in groups if group.is_cpu]].iter_rows()
    rows = []
    for group in groups:
        is_async, sizes, function = next(firsts) if group.is_cpu else (False, None, None)
        row: dict[str, Any] = {name: group.sums[name] for name in _TYPES if name in group.sums}
        row |= {"name": group.name, "is_cpu": group.is_cpu, "rank": group.rank, "is_async": is_async}
        row["sizes"] = json.dumps(shapes_of(sizes)) if by_shapes else "[]"
        row["stack"] = json.dumps(events.stack(function)[:stack_depth]) if stack_depth else "[]"
        rows.append(row)
    return pl.DataFrame(rows, schema=_TYPES).with_columns(pl.col(pl.Int64).fill_null(0))
