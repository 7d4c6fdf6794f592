"""Helps to read cells of SQLite as columns of one type. It has the SQL that selects such cells, and decodes texts.

SQLite stores any value in any column, whatever type was declared, but the driver needs one type per column.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import polars as pl

Type = Literal["int", "int32", "float", "text", "bytes"]
DTYPES: dict[Type, type[pl.DataType]] = {
    "int": pl.Int64,
    "int32": pl.Int32,
    "float": pl.Float64,
    "text": pl.String,
    "bytes": pl.Binary,
}

# The driver takes the type of a column from its first batch, and fails if the column has another type in a later batch.
# So each query begins with a row of the wanted types, which is removed again. This also helps if the first batch has
# only NULLs.
FIRST: dict[Type, str] = {"int": "0", "int32": "0", "float": "0.5", "text": "''", "bytes": "x''"}

# Casting to text costs nothing if the cell is text already.
PLAIN: dict[Type, str] = {"text": "CAST({0} AS TEXT)", "bytes": "CAST({0} AS BLOB)"}

# Casts for columns with cells of other types. A cell that cannot be converted exactly becomes NULL.
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


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def as_read(kind: Type) -> type[pl.DataType]:
    return pl.Int64 if kind == "int32" else DTYPES[kind]


def dtypes_of(columns: Mapping[str, Type]) -> dict[str, type[pl.DataType]]:
    return {name: DTYPES[kind] for name, kind in columns.items()}


def checked(raw: pl.Series) -> tuple[pl.Series, int]:
    """Returns bytes as text, and the number of cells that were not UTF-8. These cells are found by halving, because
    they are rare."""
    try:
        return raw.cast(pl.String), 0
    except pl.exceptions.ComputeError:
        if len(raw) == 1:
            return pl.Series(raw.name, [decoded(raw[0])]), 1
    halves = [checked(half) for half in (raw[: len(raw) // 2], raw[len(raw) // 2 :])]
    return pl.concat([texts for texts, _ in halves]), sum(bad for _, bad in halves)


def decoded(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
