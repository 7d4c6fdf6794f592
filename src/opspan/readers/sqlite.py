"""The one door to SQLite files: opened read-only, checked first, read column by column into polars.

A user's file is never changed and nothing is created beside it: a file with pages in a write-ahead log, or with a
journal to be rolled back, is copied and put right there. What cannot be read at all is an error of one line; what is
damaged in places is read as far as it goes, and counted.

Not here: what any table means.
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal

import adbc_driver_manager
import adbc_driver_sqlite.dbapi as adbc
import polars as pl

from opspan.errors import NotATrace, NotReadable, ReadError
from opspan.readers._sqlite_path import is_sqlite, read_only_uri, stamp
from opspan.trace import Issues

Type = Literal["int", "int32", "float", "text", "bytes"]
DTYPES: dict[Type, type[pl.DataType]] = {
    "int": pl.Int64,
    "int32": pl.Int32,
    "float": pl.Float64,
    "text": pl.String,
    "bytes": pl.Binary,
}

BATCH_ROWS = 65_536
GUARDED_BATCH_ROWS = 4_096
CHUNK_ROWS = 250_000
CHUNKS = 64  # at most, however far apart the row ids are
SMALLEST_CHUNK = 1_024  # what is lost at most around a damaged place
HALVINGS = 1_000  # of one table: damaged row ids may be so far apart that there is no end to it
# Each has a connection of its own. Past a few they wait for each other's memory.
THREADS = min(len(os.sched_getaffinity(0)), 8)

# The driver takes the type of a column from its first batch, and fails when a later batch holds another. A first row
# that is taken away again makes each column of the type that is wanted, also where the first batch is all NULL.
FIRST: dict[Type, str] = {"int": "0", "int32": "0", "float": "0.5", "text": "''", "bytes": "x''"}

# Text of any kind of cell costs nothing where it is text already.
PLAIN: dict[Type, str] = {"text": "CAST({0} AS TEXT)", "bytes": "CAST({0} AS BLOB)"}

# What a cell becomes when a column holds what it should not: exact conversions are made, all else is NULL.
GUARDED: dict[Type, str] = {
    "int": (
        "CASE typeof({0}) WHEN 'integer' THEN {0}"
        " WHEN 'real' THEN CASE WHEN {0} = CAST({0} AS INTEGER) THEN CAST({0} AS INTEGER) END"
        " WHEN 'text' THEN CASE WHEN CAST(CAST({0} AS INTEGER) AS TEXT) = {0} THEN CAST({0} AS INTEGER) END END"
    ),
    "float": (
        "CASE WHEN typeof({0}) IN ('real', 'integer') OR CAST(CAST({0} AS REAL) AS TEXT) = {0}"
        " OR CAST(CAST({0} AS INTEGER) AS TEXT) = {0} THEN CAST({0} AS REAL) END"
    ),
    "text": PLAIN["text"],
    "bytes": PLAIN["bytes"],
}

# Of every table, though no column of it: asked for like one.
ROWID = "rowid"

TABLE_NAMES = "SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view')"

# What a bad file raises: the driver when a query starts, polars (with the driver's words) when batches are fetched.
FAILURES = (adbc_driver_manager.Error, pl.exceptions.ComputeError, UnicodeDecodeError)
# What Python's own module raises. It cannot decode a message that quotes a damaged schema.
SQLITE_FAILURES = (sqlite3.Error, UnicodeDecodeError)


@dataclass(frozen=True)
class _Table:
    columns: tuple[str, ...]
    is_view: bool


@dataclass(frozen=True)
class _Chunk:
    frames: list[pl.DataFrame] = field(default_factory=list)
    odd: int = 0  # cells that were not of their column's type
    undecoded: int = 0  # texts that were not UTF-8
    damage: list[str] = field(default_factory=list)  # places, and what SQLite said


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class SqliteFile:
    """An open file. `tables` are its table names; `frame` reads columns of one."""

    def __init__(self, path: str | Path, issues: Issues) -> None:
        self.path = Path(path)
        self.issues = issues
        self._halvings: Counter[str] = Counter()  # by table
        self._stack = ExitStack()
        try:
            self._seen = stamp(self.path)
            self._uri = read_only_uri(self.path, self._stack)
            self._connection = self._open()
            self._tables = self._describe()
            self._threads = ThreadPoolExecutor(THREADS)
            self._stack.callback(self._threads.shutdown, cancel_futures=True)
            self._begun: dict[str, tuple[Mapping[str, Type], list[Future[_Chunk]]]] = {}
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> SqliteFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()
        if kind is None and stamp(self.path) != self._seen:
            raise NotReadable(f"{self.path} changed while it was read; wait until nothing writes it and read it again")

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(self._tables)

    def columns(self, table: str) -> tuple[str, ...]:
        """Names of the columns; none where there is no such table."""
        return self._tables[table].columns if table in self._tables else ()

    def count(self, table: str) -> int:
        if table not in self._tables:
            return 0
        try:
            ((rows,),) = self._connection.execute(f"SELECT count(*) FROM {quoted(table)}")
        except SQLITE_FAILURES as error:
            self._damaged(table, error)
            return 0
        return int(rows)

    def any(self, table: str, columns: Sequence[str]) -> bool:
        """Whether any of the columns holds anything; SQLite finds out faster than it hands over NULLs."""
        have = [quoted(name) for name in columns if name in self.columns(table)]
        if not have:
            return False
        holds = " OR ".join(f"{name} IS NOT NULL" for name in have)

        def found(chunk: tuple[int, int] | None) -> bool:
            within = f" AND rowid BETWEEN {chunk[0]} AND {chunk[1]}" if chunk else ""
            try:
                return self._query(f"SELECT 1 FROM {quoted(table)} WHERE ({holds}){within} LIMIT 1", 1).height > 0
            except FAILURES:
                return True  # reading the columns will say what is wrong, and where

        return any(self._threads.map(found, self._chunks(table)))

    def ahead(self, table: str, columns: Mapping[str, Type]) -> None:
        """Begin to read what `frame` will be asked for, while the caller does something else."""
        self._begun[table] = columns, self._begin(table, columns)

    def frame(self, table: str, columns: Mapping[str, Type]) -> pl.DataFrame:
        """The columns in the order of the file; those that the table has not are null. ROWID is the number of a row."""
        begun_with, begun = self._begun.pop(table, ({}, []))
        found = [chunk.result() for chunk in (begun if begun_with == columns else self._begin(table, columns))]
        have = self._have(table, columns)
        frame = stacked([part for chunk in found for part in chunk.frames] or [_empty(have)])
        self.issues.add("odd_cells", sum(chunk.odd for chunk in found), table)
        damage = [place for chunk in found for place in chunk.damage]
        self.issues.add("damaged_file", len(damage), f"{table}{damage[0]}" if damage else "")
        self.issues.add("undecoded_text", sum(chunk.undecoded for chunk in found), table)
        missing = [pl.lit(None, dtype=DTYPES[kind]).alias(name) for name, kind in columns.items() if name not in have]
        return frame.with_columns(missing).select(*columns)

    def _begin(self, table: str, columns: Mapping[str, Type]) -> list[Future[_Chunk]]:
        have = self._have(table, columns)
        # Without any of its columns the table says nothing.
        return [self._threads.submit(self._chunk, table, have, part) for part in (self._chunks(table) if have else ())]

    def _have(self, table: str, columns: Mapping[str, Type]) -> dict[str, Type]:
        return {name: kind for name, kind in columns.items() if self._has(table, name)}

    def _has(self, table: str, column: str) -> bool:
        is_rowid = column == ROWID and table in self._tables and not self._tables[table].is_view
        return is_rowid or column in self.columns(table)

    # --- opening

    def _open(self) -> sqlite3.Connection:
        try:
            # Autocommit: a transaction is held open below, so that no writer can finish in between.
            connection = sqlite3.connect(self._uri, uri=True, timeout=1, isolation_level=None, check_same_thread=False)
            self._stack.callback(connection.close)
            connection.text_factory = _decoded
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except SQLITE_FAILURES as error:
            raise self._cannot_read(error) from error
        return connection

    def _describe(self) -> dict[str, _Table]:
        try:
            names = self._connection.execute(TABLE_NAMES).fetchall()
        except SQLITE_FAILURES as error:
            raise self._cannot_read(error) from error
        tables = {}
        for name, kind in names:
            try:
                info = self._connection.execute(f"PRAGMA table_info({quoted(name)})").fetchall()
            except SQLITE_FAILURES as error:  # a view on tables that are gone, a module that is not here
                # A view that calls what a file may not make us call is not read; it holds nothing of its own.
                if kind != "view" or "unsafe use" not in str(error):
                    self._damaged(name, error)
                continue
            tables[str(name)] = _Table(tuple(str(row[1]) for row in info), kind == "view")
        return tables

    def _cannot_read(self, error: Exception) -> ReadError:
        said = str(error)
        if "locked" in said or "busy" in said:
            return NotReadable(f"{self.path} is locked by a program that writes it; wait until that has ended")
        if "not a database" in said:
            return NotATrace(f"{self.path} begins like an SQLite file but is none (or is encrypted); export it again")
        return ReadError(f"{self.path} is a damaged SQLite file ({said}); copy or export it again")

    def _damaged(self, table: str, error: Exception) -> None:
        self.issues.add("damaged_file", detail=f"{table} ({_one_line(error)})")

    # --- reading

    def _chunks(self, table: str) -> list[tuple[int, int] | None]:
        """Ranges of row ids that cover the table; None: the whole of it, where it has none."""
        if self._tables[table].is_view or "rowid" in (name.lower() for name in self.columns(table)):
            return [None]
        try:
            # One aggregate a query: both in one would go through all rows.
            name = quoted(table)
            bounds = f"SELECT (SELECT min(rowid) FROM {name}), (SELECT max(rowid) FROM {name})"
            ((low, high),) = self._connection.execute(bounds)
        except SQLITE_FAILURES:  # WITHOUT ROWID, or damaged: then reading it says so
            return [None]
        if low is None:
            return []
        if not isinstance(low, int) or not isinstance(high, int) or high < low:
            return [None]
        width = max(CHUNK_ROWS, -(-(high - low + 1) // CHUNKS))
        return [(at, min(at + width - 1, high)) for at in range(low, high + 1, width)]

    def _chunk(self, table: str, columns: Mapping[str, Type], chunk: tuple[int, int] | None) -> _Chunk:
        source = quoted(table)
        within = f" WHERE rowid BETWEEN {chunk[0]} AND {chunk[1]}" if chunk else ""
        names = [quoted(name) for name in columns]
        first = ", ".join(f"{FIRST[kind]} AS {name}" for name, kind in zip(names, columns.values(), strict=True))
        cells = [PLAIN.get(kind, "{0}").format(name) for name, kind in zip(names, columns.values(), strict=True)]
        plain = f"SELECT {first} UNION ALL SELECT {', '.join(cells)} FROM {source}{within}"
        try:
            frame = self._query(plain, BATCH_ROWS)
            if frame.dtypes == [_as_read(kind) for kind in columns.values()]:
                return _converted(frame.slice(1), columns)
        except FAILURES:
            pass  # a cell of another type, or damage: the next query can tell
        cells = [
            GUARDED.get(kind, GUARDED["int"]).format(name) for name, kind in zip(names, columns.values(), strict=True)
        ]
        # An empty text says as little as NULL: it is what tools write whose columns must not be NULL.
        odd = " + ".join(
            f"({name} IS NOT NULL AND {name} IS NOT '' AND {cell} IS NULL)"
            for name, cell in zip(names, cells, strict=True)
        )
        guarded = f"SELECT {first}, 0 AS odd UNION ALL SELECT {', '.join(cells)}, {odd} FROM {source}{within}"
        try:
            frame = self._query(guarded, GUARDED_BATCH_ROWS).slice(1)
            return _converted(frame.drop("odd"), columns, int(frame["odd"].sum() or 0))
        except FAILURES as error:
            return self._around(table, columns, chunk, error)

    def _around(
        self, table: str, columns: Mapping[str, Type], chunk: tuple[int, int] | None, error: Exception
    ) -> _Chunk:
        """What can be read of a chunk that holds a damaged place: halves of it, down to a few rows."""
        self._halvings[table] += 1
        if chunk is None or chunk[1] - chunk[0] < SMALLEST_CHUNK or self._halvings[table] > HALVINGS:
            where = f", rows {chunk[0]:,} to {chunk[1]:,}" if chunk else ""
            return _Chunk(damage=[f"{where} ({_one_line(error)})"])
        middle = (chunk[0] + chunk[1]) // 2
        one, other = (self._chunk(table, columns, half) for half in ((chunk[0], middle), (middle + 1, chunk[1])))
        return _Chunk(
            one.frames + other.frames,
            one.odd + other.odd,
            one.undecoded + other.undecoded,
            one.damage + other.damage,
        )

    def _query(self, sql: str, batch_rows: int) -> pl.DataFrame:
        with adbc.connect(self._uri) as connection, connection.cursor() as cursor:
            cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(batch_rows)})
            cursor.execute(sql)
            return pl.DataFrame(cursor.fetch_arrow())


def table_names(path: str | Path) -> frozenset[str]:
    """Names of the tables of a file; an error says why there are none to be had."""
    with SqliteFile(path, Issues()) as file:
        return frozenset(file.tables)


def stacked(frames: list[pl.DataFrame]) -> pl.DataFrame:
    """The frames, which are used up, as one in one piece: never is more than one column there twice."""
    columns: list[pl.Series] = []
    schema, rows = frames[0].schema, sum(frame.height for frame in frames)
    for name in schema:
        parts = [frame.drop_in_place(name) for frame in frames]
        # A column of nothing but null takes no memory as a literal, and many columns are.
        if rows and all(part.null_count() == len(part) for part in parts):
            continue
        columns.append(pl.concat(parts, rechunk=True))
    if not columns:
        return pl.DataFrame(
            {name: pl.Series([None], dtype=dtype).new_from_index(0, rows) for name, dtype in schema.items()}
        )
    have = {column.name for column in columns}
    empty = [pl.lit(None, dtype=dtype).alias(name) for name, dtype in schema.items() if name not in have]
    return pl.DataFrame(columns).with_columns(empty).select(schema.names())


def _empty(columns: Mapping[str, Type]) -> pl.DataFrame:
    return pl.DataFrame(schema={name: DTYPES[kind] for name, kind in columns.items()})


def _decoded(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _as_read(kind: Type) -> type[pl.DataType]:
    return pl.Int64 if kind == "int32" else DTYPES[kind]


def _converted(frame: pl.DataFrame, columns: Mapping[str, Type], odd: int = 0) -> _Chunk:
    """The rows with their texts checked and their small numbers small.

    SQLite hands over any bytes as text, and polars believes the driver.
    """
    undecoded = 0
    made = []
    for name, kind in columns.items():
        column = frame[name]
        if kind == "text":
            column, bad = _checked(column.cast(pl.Binary))
            undecoded += bad
        elif kind == "int32":
            column = column.cast(pl.Int32, strict=False)
            odd += column.null_count() - frame[name].null_count()
        made.append(column)
    return _Chunk([pl.DataFrame(made)], odd, undecoded)


def _checked(raw: pl.Series) -> tuple[pl.Series, int]:
    """Bytes as text, and how many were not UTF-8: those are found by halving, as hardly any column has one."""
    try:
        return raw.cast(pl.String), 0
    except pl.exceptions.ComputeError:
        if len(raw) == 1:
            return pl.Series(raw.name, [_decoded(raw[0])]), 1
    halves = [_checked(half) for half in (raw[: len(raw) // 2], raw[len(raw) // 2 :])]
    return pl.concat([texts for texts, _ in halves]), sum(bad for _, bad in halves)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:120]


__all__ = ["DTYPES", "ROWID", "SqliteFile", "Type", "is_sqlite", "quoted", "stacked", "table_names"]
