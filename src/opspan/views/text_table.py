"""A frame of sums as text, in the style of torch's table: times, their shares of the whole, and totals below."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from opspan.events.times import format_memory, format_share, format_time
from opspan.text_columns import Column, Layout, as_torch, cut, fitted
from opspan.views.footer import printable_names

_NAME_WIDTH = 55  # as in torch's
_WIDTH = 12
_LEAST_NAME = 24  # this many characters of a name are worth more than another column
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
_NAMES = ("module", "step", "name")
# Column -> title, and how early it is dropped if there is little room; {} in a title is the device.
_TIMES = {
    "self_cpu_ns": ("Self CPU", 2),
    "cpu_ns": ("CPU total", 3),
    "self_device_ns": ("Self {}", 1),
    "backward_cpu_ns": ("Backward CPU", 4),
    "backward_device_ns": ("Backward {}", 4),
    "device_ns": ("{} total", 2),
    "average_device_ns": ("{} time avg", 5),
    "least_device_ns": ("{} time min", 8),
    "most_device_ns": ("{} time max", 7),
}
_MEMORY = {"self_cpu_memory_bytes": "Self CPU Mem", "self_device_memory_bytes": "Self {} Mem"}
_OF_KERNELS = {
    "blocks_per_sm": ("Blocks per SM", 8),
    "occupancy": ("Occupancy", 6),
    "uses_tensor_cores": ("Tensor cores", 6),
}
_SHARED = ("self_cpu_ns", "self_device_ns", "device_ns")
_SHARE_RANK = 6


class SumRows:
    """Rows of sums, and their text. `counted`: the title of their number."""

    def __init__(self, rows: pl.DataFrame, device: str, counted: str) -> None:
        self.rows = printable_names(rows, *(name for name in _NAMES if name in rows.columns))
        self._device = device
        self._counted = counted

    def text(self, limit: int, layout: Layout) -> tuple[str, list[str]]:
        """The text of the first so many rows (-1: of all), and sentences on what had no room in it."""
        columns, totals = self.columns(limit)
        if layout.width is None:
            lines, notes = _at_least_as_torch(columns, layout.whole_names), list[str]()
        else:
            lines, notes = fitted(columns, layout.width)
        return "\n".join([*lines, *totals]) + "\n", notes

    def columns(self, limit: int) -> tuple[list[Column], list[str]]:
        """The same as columns, and the lines below them."""
        shown = self.rows if limit < 0 else self.rows.head(limit)
        totals = [
            f"{title} time total: {format_time(_total(self.rows, name) / 1000)}"
            for name, title in _totals(self.rows, self._device)
        ]
        return list(_columns(shown, self.rows, self._device, self._counted)), totals


def _at_least_as_torch(columns: list[Column], whole_names: bool) -> list[str]:
    """No column narrower than torch's, and names cut at the end."""
    if not whole_names:
        columns = [column if column.least is None else _shortened(column) for column in columns]
    return as_torch(columns, [max(_WIDTH, column.width) for column in columns])


def _shortened(column: Column) -> Column:
    return column._replace(cells=[cut(cell, _NAME_WIDTH, cut_end=True) for cell in column.cells])


def _columns(shown: pl.DataFrame, rows: pl.DataFrame, device: str, counted: str) -> Iterator[Column]:
    for name, title in _KEYS.items():
        if name in rows.columns:
            cells = ["(none)" if value is None else value for value in shown[name].cast(pl.String).to_list()]
            yield Column(title, cells, least=_LEAST_NAME if name in _NAMES else None)
    for name, (title, rank) in _TIMES.items():
        if name not in rows.columns or ("device" in name and not _total(rows, name)):
            continue
        values = shown[name].to_list()
        if name in _SHARED:
            total = _total(rows, name)
            shares = [format_share(value, total) for value in values]
            yield Column(f"{title} %".format(device), shares, _SHARE_RANK)
        yield Column(title.format(device), [format_time(value / 1000) for value in values], rank)
    for name, title in _MEMORY.items():
        if name in rows.columns and ("device" not in name or (rows[name] != 0).any()):
            yield Column(title.format(device), [format_memory(value) for value in shown[name].to_list()], 1)
    for name, (title, rank) in _OF_KERNELS.items():
        nothing = "no" if name == "uses_tensor_cores" else 0
        if name in rows.columns and (rows[name] != nothing).any():
            yield Column(title, [_of_kernel(name, value) for value in shown[name].to_list()], rank)
    for name, title in {"count": counted, "ranges": "# of Ranges"}.items():
        if name in rows.columns:
            cells = ["--" if value is None else str(value) for value in shown[name].to_list()]
            yield Column(title, cells, 1 if name == "count" or "count" not in rows.columns else 7)


def _of_kernel(name: str, value: float | str | None) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return f"{value:.1%}" if name == "occupancy" else f"{value:,.2f}"


def _total(rows: pl.DataFrame, name: str) -> float:
    return float(rows[name].sum())


def _totals(rows: pl.DataFrame, device: str) -> Iterator[tuple[str, str]]:
    for name in _SHARED:
        if name == "device_ns" and "self_device_ns" in rows.columns:
            continue
        if name in rows.columns and ("cpu" in name or _total(rows, name)):
            yield name, "Self CPU" if "cpu" in name else f"Self {device}"
