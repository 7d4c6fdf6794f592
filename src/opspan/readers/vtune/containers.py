"""Rows that a result keeps outside SQLite: a folder a table, with a file of records that are all of one length.

    pmu_data/container.metadata   <entry path="end_tsc" size="394"><indexFields><field path="dd_sample"/>...
    pmu_data/end_tsc/0            the entry's own value, u64; index fields, i32 each; int64Fields; doubleFields

A record is padded to a multiple of eight bytes. Index fields are row ids, 0 for none. What does not add up to the
length of the file is not read.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import polars as pl

from opspan.errors import NotReadable
from opspan.formats.budget import DESCRIPTION
from opspan.readers.vtune.result_files import CONTAINER
from opspan.tables import Issues

if TYPE_CHECKING:
    import numpy as np

UNKNOWN_SIZE = (1 << 64) - 1  # an entry without rows
KINDS = (("indexFields", "<i4"), ("int64Fields", "<i8"), ("doubleFields", "<f8"))
MOST_FIELDS = 64
ALIGNED = 8


@dataclass(frozen=True)
class Entry:
    key: str
    rows: int
    dtype: np.dtype[np.void]
    files: tuple[Path, ...]


def read(folder: Path, columns: tuple[str, ...], issues: Issues) -> pl.DataFrame | None:
    """These columns of all records as int64 (an index 0 is null); None where the folder holds something else."""
    import numpy as np  # not before there is a container: few results have one

    parts = []
    for entry in entries(folder, issues):
        if not set(columns) <= set(entry.dtype.names or ()):
            return None
        for file in entry.files:
            records = np.fromfile(file, dtype=entry.dtype)
            parts.append(pl.DataFrame({name: _column(records, name) for name in columns}))
    return pl.concat(parts) if parts else pl.DataFrame(schema=dict.fromkeys(columns, pl.Int64))


def count(folder: Path, issues: Issues) -> int:
    return sum(entry.rows for entry in entries(folder, issues))


def entries(folder: Path, issues: Issues) -> list[Entry]:
    """What the folder holds, as far as its files are as long as it says."""
    found = []
    for entry in _described(folder, issues):
        wanted, have = entry.rows * entry.dtype.itemsize, sum(file.stat().st_size for file in entry.files)
        if wanted == have and all(not file.stat().st_size % entry.dtype.itemsize for file in entry.files):
            found.append(entry)
        else:
            said = f"{folder.name}/{entry.key} has {have:,} bytes, not {wanted:,}"
            issues.add("damaged_file", detail=said)
    return found


def _described(folder: Path, issues: Issues) -> list[Entry]:
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


def _entry(folder: Path, node: ElementTree.Element) -> Entry | None:
    import numpy as np

    key = node.get("path") or ""
    rows = next((int(value) for name, value in node.items() if name.endswith("size")), 0)
    if rows == UNKNOWN_SIZE or not key.isidentifier():
        return None
    fields: list[tuple[str, str]] = [(key, "<i8")]
    for kind, dtype in KINDS:
        fields += [(field.get("path") or "", dtype) for field in node.iterfind(f"{kind}/field")]
    if len(fields) > MOST_FIELDS:
        raise ValueError(f"{len(fields)} fields")
    size = sum(np.dtype(dtype).itemsize for _, dtype in fields)
    fields.append(("", f"V{-size % ALIGNED}"))
    files = tuple(sorted(file for file in folder.joinpath(key).glob("*") if file.name.isdigit() and file.is_file()))
    return Entry(key, rows, np.dtype([field for field in fields if field[1] != "V0"]), files)


def _column(records: np.ndarray, name: str) -> pl.Series:
    values = pl.Series(name, records[name].copy()).cast(pl.Int64)
    is_index = records.dtype[name].itemsize == 4
    return values.set(values == 0, None) if is_index else values
