"""Reads cells of SQLite as columns of one type. Native code reads them from the pages of the file, many times as fast
as SQLite returns rows. SQL reads everything else.

SQLite stores any value in any column, whatever type was declared. The native code reads only tables with row ids whose
cells have the requested types. It declines everything else (cells of other types, texts that are not UTF-8, tables
WITHOUT ROWID, anything inconsistent). Then SQLite reads the table, and reports what is wrong. See
docs/formats/sqlite.md. The SQL here selects cells of one type, because the driver needs one type per column.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import polars as pl

from opspan import native
from opspan.files import open_file
from opspan.tables.schema import completed

Type = Literal["int", "int32", "float", "text", "bytes"]
DTYPES: dict[Type, type[pl.DataType]] = {
    "int": pl.Int64,
    "int32": pl.Int32,
    "float": pl.Float64,
    "text": pl.String,
    "bytes": pl.Binary,
}

# The driver takes the type of a column from its first batch, and fails if a later batch has another type. So each query
# begins with a row of the wanted types, which is removed afterwards. This also helps if the first batch has only NULLs.
FIRST: dict[Type, str] = {"int": "0", "int32": "0", "float": "0.5", "text": "''", "bytes": "x''"}

# Casting to text costs nothing if the cell is text already.
PLAIN: dict[Type, str] = {"text": "CAST({0} AS TEXT)", "bytes": "CAST({0} AS BLOB)"}

# Casts for columns that also have cells of other types than the requested one. A cell that cannot be converted exactly
# becomes NULL.
GUARDED: dict[Type, str] = {
    "int": (
        "CASE typeof({0}) WHEN 'integer' THEN {0}"
        " WHEN 'real' THEN CASE WHEN {0} = CAST({0} AS INTEGER) COLLATE BINARY THEN CAST({0} AS INTEGER) END"
        " WHEN 'text' THEN CASE WHEN CAST(CAST({0} AS INTEGER) AS TEXT) = {0} COLLATE BINARY"
        " THEN CAST({0} AS INTEGER) END END"
    ),
    "float": (
        "CASE WHEN typeof({0}) IN ('real', 'integer') OR CAST(CAST({0} AS REAL) AS TEXT) = {0} COLLATE BINARY"
        " OR CAST(CAST({0} AS INTEGER) AS TEXT) = {0} COLLATE BINARY THEN CAST({0} AS REAL) END"
    ),
    "text": PLAIN["text"],
    "bytes": PLAIN["bytes"],
}

ROWID = "rowid"  # the row id, which callers request like a column
_KINDS: dict[Type, int] = {"int": 0, "int32": 1, "float": 2, "text": 3, "bytes": 4}
_NUMBER = -1  # the field number that stands for the row id
_REAL = "(?i)REAL|FLOA|DOUB"  # declared types of columns with real numbers, see https://sqlite.org/datatype3.html
_WHOLE = r"[+-]?\d{1,18}"
_TEXT = r"'((?:[^']|'')*)'"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def as_read(kind: Type) -> type[pl.DataType]:
    return pl.Int64 if kind == "int32" else DTYPES[kind]


def dtypes_of(columns: Mapping[str, Type]) -> dict[str, type[pl.DataType]]:
    return {name: DTYPES[kind] for name, kind in columns.items()}


def checked(raw: pl.Series) -> tuple[pl.Series, int]:
    """Returns bytes as text, and the number of cells that were not UTF-8. Finds these cells by halving the column,
    because they are rare."""
    try:
        return raw.cast(pl.String), 0
    except pl.exceptions.ComputeError:
        if len(raw) == 1:
            return pl.Series(raw.name, [decoded(raw[0])]), 1
    halves = [checked(half) for half in (raw[: len(raw) // 2], raw[len(raw) // 2 :])]
    return pl.concat([texts for texts, _ in halves]), sum(bad for _, bad in halves)


def decoded(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


# --- from the pages of the file


class TableFacts(NamedTuple):
    """The entries of SQLite's schema for one table name."""

    roots: Sequence[object]  # the root pages of all tables with this name; an undamaged file has only one
    columns: Sequence[tuple[Any, ...]]  # rows of PRAGMA table_xinfo


