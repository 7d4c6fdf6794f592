"""Reads one nsys export of any kind: its tables (by names without suffixes such as _V2), its texts, times and ids.

    globalTid = hardware id, 8 bits | VM id, 8 bits | pid, 24 bits | tid, 24 bits; globalPid: the same with tid 0

`TableStore` hides whether the tables are in an SQLite file or in a folder of Parquet or Arrow files. Each store counts
cells of a wrong type and replaces them by null, so the other modules need not check cells.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import polars as pl

from opspan.formats.budget import TEXTS, Meter
from opspan.formats.columns import Columns, TextTable, in_time, ints, narrow
from opspan.formats.sqlite import Type
from opspan.printable import listed_counts
from opspan.readers.nsys import tables
from opspan.tables import Issues
from opspan.tables.schema import Dtype

PID_UNIT = 1 << 24
ID_MASK = PID_UNIT - 1

_VERSIONED = re.compile(r"(?P<base>.+)_V(?P<version>[0-9]+)")


class TableStore(Protocol):
    """A set of tables in an SQLite file, or in a folder of Parquet or Arrow files."""

    @property
    def tables(self) -> Sequence[str]: ...
    @property
    def bytes(self) -> int: ...
    def columns(self, table: str) -> Sequence[str]: ...
    def count(self, table: str) -> int: ...
    def ahead(self, table: str, columns: Mapping[str, Type], after: str | None = None) -> None: ...
    def frame(self, table: str, columns: Mapping[str, Type]) -> pl.DataFrame: ...


class Export:
    def __init__(self, store: TableStore, issues: Issues) -> None:
        self.store = store
        self.issues = issues
        self.written = Meter(TEXTS, store.bytes, issues)
        self._names = _base_names(store.tables)
        self._read: set[str] = set()
        self.strings = TextTable(self.frame("StringIds", {"id": "int", "value": "text"}), self.written, issues)

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables, without suffixes such as _V2, which marks a newer layout."""
        return tuple(self._names)

    def __contains__(self, table: str) -> bool:
        return table in self._names

    def columns(self, table: str) -> Sequence[str]:
        return self.store.columns(self._names[table]) if table in self._names else ()

    def frame(self, table: str, columns: Columns) -> pl.DataFrame:
        """Returns the columns of a table. A missing column is null, and a missing table has no rows."""
        name = self._names.get(table, table)
        self._read.add(name)
        frame = self.store.frame(name, columns)
        before = None
        for following, its_columns in tables.AHEAD.get(table, {}).items():
            if following in self._names:
                self.store.ahead(self._names[following], its_columns, before)
                before = self._names[following]
        return frame

    def timed(self, table: str, columns: Columns, extras: Columns | None = None) -> pl.DataFrame:
        """Returns the columns of a table, with start_ns and end_ns instead of start and end.

        Leaves out rows without a valid start, and columns of `extras` that are empty.
        """
        extras = extras or {}
        frame = self.frame(table, {**columns, **extras})
        unused = [name for name in extras if not frame[name].count()]
        return self.in_time(table, frame.drop(unused) if unused else frame)

    def in_time(self, table: str, frame: pl.DataFrame) -> pl.DataFrame:
        return in_time(frame, table, self.issues)

    def narrow(self, table: str, frame: pl.DataFrame, dtypes: Mapping[str, Dtype]) -> pl.DataFrame:
        """Returns the frame with numbers in narrower types; a number that does not fit becomes null."""
        return narrow(frame, table, dtypes, self.issues)

    def joined(self, readers: Mapping[str, Callable[[Export], pl.DataFrame]]) -> pl.DataFrame | None:
        """Returns the rows of several tables as one frame, or None if there are no rows. `readers`: table -> the
        function that reads it."""
        parts = [part for table, read in readers.items() if table in self and (part := read(self)).height]
        if len(parts) < 2:
            return parts[0] if parts else None
        return pl.concat(parts, how="diagonal_relaxed")

    def on_gpus(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Replaces CUDA's `device_id`, which counts only GPUs visible to the process, by the id in TARGET_INFO_GPU."""
        if "TARGET_INFO_CUDA_DEVICE" not in self:
            return frame
        known = self.frame("TARGET_INFO_CUDA_DEVICE", ints("gpuId cudaId pid")).drop_nulls()
        if known.filter(pl.col("gpuId") != pl.col("cudaId")).is_empty():
            return frame
        known = known.unique(["pid", "cudaId"], keep="first").with_columns(
            pl.col("cudaId").cast(pl.Int32, strict=False), pl.col("gpuId").cast(pl.Int32, strict=False)
        )
        known = known.rename({"cudaId": "device_id"})
        frame = frame.join(known, on=["pid", "device_id"], how="left", maintain_order="left")
        return frame.with_columns(pl.coalesce("gpuId", "device_id").alias("device_id")).drop("gpuId")

    def memory_kinds(self) -> dict[int, str]:
        kinds = self.labels("ENUM_CUDA_MEM_KIND", tables.MEMORY_KINDS)
        return {number: label.lower() for number, label in kinds.items()}

    def labels(self, enum: str, fallback: Mapping[int, str] | None = None) -> dict[int, str]:
        """Returns number -> label of an enumeration, from the file or else from `fallback`."""
        frame = self.frame(enum, {"id": "int", "name": "text", "label": "text"})
        rows = zip(frame["id"], frame["label"], frame["name"], strict=True)
        own = {number: label or name or str(number) for number, label, name in rows if number is not None}
        return own or dict(fallback or {})

    def skip_the_rest(self) -> None:
        """Adds an issue that counts the rows of unread tables."""
        skipped = {
            name: rows
            for name in self.store.tables
            if name not in self._read and not re.fullmatch(tables.DESCRIPTIONS, name)
            if (rows := self.store.count(name))
        }
        self.issues.add("skipped_tables", sum(skipped.values()), listed_counts(skipped))


def where(frame: pl.DataFrame, column: str = "globalTid") -> list[pl.Expr]:
    """Returns pid and tid from a globalTid column. A value that all rows share becomes a literal, which needs no
    memory."""
    pid, tid = pid_of(column), tid_of(column)
    if frame.is_empty():
        return [pid.alias("pid"), tid.alias("tid")]
    low, high, nulls = frame.select(
        pl.col(column).min().alias("low"), pl.col(column).max().alias("high"), pl.col(column).null_count()
    ).row(0)
    if low is not None and not nulls:
        if low // PID_UNIT == high // PID_UNIT:  # all ids between `low` and `high` have this pid too
            pid = pl.lit((low // PID_UNIT) & ID_MASK, dtype=pl.Int64)
        if low == high:
            tid = pl.lit(low & ID_MASK, dtype=pl.Int64)
    return [pid.alias("pid"), tid.alias("tid")]


def pid_of(column: str) -> pl.Expr:
    return (pl.col(column) // PID_UNIT) & ID_MASK


def tid_of(column: str) -> pl.Expr:
    return pl.col(column) & ID_MASK


def _base_names(names: Iterable[str]) -> dict[str, str]:
    """Returns NAME -> the newest of NAME, NAME_V2, NAME_V3, ... in the file."""
    newest: dict[str, tuple[int, str]] = {}
    for name in names:
        versioned = _VERSIONED.fullmatch(name)
        base, version = (versioned["base"], int(versioned["version"])) if versioned else (name, 1)
        newest[base] = max(newest.get(base, (0, "")), (version, name))
    return {base: name for base, (_, name) in newest.items()}
