"""Reads the rows that a result stores outside SQLite: a folder for each table, with files of fixed-length records.

    pmu_data/container.metadata   <entry path="end_tsc" size="394"><indexFields><field path="dd_sample"/>...
    pmu_data/end_tsc/0            the entry's own value (u64), indexFields (i32 each), int64Fields, doubleFields

A record is padded to a multiple of eight bytes. Index fields are row ids; 0 means none. An entry describes the records
in one subfolder. An entry is not read if its `size` (how many records it has) does not match the length of the files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import polars as pl

from opspan.errors import NotReadable
from opspan.formats.budget import DESCRIPTION
from opspan.readers.vtune.result_files import CONTAINER
from opspan.tables import Issues
from opspan.tables.schema import Dtype

UNKNOWN_SIZE = (1 << 64) - 1  # the size of an entry without rows
KINDS: tuple[tuple[str, Dtype, int], ...] = (
    ("indexFields", pl.Int32, 4),
    ("int64Fields", pl.Int64, 8),
    ("doubleFields", pl.Float64, 8),
)
MOST_FIELDS = 64
ALIGNED = 8


class RecordField(NamedTuple):
    dtype: Dtype
    bytes: int
    at: int  # offset of the field in a record


@dataclass(frozen=True)
class ContainerEntry:
    key: str
    rows: int
    fields: Mapping[str, RecordField]
    bytes: int  # the size of a record
    files: tuple[Path, ...]


def read(folder: Path, columns: tuple[str, ...], issues: Issues) -> pl.DataFrame | None:
    """Returns the columns of all records as int64 (an index 0 is null); None if an entry lacks one of the columns."""
    parts = []
    for entry in entries(folder, issues):
        if not set(columns) <= set(entry.fields):
            return None
        for raw in filter(None, (file.read_bytes() for file in entry.files)):
            parts.append(pl.DataFrame([_column(raw, name, entry.fields[name], entry.bytes) for name in columns]))
    return pl.concat(parts) if parts else pl.DataFrame(schema=dict.fromkeys(columns, pl.Int64))


def count(folder: Path, issues: Issues) -> int:
    return sum(entry.rows for entry in entries(folder, issues))


def entries(folder: Path, issues: Issues) -> list[ContainerEntry]:
    """Returns the folder's entries. Leaves out an entry if its files do not have the described length."""
    sound = []
    for entry in _described(folder, issues):
        expected, sizes = entry.rows * entry.bytes, [file.stat().st_size for file in entry.files]
        if expected == sum(sizes) and all(not size % entry.bytes for size in sizes):
            sound.append(entry)
        else:
            detail = f"{folder.name}/{entry.key} has {sum(sizes):,} bytes, not {expected:,}"
            issues.add("damaged_file", detail=detail)
    return sound


def _described(folder: Path, issues: Issues) -> list[ContainerEntry]:
    try:
        raw = DESCRIPTION.read(folder / CONTAINER)
        if b"<!" in raw:
            raise ElementTree.ParseError("it has declarations")
        nodes = list(ElementTree.fromstring(raw).iter("entry"))
        return [entry for node in nodes if (entry := _entry(folder, node)) is not None]
    except (ElementTree.ParseError, ValueError) as error:
        issues.add("damaged_file", detail=f"{folder.name}/{CONTAINER} ({error})")
        return []
    except OSError as error:
        raise NotReadable(f"cannot read {folder / CONTAINER}: {error.strerror}") from error


def _entry(folder: Path, node: ElementTree.Element) -> ContainerEntry | None:
    key = node.get("path") or ""
    rows = next((int(value) for name, value in node.items() if name.endswith("size")), 0)
    if rows == UNKNOWN_SIZE or not key.isidentifier():
        return None
    described: list[tuple[str, Dtype, int]] = [(key, pl.Int64, 8)]
    for kind, dtype, size in KINDS:
        described += [(field.get("path") or "", dtype, size) for field in node.iterfind(f"{kind}/field")]
    if len(described) > MOST_FIELDS:
        raise ValueError(f"{len(described)} fields")
    fields: dict[str, RecordField] = {}
    at = 0
    for name, dtype, size in described:
        if name and name in fields:
            raise ValueError(f"field {name!r} occurs more than once")
        fields[name] = RecordField(dtype, size, at)
        at += size
    files = tuple(sorted(file for file in folder.joinpath(key).glob("*") if file.name.isdigit() and file.is_file()))
    return ContainerEntry(key, rows, fields, at + -at % ALIGNED, files)


def _column(raw: bytes, name: str, field: RecordField, record_bytes: int) -> pl.Series:
    # Reads the bytes from the first occurrence of the field on, as an array of the field's type. The size of a record
    # is a multiple of the field's size, so every n-th element is the field.
    count = (len(raw) - field.at) // field.bytes
    blob = pl.Series(name, [raw[field.at : field.at + count * field.bytes]])
    fields = blob.bin.reinterpret(dtype=pl.Array(field.dtype, count), endianness="little").explode()
    values = fields.gather_every(record_bytes // field.bytes).cast(pl.Int64)
    return values.set(values == 0, None) if field.dtype == pl.Int32 else values
