"""Opens SQLite files for all readers. Files are opened read-only and checked, and columns are read into polars.

This module never changes a user's file, and creates no files next to it. If a file has a write-ahead log, or a journal
that must be rolled back, the file is copied and the copy is repaired. A file that cannot be read at all raises an error
with a one-line message. A partly damaged file is read as far as possible, and the damage is counted.

This module runs no code from the file. A view, a virtual table or a computed column is a program of the file's author,
which may never end. So only real tables and stored columns are read. A query returns at most as many rows as fit into
the file, because damaged pages may refer to each other in a circle.

The readers know what the tables mean.
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import polars as pl

from opspan.errors import NotATrace, NotReadable, ReadError
from opspan.files import size_on_disk
from opspan.formats import progress, sqlite_cells
from opspan.formats.budget import CELLS, STEPS
from opspan.formats.columns import stacked
from opspan.formats.sqlite_cells import (
    FIRST,
    GUARDED,
    PLAIN,
    ROWID,
    TableFacts,
    Type,
    as_read,
    checked,
    decoded,
    dtypes_of,
    opened,
    quoted,
)
from opspan.formats.sqlite_path import is_sqlite, read_only_uri, stamp
from opspan.printable import listed
from opspan.tables import Issues
from opspan.tables.schema import completed, without_rows

BATCH_ROWS = 65_536
GUARDED_BATCH_ROWS = 4_096
CHUNK_ROWS = 250_000
CHUNKS = 64  # maximum number of parts into which a table is split for reading, even if its row ids are far apart
SMALLEST_CHUNK = 1_024  # a damaged part with at most this many row ids is not halved further
HALVINGS = 1_000  # maximum number of halvings for one table; damaged row ids may be extremely far apart
# Each thread has its own connection. More threads would only wait for memory.
THREADS = min(len(os.sched_getaffinity(0)), 8)

# Selects name, "is a real table", "is a table" and root page. Views and virtual tables have no root page.
TABLE_NAMES = """
SELECT name, type = 'table' AND rootpage > 0 AND sql LIKE 'CREATE TABLE %', type = 'table', rootpage
FROM sqlite_master
WHERE type IN ('table', 'view')
"""

# A row takes more than this number of bytes in a file, even if it is empty.
LEAST_ROW_BYTES = 4
# A row that was written before a column was added has the column's default value. Tools declare no defaults longer
# than this. A longer default would need memory in each of these rows.
LONGEST_DEFAULT = 1_000

# Errors that Python's sqlite3 raises. It raises UnicodeDecodeError if an error message quotes a damaged schema.
SQLITE_FAILURES = (sqlite3.Error, UnicodeDecodeError)


def _failures() -> tuple[type[Exception], ...]:
    """Returns the types of errors that a bad file raises. The driver raises its error when a query starts. polars
    raises one with the driver's message when it fetches batches, and panics if a batch has more than two gigabytes of
    text."""
    from opspan.arrow_sqlite import Error

    return Error, pl.exceptions.ComputeError, pl.exceptions.PanicException, UnicodeDecodeError


class _Chunk(NamedTuple):
    frames: tuple[pl.DataFrame, ...] = ()
    odd: int = 0  # cells that were not of their column's type
    undecoded: int = 0  # texts that were not UTF-8
    damage: tuple[str, ...] = ()  # SQLite's error for each damaged place
    is_over: bool = False  # whether the texts are longer than is allowed for a file of this size


class SqliteFile:
    """An open file. `tables` has the names of its tables; `frame` reads columns of one table."""

    def __init__(self, path: str | Path, issues: Issues) -> None:
        self.path = Path(path)
        self.issues = issues
        self._halvings: Counter[str] = Counter()  # the number of halvings so far, by table
        self._text_bytes: Counter[str] = Counter()  # bytes of text so far, by table
        self._stack = ExitStack()
        try:
            self._seen = stamp(self.path)
            self.bytes = size_on_disk(self.path.stat())
            self._most_rows = 1 + self.bytes // LEAST_ROW_BYTES
            self._uri, is_copy = read_only_uri(self.path, self._stack)
            # A copied file has a journal. Until SQLite has applied the journal, pages of the file may be wrong. So only
            # SQLite reads the tables of a copy.
            self._pages = None if is_copy else self._stack.enter_context(opened(self.path))
            self._connection = self._open()
            self._views: set[str] = set()
            self._facts: dict[str, TableFacts] = {}
            self._tables = self._describe()
            self._threads = ThreadPoolExecutor(THREADS)
            self._stack.callback(self._threads.shutdown, cancel_futures=True)
            self._begun: dict[str, tuple[Mapping[str, Type], Future[_Chunk | None]]] = {}
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> SqliteFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()
        if kind is None and stamp(self.path) != self._seen:
            raise NotReadable(
                f"{self.path} changed while it was read. Wait until no program writes it, and read it again"
            )

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(self._tables)

    def columns(self, table: str) -> tuple[str, ...]:
        """Returns the names of the table's columns, or an empty tuple if there is no such table."""
        return self._tables.get(table, ())

    def count(self, table: str) -> int:
        if table not in self._tables:
            return 0
        _, begun = self._begun.get(table, ({}, None))
        if begun and (result := begun.result()):
            return sum(frame.height for frame in result.frames)
        try:
            # No index is used, because a damaged index may differ from the table.
            rows_of = f"SELECT 1 FROM {quoted(table)} NOT INDEXED LIMIT {self._most_rows}"
            ((rows,),) = self._connection.execute(f"SELECT count(*) FROM ({rows_of})")
        except SQLITE_FAILURES as error:
            self._damaged(table, error)
            return 0
        return int(rows)

    def ahead(self, table: str, columns: Mapping[str, Type], after: str | None = None) -> None:
        """Starts reading a table in the background, before the caller asks `frame` for it. `after` names a table that
        is needed earlier. If the table `after` is being read, `table` is read after it."""
        if have := self._have(table, columns):
            before = [self._begun[after][1]] if after in self._begun else []
            self._begun[table] = columns, self._threads.submit(self._from_pages(table, have, before))

    def frame(self, table: str, columns: Mapping[str, Type]) -> pl.DataFrame:
        """Returns the columns, with rows in the order of the file. Columns that the table lacks are null. The column
        ROWID is the row id."""
        if table in self._views:
            self.issues.add("skipped_views", detail=table)
        begun_with, begun = self._begun.pop(table, ({}, None))
        chunks = self._read(table, self._have(table, columns), begun if begun_with == columns else None)
        parts = [part for chunk in chunks for part in chunk.frames]
        dtypes = dtypes_of(columns)
        frame = stacked(parts) if parts else without_rows(dtypes)
        self.issues.add("odd_cells", sum(chunk.odd for chunk in chunks), table)
        damage = [place for chunk in chunks for place in chunk.damage]
        self.issues.add("damaged_file", len(damage), f"{table}{damage[0]}" if damage else "")
        self.issues.add("undecoded_text", sum(chunk.undecoded for chunk in chunks), table)
        over = sum(chunk.is_over for chunk in chunks)
        self.issues.add("over_budget", over, f"{table}: {CELLS.message(self.bytes)}" if over else "")
        return completed(frame, dtypes)

    def _read(self, table: str, columns: Mapping[str, Type], begun: Future[_Chunk | None] | None) -> list[_Chunk]:
        if not columns:
            return []  # if the table has none of these columns, it is not read
        from_pages = begun.result() if begun else self._from_pages(table, columns)()
        if from_pages is not None:
            return [from_pages]
        chunks = [self._threads.submit(self._chunk, table, columns, part) for part in self._chunks(table)]
        return [chunk.result() for chunk in chunks]

    def _from_pages(
        self, table: str, columns: Mapping[str, Type], after: Sequence[Future[_Chunk | None]] = ()
    ) -> Callable[[], _Chunk | None]:
        """Returns a function that reads all rows at once from the file's pages. The function returns None if only
        SQLite can read the table."""
        try:
            layout = sqlite_cells.layout_of(self._connection, quoted(table), self._facts[table])
        except SQLITE_FAILURES:
            layout = None

        def read() -> _Chunk | None:
            wait(after)
            most_text = CELLS.allows(self.bytes) - self._text_bytes[table]
            if self._pages is None or layout is None or most_text < 0:
                return None
            result = sqlite_cells.read(self._pages, layout, columns, THREADS, most_text)
            if isinstance(result, str):
                return None
            frame, text_bytes = result
            self._text_bytes[table] += text_bytes
            progress.add(frame.height)
            return _Chunk((frame,))

        return read

    def _have(self, table: str, columns: Mapping[str, Type]) -> dict[str, Type]:
        known = (*self.columns(table), ROWID) if table in self._tables else ()
        return {name: kind for name, kind in columns.items() if name in known}

    # --- opening

    def _open(self) -> sqlite3.Connection:
        try:
            # isolation_level=None means autocommit. So the read transaction that is begun below stays open, and the
            # file cannot change while it is read.
            connection = sqlite3.connect(self._uri, uri=True, timeout=1, isolation_level=None, check_same_thread=False)
            self._stack.callback(connection.close)
            connection.text_factory = decoded
            connection.set_progress_handler(lambda: True, max(1, min(STEPS.allows(self.bytes), 2**31 - 1)))
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except SQLITE_FAILURES as error:
            raise self._cannot_read(error) from error
        return connection

    def _describe(self) -> dict[str, tuple[str, ...]]:
        """Returns, for each table, the names of the columns whose values are stored in the file."""
        try:
            names = self._connection.execute(TABLE_NAMES).fetchall()
            self._connection.set_progress_handler(None, 0)
        except SQLITE_FAILURES as error:
            raise self._cannot_read(error) from error
        tables = {}
        roots: defaultdict[object, list[object]] = defaultdict(list)
        for name, _, is_table, root in names:
            roots[name] += [root] if is_table else []
        for name, holds_rows, *_ in names:
            if not isinstance(name, str):
                self.issues.add("damaged_file", detail=f"a table is named {name!r}"[:120])
                continue
            if not holds_rows:
                self._views.add(name)
                continue
            try:
                rows = self._connection.execute(f"PRAGMA table_xinfo({quoted(name)})").fetchall()
            except SQLITE_FAILURES as error:
                self._damaged(name, error)
                continue
            info = [row for row in rows if not row[-1]]  # computed columns are hidden
            odd = [str(row[1]) for row in info if len(str(row[4] or "")) > LONGEST_DEFAULT]
            self.issues.add("damaged_file", len(odd), f"{name}, defaults of {listed(odd)}")
            tables[name] = tuple(str(row[1]) for row in info if str(row[1]) not in odd)
            self._facts[name] = TableFacts(roots[name], rows)
        return tables

    def _cannot_read(self, error: Exception) -> ReadError:
        why = str(error)
        if "locked" in why or "busy" in why:
            return NotReadable(f"{self.path} is locked by a program that writes it. Wait until that program has ended")
        if "not a database" in why:
            return NotATrace(f"{self.path} begins like a SQLite file, but is not one, or is encrypted. Export it again")
        if "interrupted" in why:
            return STEPS.passed(self.path, self.bytes)
        return ReadError(f"{self.path} is a damaged SQLite file ({why}); copy or export it again")

    def _damaged(self, table: str, error: Exception) -> None:
        self.issues.add("damaged_file", detail=f"{table} ({_one_line(error)})")

    # --- reading

    def _chunks(self, table: str) -> list[tuple[int, int] | None]:
        """Returns ranges of row ids that cover the table. A table without row ids is one chunk, which is written as
        None."""
        if "rowid" in (name.lower() for name in self.columns(table)):
            return [None]
        try:
            # Uses two queries, because a query with both min and max would read all rows.
            name = quoted(table)
            bounds = f"SELECT (SELECT min(rowid) FROM {name} NOT INDEXED), (SELECT max(rowid) FROM {name} NOT INDEXED)"
            ((low, high),) = self._connection.execute(bounds)
        except SQLITE_FAILURES:  # the table is WITHOUT ROWID or damaged; reading the rows reports damage
            return [None]
        if low is None:
            return []
        if not isinstance(low, int) or not isinstance(high, int) or high < low:
            return [None]
        width = max(CHUNK_ROWS, -(-(high - low + 1) // CHUNKS))
        return [(at, min(at + width - 1, high)) for at in range(low, high + 1, width)]

    def _chunk(self, table: str, columns: Mapping[str, Type], chunk: tuple[int, int] | None) -> _Chunk:
        source = f"{quoted(table)} NOT INDEXED"
        within = f" WHERE rowid BETWEEN {chunk[0]} AND {chunk[1]}" if chunk else ""
        names = [quoted(name) for name in columns]
        first = ", ".join(f"{FIRST[kind]} AS {name}" for name, kind in zip(names, columns.values(), strict=True))
        cells = [PLAIN.get(kind, "{0}").format(name) for name, kind in zip(names, columns.values(), strict=True)]
        if self._is_over(table, columns, f"{source}{within} LIMIT {self._most_rows}"):
            return _Chunk(is_over=True)
        limit = f" LIMIT {self._most_rows + 1}"  # + 1 for the row that the query adds at the begin
        plain = f"SELECT {first} UNION ALL SELECT {', '.join(cells)} FROM {source}{within}{limit}"
        try:
            frame = self._query(plain, BATCH_ROWS)
            if frame.dtypes == [as_read(kind) for kind in columns.values()]:
                return _converted(frame.slice(1), columns)
        except _failures():
            pass  # a cell has another type, or the file is damaged; the next query shows which of them it is
        cells = [
            GUARDED.get(kind, GUARDED["int"]).format(name) for name, kind in zip(names, columns.values(), strict=True)
        ]
        # An empty text is treated as NULL, because tools write it into columns that must not be NULL.
        odd = " + ".join(
            f"(coalesce(length({name}), 0) > 0 AND {cell} IS NULL)" for name, cell in zip(names, cells, strict=True)
        )
        guarded = f"SELECT {first}, 0 AS odd UNION ALL SELECT {', '.join(cells)}, {odd} FROM {source}{within}{limit}"
        try:
            frame = self._query(guarded, GUARDED_BATCH_ROWS).slice(1)
            return _converted(frame.drop("odd"), columns, int(frame["odd"].sum() or 0))
        except _failures() as error:
            return self._around(table, columns, chunk, error)

    def _is_over(self, table: str, columns: Mapping[str, Type], rows: str) -> bool:
        """Returns whether the texts of the rows are longer than is allowed for the file. Does not read the texts."""
        texts = [quoted(name) for name, kind in columns.items() if kind in ("text", "bytes")]
        if not texts:
            return False
        lengths = " + ".join(f"coalesce(octet_length({name}), 0)" for name in texts)
        try:
            count = self._query(f"SELECT total(n) FROM (SELECT {lengths} AS n FROM {rows})", 1).item()
        except _failures():
            return False  # reading the rows reports the error
        self._text_bytes[table] += int(count)  # without a lock: a lost update does no harm
        return self._text_bytes[table] > CELLS.allows(self.bytes)

    def _around(
        self, table: str, columns: Mapping[str, Type], chunk: tuple[int, int] | None, error: Exception
    ) -> _Chunk:
        """Reads the undamaged rows of a damaged chunk. Halves the chunk until a part has at most SMALLEST_CHUNK row
        ids."""
        self._halvings[table] += 1
        if chunk is None or chunk[1] - chunk[0] < SMALLEST_CHUNK or self._halvings[table] > HALVINGS:
            where = f", rows {chunk[0]:,} to {chunk[1]:,}" if chunk else ""
            return _Chunk(damage=(f"{where} ({_one_line(error)})",))
        middle = (chunk[0] + chunk[1]) // 2
        one, other = (self._chunk(table, columns, half) for half in ((chunk[0], middle), (middle + 1, chunk[1])))
        return _Chunk(
            one.frames + other.frames,
            one.odd + other.odd,
            one.undecoded + other.undecoded,
            one.damage + other.damage,
            one.is_over or other.is_over,
        )

    def _query(self, sql: str, batch_rows: int) -> pl.DataFrame:
        # Imported here, because most tables are read from pages and do not need the driver.
        from opspan.arrow_sqlite import statement as open_statement

        with open_statement(self._uri) as statement:
            statement.set_options(**{"adbc.sqlite.query.batch_rows": str(batch_rows)})
            statement.set_sql_query(sql)
            rows, _ = statement.execute_query()
            return pl.DataFrame(rows)


def table_names(path: str | Path) -> frozenset[str]:
    """Returns the names of the tables of a file. Raises an error if the file cannot be read."""
    with SqliteFile(path, Issues()) as store:
        return frozenset(store.tables)


def _converted(frame: pl.DataFrame, columns: Mapping[str, Type], odd: int = 0) -> _Chunk:
    """Casts integers of 32 bits, and checks that texts are UTF-8, because polars does not check the driver's bytes."""
    undecoded = 0
    converted = []
    for name, kind in columns.items():
        column = frame[name]
        if kind == "text":
            column, bad = checked(column.cast(pl.Binary))
            undecoded += bad
        elif kind == "int32":
            column = column.cast(pl.Int32, strict=False)
            odd += column.null_count() - frame[name].null_count()
        converted.append(column)
    progress.add(frame.height)
    return _Chunk((pl.DataFrame(converted),), odd, undecoded)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:120]


__all__ = ["ROWID", "SqliteFile", "Type", "is_sqlite", "quoted", "table_names"]
