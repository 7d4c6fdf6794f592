"""An SQLite file read in both ways: from its pages, and by SQLite."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from opspan.errors import OpspanError
from opspan.formats.sqlite import ROWID, SqliteFile
from opspan.formats.sqlite_cells import Type
from opspan.tables import Issues

KINDS: tuple[Type, ...] = ("int", "int32", "float", "text", "bytes")
PLAIN: dict[str, Type] = {"a": "int", "b": "int32", "c": "float", "d": "text", "e": "bytes", ROWID: "int"}
PAGES = (512, 1024, 4096, 65536)


def reserve(path: Path, reserved: int, *pragmas: str) -> None:
    """Make an empty file with bytes reserved at the end of each page, which SQLite's SQL cannot ask for."""
    with closing(sqlite3.connect(path)) as database:
        for pragma in ("PRAGMA synchronous = OFF", *pragmas, "VACUUM"):  # VACUUM writes the first page
            database.execute(pragma)
    raw = bytearray(path.read_bytes())
    raw[20] = reserved
    page = struct.unpack(">H", raw[16:18])[0]
    raw[105:107] = struct.pack(">H", page - reserved)  # the begin of cells
    path.write_bytes(raw)


class BySqlite(SqliteFile):
    """The same without the reader of pages."""

    def _from_pages(self, table: str, columns: Mapping[str, Type]) -> Callable[[], Any]:
        return lambda: None


def told(reader: type[SqliteFile], path: Path, columns: Mapping[str, Type]) -> tuple[object, ...]:
    issues = Issues(str(path))
    try:
        with reader(path, issues) as file:
            frames = {table: file.frame(table, columns) for table in sorted(file.tables)}
    except OpspanError as error:
        return (type(error), str(error))
    rows = {table: (frame.schema, frame.rows()) for table, frame in frames.items()}
    # repr: not a number is itself
    return repr(rows), issues.frame().rows()
