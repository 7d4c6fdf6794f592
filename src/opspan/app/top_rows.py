"""Computes what `opspan top` shows of one short recording: rows of ops, modules or lines, and the length of steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from opspan.analysis.step_lengths import lengths
from opspan.trace import Trace

_TORCH = "/torch/"


@dataclass(frozen=True)
class Row:
    name: str
    count: int
    self_ns: int
    total_ns: int

    def ns(self, by_total: bool) -> int:
        return self.total_ns if by_total else self.self_ns


@dataclass(frozen=True)
class Snapshot:
    by: str
    rows: tuple[Row, ...]
    is_device: bool  # True if the times are device times; False if no device was used, so they are CPU times
    steps: int
    step_ns: int | None  # the median length of a step


def snapshot_of(trace: Trace, by: str) -> Snapshot:
    ranges = trace.analysed.attributed.ranges
    part = "device" if ranges["self_device_ns"].sum() else "cpu"
    steps = lengths(trace.analysed)
    return Snapshot(by, tuple(_ROWS[by](trace, part)), part == "device", steps.steps, steps.median_ns)


def sort_rows(snapshot: Snapshot, by_total: bool) -> list[Row]:
    return sorted(snapshot.rows, key=lambda row: (-row.ns(by_total), row.name))


def _ops(trace: Trace, part: str) -> list[Row]:
    table = trace.table("name").rows.select("name", "count", f"self_{part}_ns", f"{part}_ns")
    return [Row(*values) for values in table.iter_rows()]


def _modules(trace: Trace, part: str) -> list[Row]:
    """Returns a row for each module. The total time of a module includes the modules inside it."""
    table = trace.table("module").rows.drop_nulls("module").select("module", "count", f"self_{part}_ns")
    rows = list(table.iter_rows())
    return [
        Row(name, count or 0, own, own + sum(ns for other, _, ns in rows if other.startswith(f"{name}.")))
        for name, count, own in rows
    ]


def _lines(trace: Trace, part: str) -> list[Row]:
    """Returns a row for each line of code. The self time of a line is the time of the ops that it calls, directly or
    through torch's Python code. Its total time includes all ops that run during its calls."""
    own = "self_ns" if part == "cpu" else "self_device_ns"
    ranges = trace.analysed.attributed.ranges.drop_nulls("stack")
    stacks = ranges.group_by("stack").agg(count=pl.len(), ns=pl.col(own).sum())
    sums: dict[str, list[int]] = {}
    for stack, count, ns in stacks.iter_rows():
        frames = str(stack).split("\n")  # the frames of the stack, the outermost first
        lines = [line for line in frames if _TORCH not in line] or frames
        for line in dict.fromkeys(lines):
            sums.setdefault(line, [0, 0, 0])[2] += ns
        sums[lines[-1]][0] += count
        sums[lines[-1]][1] += ns
    return [Row(line, *values) for line, values in sums.items()]


_ROWS: dict[str, Callable[[Trace, str], list[Row]]] = {"ops": _ops, "modules": _modules, "lines": _lines}
BY = tuple(_ROWS)
