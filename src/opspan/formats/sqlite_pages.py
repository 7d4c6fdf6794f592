"""Tables of an SQLite file read from its pages, natively: many times as fast as SQLite hands over rows.

Only what is plain: a table with row ids whose cells are of the types that are asked for. Everything else (cells of
other types, texts that are not UTF-8, tables WITHOUT ROWID, anything that does not add up) is declined, and left to
SQLite, which says what is wrong. docs/formats/sqlite.md.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from opspan import native
from opspan.files import open_file
from opspan.formats.sqlite_cells import Type, dtypes_of
from opspan.tables.schema import completed

ROWID = "rowid"  # of every table, though no column of it: asked for like one
_KINDS: dict[Type, int] = {"int": 0, "int32": 1, "float": 2, "text": 3, "bytes": 4}
_NUMBER = -1  # the field of what is the number of the row
_REAL = "(?i)REAL|FLOA|DOUB"  # https://sqlite.org/datatype3.html
_WHOLE = r"[+-]?\d{1,18}"
_TEXT = r"'((?:[^']|'')*)'"


class Said(NamedTuple):
    """What SQLite says of the tables of a name."""

    roots: Sequence[object]  # where they begin: mostly it is one
    columns: Sequence[tuple[Any, ...]]  # rows of PRAGMA table_xinfo


class Layout(NamedTuple):
    """Where a table begins, and in which field of its records each column is."""

    root: int
    fields: Mapping[str, int]
    defaults: Mapping[str, str | None]  # of columns, as the table was made
    reals: frozenset[str]  # columns whose whole numbers may stand for 1.0, which as a text is not 1

    @property
    def width(self) -> int:
        return len(self.defaults)


def layout_of(connection: sqlite3.Connection, quoted: str, said: Said) -> Layout | None:
    """None: only SQLite can say what is in this table."""
    rows = said.columns
    is_computed = any(hidden for *_, hidden in rows)
    if len(said.roots) != 1 or not isinstance(root := said.roots[0], int) or is_computed:
        return None
    fields = {name: field for field, name, *_ in rows}
    keys = [name for _, name, kind, _, _, key, _ in rows if key and kind.upper() == "INTEGER"]
    if len(keys) == 1 == sum(bool(key) for *_, key, _ in rows):
        # Such a column is the number of the row, unless it has an index of its own.
        indexes = connection.execute(f"PRAGMA index_list({quoted})")
        if not any(origin == "pk" for _, _, _, origin, _ in indexes):
            fields[keys[0]] = _NUMBER
    if ROWID not in (name.lower() for name in fields):
        fields = {**fields, ROWID: _NUMBER}
    reals = frozenset(name for _, name, kind, *_ in rows if re.search(_REAL, kind or ""))
    return Layout(root, fields, {name: default for _, name, _, _, default, _, _ in rows}, reals)


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """The file's descriptor. To be opened before SQLite opens the file, and closed after it: whoever closes one gives
    up all locks that the process has on the file."""
    with open_file(path) as file:
        yield file.fileno()


def read(
    descriptor: int, layout: Layout, columns: Mapping[str, Type], threads: int, most_text: int
) -> tuple[pl.DataFrame, int] | str:
    """The columns, and how many bytes of text are in them; or why they are declined. `most_text`: bytes of text that
    the file may hold."""
    if not columns.keys() <= layout.fields.keys():
        return "a column that is not there"
    if any(kind == "text" and name in layout.reals for name, kind in columns.items()):
        return "a column of real numbers as text"
    wanted = pl.DataFrame(
        [_wanted(layout, name, kind) for name, kind in columns.items()],
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
        {"root": [layout.root], "fields": [layout.width], "threads": [threads], "most_bytes": [most_text]}
    )
    about_it, *found = native.sqlite(wanted, about, descriptor)
    if about_it.name == "declined":
        return bytes(about_it.to_list()).decode()
    rows = max(map(len, found))
    whole = pl.DataFrame([column for column in found if len(column) == rows])
    # What is the same in all rows takes no memory as a literal, like what is null in all of them.
    same = [pl.lit(column[0], dtype=column.dtype).alias(column.name) for column in found if len(column) < rows]
    return completed(whole.with_columns(same) if same else whole, dtypes_of(columns)), int(about_it[0])


def _wanted(layout: Layout, name: str, kind: Type) -> tuple[str, int, int, int | None, str | None, bool]:
    number, text, is_known = _default(layout.defaults.get(name), kind)
    return name, layout.fields[name], _KINDS[kind], number, text, is_known


def _default(said: str | None, kind: Type) -> tuple[int | None, str | None, bool]:
    """What a row has that is older than the column: as SQL has it, a number or a text if that can be told here."""
    if said is None or said.upper() == "NULL":
        return None, None, True
    if kind in ("int", "int32") and re.fullmatch(_WHOLE, said):
        return int(said), None, True
    if kind == "text" and (found := re.fullmatch(_TEXT, said)):
        return None, found[1].replace("''", "'"), True
    return None, None, False
