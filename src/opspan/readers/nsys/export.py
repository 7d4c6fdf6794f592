"""One nsys export, whatever kind of file holds it: its tables by their base names, its texts, its times, its ids.

    globalTid = hardware id, 8 bits | VM id, 8 bits | pid, 24 bits | tid, 24 bits; globalPid: the same with tid 0

SQLite files and folders of Parquet or Arrow files are the same tables behind `Source`. What is odd in a column is
made null and counted here, so that the translations beside this file need not look.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import polars as pl

from opspan.readers.nsys import tables
from opspan.readers.nsys.tables import Columns
from opspan.readers.sqlite import DTYPES, Type
from opspan.trace import Issues
from opspan.trace.schema import Dtype

# Further from the session's start than this is no time: 146 years. Differences of two times stay within 64 bits.
FAR_NS = 1 << 62
PID_UNIT = 1 << 24
ID_MASK = PID_UNIT - 1

_VERSIONED = re.compile(r"(?P<base>.+)_V(?P<version>[0-9]+)")


class Source(Protocol):
    """Tables of columns in some kind of file."""

    @property
    def tables(self) -> Sequence[str]: ...

    def columns(self, table: str) -> Sequence[str]: ...

    def count(self, table: str) -> int: ...

    def any(self, table: str, columns: Sequence[str]) -> bool: ...

    def frame(self, table: str, columns: Mapping[str, Type]) -> pl.DataFrame: ...


class Export:
    def __init__(self, source: Source, issues: Issues) -> None:
        self.source = source
        self.issues = issues
        self._names = _base_names(source.tables)
        self._read: set[str] = set()
        self.strings = Strings(self.frame("StringIds", {"id": "int", "value": "text"}), issues)

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables, without the suffix that a newer layout of a table has."""
        return tuple(self._names)

    def __contains__(self, table: str) -> bool:
        return table in self._names

    def columns(self, table: str) -> Sequence[str]:
        return self.source.columns(self._names[table]) if table in self._names else ()

    def frame(self, table: str, columns: Columns) -> pl.DataFrame:
        """The columns, null where the file has not got them; no rows where it has not got the table."""
        if table not in self._names:
            return pl.DataFrame(schema={name: DTYPES[kind] for name, kind in columns.items()})
        self._read.add(self._names[table])
        return self.source.frame(self._names[table], columns)

    def any(self, table: str, columns: Sequence[str]) -> bool:
        return table in self._names and self.source.any(self._names[table], columns)

    def timed(self, table: str, columns: Columns, extras: Columns | None = None) -> pl.DataFrame:
        """The same with start and end as start_ns and end_ns, without the rows whose start is no time.

        Of `extras` only those columns come that hold anything.
        """
        wanted = {**columns}
        if extras and self.any(table, list(extras)):
            wanted |= {name: kind for name, kind in extras.items() if self.any(table, [name])}
        return self.in_time(table, self.frame(table, wanted))

    def in_time(self, table: str, frame: pl.DataFrame) -> pl.DataFrame:
        start = pl.col("start")
        known = _is_time(start)
        if "end" in frame.columns:  # where the tool's buffers overflowed, both times are zero
            known &= ~((start == 0) & (pl.col("end") == 0)).fill_null(value=False)
        sound = frame.select(known.fill_null(value=False).alias("known")).to_series()
        if not sound.all():
            self.issues.add("no_time", frame.height - int(sound.sum()), table)
            frame = frame.filter(sound)
        if "end" not in frame.columns:
            return frame.rename({"start": "start_ns"})
        backward = frame.select((pl.col("end") < start) | ~_is_time(pl.col("end"))).to_series().fill_null(value=False)
        if backward.any():
            self.issues.add("negative_duration", int(backward.sum()), table)
            frame = frame.with_columns(pl.when(~backward).then("end"))
        return frame.rename({"start": "start_ns", "end": "end_ns"})

    def narrow(self, table: str, frame: pl.DataFrame, dtypes: Mapping[str, Dtype]) -> pl.DataFrame:
        """The frame with numbers in their narrower types; those that do not fit are null."""
        for name, dtype in dtypes.items():
            if name not in frame.columns or frame[name].dtype == dtype:
                continue
            fits = frame[name].cast(dtype, strict=False)
            self.issues.add("odd_cells", fits.null_count() - frame[name].null_count(), f"{table}, {name}")
            frame = frame.with_columns(fits)
        return frame

    def on_gpus(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The frame with `device_id` as TARGET_INFO_GPU numbers GPUs: CUDA numbers those that a process may see."""
        known = self.frame("TARGET_INFO_CUDA_DEVICE", tables.ints("gpuId cudaId pid")).drop_nulls()
        if known.filter(pl.col("gpuId") != pl.col("cudaId")).is_empty():
            return frame
        known = known.unique(["pid", "cudaId"], keep="first").with_columns(
            pl.col("cudaId").cast(pl.Int32, strict=False), pl.col("gpuId").cast(pl.Int32, strict=False)
        )
        known = known.rename({"cudaId": "device_id"})
        found = frame.join(known, on=["pid", "device_id"], how="left", maintain_order="left")
        return found.with_columns(pl.coalesce("gpuId", "device_id").alias("device_id")).drop("gpuId")

    def memory_kinds(self) -> dict[int, str]:
        kinds = self.labels("ENUM_CUDA_MEM_KIND", tables.MEMORY_KINDS)
        return {number: label.lower() for number, label in kinds.items()}

    def labels(self, enum: str, fallback: Mapping[int, str] | None = None) -> dict[int, str]:
        """An enumeration's labels, as the file has them, else as they were when this was written."""
        frame = self.frame(enum, {"id": "int", "name": "text", "label": "text"})
        rows = zip(frame["id"], frame["label"], frame["name"], strict=True)
        own = {number: label or name or str(number) for number, label, name in rows if number is not None}
        return own or dict(fallback or {})

    def skip_the_rest(self) -> None:
        """Count what is in tables that nobody asked for."""
        skipped = {
            name: rows
            for name in self.source.tables
            if name not in self._read and not tables.DESCRIPTIONS.fullmatch(name)
            if (rows := self.source.count(name))
        }
        listed = ", ".join(f"{name} {rows:,}" for name, rows in skipped.items())
        self.issues.add("skipped_tables", sum(skipped.values()), listed)


class Strings:
    """StringIds: the texts that ids stand for."""

    def __init__(self, frame: pl.DataFrame, issues: Issues) -> None:
        frame = frame.drop_nulls().unique("id", keep="first").sort("id")
        self._issues = issues
        self._ids = frame["id"]
        self.values = frame["value"]

    def rows(self, ids: pl.Series, what: str) -> pl.Series:
        """The row in `values` of each id; null where there is none."""
        ids = ids.cast(pl.Int64)
        if not len(self._ids):
            self._issues.add("unknown_strings", len(ids) - ids.null_count(), what)
            return pl.Series([None], dtype=pl.UInt32).new_from_index(0, len(ids))
        at = self._ids.search_sorted(ids).clip(0, len(self._ids) - 1)
        known = self._ids.gather(at) == ids
        self._issues.add("unknown_strings", int((~known).sum()), what)
        return at.to_frame("at").select(pl.when(known).then("at")).to_series()

    def names(self, ids: pl.Series, what: str, values: pl.Series | None = None) -> pl.Series:
        """The texts as a Categorical; `values` may be other texts in the order of `self.values`."""
        return (self.values if values is None else values).cast(pl.Categorical).gather(self.rows(ids, what))

    def texts(self, ids: pl.Series, what: str) -> pl.Series:
        return self.values.gather(self.rows(ids, what))


def pid_of(column: str) -> pl.Expr:
    return (pl.col(column) // PID_UNIT) & ID_MASK


def tid_of(column: str) -> pl.Expr:
    return pl.col(column) & ID_MASK


def named(column: str, labels: Mapping[int, str], template: str = "{}", other: str | None = None) -> pl.Expr:
    """Numbers of an enumeration as names; one that it has not got is `other`, or stays a number as text."""
    texts = {number: template.format(label) for number, label in labels.items()}
    numbers = pl.col(column)
    written = numbers.replace_strict(list(texts), list(texts.values()), default=None, return_dtype=pl.String)
    unknown = numbers.cast(pl.String) if other is None else pl.when(numbers.is_not_null()).then(pl.lit(other))
    return pl.coalesce(written, unknown).cast(pl.Categorical)


def constant(value: str) -> pl.Expr:
    return pl.lit(value, dtype=pl.Categorical)


def _is_time(column: pl.Expr) -> pl.Expr:
    return (column > -FAR_NS) & (column < FAR_NS)


def _base_names(names: Iterable[str]) -> dict[str, str]:
    """Base name -> name in the file; of NAME, NAME_V2 and NAME_V3 the newest."""
    newest: dict[str, tuple[int, str]] = {}
    for name in names:
        versioned = _VERSIONED.fullmatch(name)
        base, version = (versioned["base"], int(versioned["version"])) if versioned else (name, 1)
        newest[base] = max(newest.get(base, (0, "")), (version, name))
    return {base: name for base, (_, name) in newest.items()}