class TableLayout(NamedTuple):
    """The root page of a table, and the number of each column's field in a record."""

    root: int
    fields: Mapping[str, int]
    defaults: Mapping[str, str | None]  # the default of each column, as SQL
    reals: frozenset[str]  # columns of real numbers: a stored 1 may mean 1.0, which becomes the text "1.0"


def layout_of(connection: sqlite3.Connection, quoted: str, facts: TableFacts) -> TableLayout | None:
    """Returns the layout, or None if only SQLite can read the table."""
    rows = facts.columns
    is_computed = any(hidden for *_, hidden in rows)
    if len(facts.roots) != 1 or not isinstance(root := facts.roots[0], int) or is_computed:
        return None
    fields = {name: field for field, name, *_ in rows}
    keys = [name for _, name, kind, _, _, key, _ in rows if key and kind.upper() == "INTEGER"]
    if len(keys) == 1 == sum(bool(key) for *_, key, _ in rows):
        # An integer primary key is the row id, unless the key has an index.
        indexes = connection.execute(f"PRAGMA index_list({quoted})")
        if not any(origin == "pk" for _, _, _, origin, _ in indexes):
            fields[keys[0]] = _NUMBER
    if ROWID not in (name.lower() for name in fields):
        fields = {**fields, ROWID: _NUMBER}
    reals = frozenset(name for _, name, kind, *_ in rows if re.search(_REAL, kind or ""))
    return TableLayout(root, fields, {name: default for _, name, _, _, default, _, _ in rows}, reals)


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """Opens the file and yields its descriptor. The caller opens the file before SQLite does, and closes it after
    SQLite. Otherwise closing it would release SQLite's locks: closing any descriptor of a file releases all locks of
    the process on it."""
    with open_file(path) as stream:
        yield stream.fileno()


def read(
    descriptor: int, layout: TableLayout, columns: Mapping[str, Type], threads: int, most_text: int
) -> tuple[pl.DataFrame, int] | str:
    """Returns the columns and the bytes of their texts, or the reason why native code declines the table. `most_text`
    is the maximum number of bytes of all texts together."""
    if not columns.keys() <= layout.fields.keys():
        return "a column that is not there"
    if any(kind == "text" and name in layout.reals for name, kind in columns.items()):
        return "a column of real numbers as text"
    wanted = pl.DataFrame(
        [
            (name, layout.fields[name], _KINDS[kind], *_default(layout.defaults.get(name), kind))
            for name, kind in columns.items()
        ],
        schema={
            "name": pl.String,
            "field": pl.Int32,
            "kind": pl.UInt8,
            "default_int": pl.Int64,
            "default_text": pl.String,
            "is_known": pl.Boolean,
        },
        orient="row",
    )
    about = pl.DataFrame(
        {"root": [layout.root], "fields": [len(layout.defaults)], "threads": [threads], "most_bytes": [most_text]}
    )
    result, *values = native.sqlite(wanted, about, descriptor)
    if result.name == "declined":
        return bytes(result.to_list()).decode()
    rows = max(map(len, values))
    frame = pl.DataFrame([column for column in values if len(column) == rows])
    # As literals, columns with one value for all rows take no memory.
    same = [pl.lit(column[0], dtype=column.dtype).alias(column.name) for column in values if len(column) < rows]
    return completed(frame.with_columns(same) if same else frame, dtypes_of(columns)), int(result[0])


def _default(sql: str | None, kind: Type) -> tuple[int | None, str | None, bool]:
    """Returns the default for rows that are older than the column: as a number, as a text, and whether it could be
    read."""
    if sql is None or sql.upper() == "NULL":
        return None, None, True
    if kind in ("int", "int32") and re.fullmatch(_WHOLE, sql):
        return int(sql), None, True
    if kind == "text" and (text := re.fullmatch(_TEXT, sql)):
        return None, text[1].replace("''", "'"), True
    return None, None, False
