"""A frame of sums as text, in the style of torch's table: shares and times of the whole, the totals below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from opspan.events.times import format_share, format_time

_NAME_WIDTH = 55  # as in torch's
_WIDTH = 12
_GAP = "  "
_KEYS = {
    "module": "Module",
    "step": "Step",
    "phase": "Phase",
    "kind": "Kind",
    "name": "Name",
    "rank": "Rank",
    "device_id": "Device",
    "context_id": "Context",
    "stream_id": "Stream",
}
# Column -> title; a title with {} is of the device, one that begins with Self has a share after it.
_TIMES = {
    "self_cpu_ns": "Self CPU",
    "self_device_ns": "Self {}",
    "backward_cpu_ns": "Backward CPU",
    "backward_device_ns": "Backward {}",
    "device_ns": "{} total",
    "average_device_ns": "{} time avg",
}
_SHARED = ("self_cpu_ns", "self_device_ns", "device_ns")


@dataclass(frozen=True)
class _Column:
    title: str
    cells: Sequence[str]

    @property
    def width(self) -> int:
        return max(_WIDTH, len(self.title), *(len(cell) for cell in self.cells)) if self.cells else _WIDTH

    def line(self, cell: str) -> str:
        return f"{cell:>{self.width}}{_GAP}"


def render(shown: pl.DataFrame, rows: pl.DataFrame, device: str) -> str:
    """`shown`: those of the rows that get a line."""
    columns = list(_columns(shown, rows, device))
    rule = "".join(column.line("-" * column.width) for column in columns)
    lines = [rule, "".join(column.line(column.title) for column in columns), rule]
    lines += ["".join(column.line(column.cells[row]) for column in columns) for row in range(shown.height)]
    lines.append(rule)
    lines += [f"{title} time total: {format_time(_total(rows, name) / 1000)}" for name, title in _totals(rows, device)]
    return "\n".join(lines) + "\n"


def _columns(shown: pl.DataFrame, rows: pl.DataFrame, device: str) -> Iterator[_Column]:
    for name, title in _KEYS.items():
        if name in rows.columns:
            yield _Column(title, [_key(value) for value in shown[name].cast(pl.String).to_list()])
    for name, title in _TIMES.items():
        if name not in rows.columns or ("device" in name and not _total(rows, name)):
            continue
        values = shown[name].to_list()
        if name in _SHARED:
            total = _total(rows, name)
            yield _Column(f"{title} %".format(device), [format_share(value, total) for value in values])
        yield _Column(title.format(device), [format_time(value / 1000) for value in values])
    yield _Column("# of Calls", [str(value) for value in shown["count"].to_list()])


def _key(value: str | None) -> str:
    if value is None:
        return "(none)"
    return value if len(value) <= _NAME_WIDTH else value[: _NAME_WIDTH - 3] + "..."


def _total(rows: pl.DataFrame, name: str) -> float:
    return float(rows[name].sum())


def _totals(rows: pl.DataFrame, device: str) -> Iterator[tuple[str, str]]:
    for name in _SHARED:
        if name in rows.columns and ("cpu" in name or _total(rows, name)):
            yield name, "Self CPU" if "cpu" in name else f"Self {device}"
