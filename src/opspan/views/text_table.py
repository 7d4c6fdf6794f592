"""Prints sums in the style of torch's table: times, their shares of the total, and lines with the totals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import polars as pl

from opspan.events.texts import format_share, format_time
from opspan.printable import printable
from opspan.text_columns import Layout, TextColumn, as_torch, cut, fitted
from opspan.views.fields import (
    BLOCKS_PER_SM,
    FUNCTION,
    KIND,
    LINE,
    MODULE,
    NAME,
    PHASE,
    PLACES,
    SOURCE_OP,
    STEP,
    TENSOR_CORES,
    Field,
)

_NAME_WIDTH = 55  # as in torch's table
_WIDTH = 12
_LEAST_NAME = 24  # a name is never cut to fewer characters; if there is less room, other columns are dropped
_KEYS = (
    LINE,
    SOURCE_OP,
    MODULE,
    STEP,
    replace(PHASE, unit="text"),
    FUNCTION,
    KIND,
    NAME,
    *PLACES,
)
# {} in a title is replaced by the name of the device.
_TIMES = (
    Field("self_cpu_ns", "Self CPU", "ns", rank=2),
    Field("cpu_ns", "CPU total", "ns", rank=3),
    Field("self_device_ns", "Self {}", "ns", rank=1),
    Field("backward_cpu_ns", "Backward CPU", "ns", rank=4),
    Field("backward_device_ns", "Backward {}", "ns", rank=4),
    Field("device_ns", "{} total", "ns", rank=2),
    Field("average_device_ns", "{} time avg", "ns", rank=5),
    Field("least_device_ns", "{} time min", "ns", rank=8),
    Field("most_device_ns", "{} time max", "ns", rank=7),
)
_MEMORY = (
    Field("self_cpu_memory_bytes", "Self CPU Mem", "bytes", rank=1),
    Field("self_device_memory_bytes", "Self {} Mem", "bytes", rank=1),
)
_OF_KERNELS = (
    replace(BLOCKS_PER_SM, rank=8),
    Field("occupancy", "Occupancy", "share", rank=6),
    replace(TENSOR_CORES, rank=6),
)
_COUNT = Field("count", "", "count", rank=1, none="--")
_RANGES = Field("ranges", "# of Ranges", "count", rank=1, none="--")
_SHARED = ("self_cpu_ns", "self_device_ns", "device_ns")
_SHARE_RANK = 6


class SumRows:
    """Prints rows of sums. `counted` is the title of the column `count`."""

    def __init__(self, rows: pl.DataFrame, device: str, counted: str) -> None:
        self.rows = printable_names(
            rows, *(field.name for field in _KEYS if field.unit == "name" and field.name in rows.columns)
        )
        self._device = device
        self._counted = counted

    def text(self, limit: int, layout: Layout) -> tuple[str, list[str]]:
        """Returns the text of the first `limit` rows (-1: all), and sentences on the columns that did not fit."""
        columns, totals = self.columns(limit)
        if layout.width is None:
            lines, notes = _at_least_as_torch(columns, layout.whole_names), list[str]()
        else:
            lines, notes = fitted(columns, layout.width)
        return "\n".join([*lines, *totals]) + "\n", notes

    def columns(self, limit: int) -> tuple[list[TextColumn], list[str]]:
        """Returns the first `limit` rows as columns, and the lines with the totals."""
        shown = self.rows if limit < 0 else self.rows.head(limit)
        totals = [
            f"{title} time total: {format_time(_total(self.rows, name) / 1000)}"
            for name, title in _totals(self.rows, self._device)
        ]
        return list(_columns(shown, self.rows, self._device, self._counted)), totals


def _at_least_as_torch(columns: list[TextColumn], whole_names: bool) -> list[str]:
    """Returns lines of a table with columns at least as wide as torch's. The ends of long names are cut, unless
    `whole_names` is set."""
    if not whole_names:
        columns = [column if column.least is None else _shortened(column) for column in columns]
    return as_torch(columns, [max(_WIDTH, column.width) for column in columns])


def _shortened(column: TextColumn) -> TextColumn:
    return column._replace(cells=[cut(cell, _NAME_WIDTH, cut_end=True) for cell in column.cells])


def _columns(shown: pl.DataFrame, rows: pl.DataFrame, device: str, counted: str) -> Iterator[TextColumn]:
    for field in _known_fields(_KEYS, rows):
        column = replace(field, none="(none)").column(shown)
        yield column if column.least is None else column._replace(least=_LEAST_NAME)
    for field in _known_fields(_TIMES, rows):
        total = _total(rows, field.name)
        if "device" in field.name and not total:
            continue
        field = replace(field, title=field.title.format(device))
        if field.name in _SHARED:
            shares = [format_share(value, total) for value in shown[field.name].to_list()]
            yield TextColumn(f"{field.title} %", shares, _SHARE_RANK)
        yield field.column(shown)
    for field in _known_fields(_MEMORY, rows):
        if "device" not in field.name or (rows[field.name] != 0).any():
            yield replace(field, title=field.title.format(device)).column(shown)
    for field in _known_fields(_OF_KERNELS, rows):
        if (rows[field.name] != ("no" if field.unit == "text" else 0)).any():
            yield field.column(shown)
    if "count" in rows.columns:
        yield replace(_COUNT, title=counted).column(shown)
    if "ranges" in rows.columns:
        yield replace(_RANGES, rank=7 if "count" in rows.columns else 1).column(shown)


def _known_fields(fields: tuple[Field, ...], rows: pl.DataFrame) -> Iterator[Field]:
    return (field for field in fields if field.name in rows.columns)


def _total(rows: pl.DataFrame, name: str) -> float:
    return float(rows[name].sum())


def _totals(rows: pl.DataFrame, device: str) -> Iterator[tuple[str, str]]:
    for name in _SHARED:
        if name == "device_ns" and "self_device_ns" in rows.columns:
            continue
        if name in rows.columns and ("cpu" in name or _total(rows, name)):
            yield name, "Self CPU" if "cpu" in name else f"Self {device}"


def printable_names(frame: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """Makes the texts in these columns printable. Converts each distinct text only once."""
    changes = {}
    for name in columns:
        texts = frame.select(pl.col(name).unique().cast(pl.String)).to_series()
        odd = texts.filter(texts.str.contains(r"[\pC\p{Zl}\p{Zp}]").fill_null(value=False)).to_list()
        if odd:
            changed = pl.col(name).cast(pl.String).replace(odd, [printable(text) for text in odd])
            changes[name] = changed.cast(frame.schema[name])
    return frame.with_columns(**changes) if changes else frame
