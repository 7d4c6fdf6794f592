"""Reads folders of `nsys export --type parquetdir` and `--type arrowdir`: a file per table, columns as in SQLite.

    StringIds.parquet  NVTX_EVENTS.parquet  ...        StringIds.arrow  NVTX_EVENTS.arrow  ... (Arrow's stream format)

Unsigned columns such as globalTid become signed columns of the same bits, as in SQLite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import polars as pl

from opspan.errors import NotReadable, ReadError
from opspan.files import named_file, size_on_disk
from opspan.formats import arrow, parquet, progress
from opspan.formats.sqlite import Type
from opspan.formats.sqlite_cells import DTYPES, checked, dtypes_of
from opspan.readers.nsys.tables import NVTX, NVTX_COLUMNS, NVTX_EXTRAS
from opspan.tables import Issues
from opspan.tables.schema import completed, without_rows

SUFFIXES = (".parquet", ".arrow")
# Every export has at least one of these tables.
MARKS = ("StringIds", "NVTX_EVENTS", "META_DATA_EXPORT")

# Exceptions for damaged files. polars' PanicException is not a subclass of Exception.
FAILURES = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ReadError)


def is_folder(path: Path) -> bool:
    return any((path / f"{name}{suffix}").is_file() for name in MARKS for suffix in SUFFIXES)


class Folder:
    """A `TableStore` (export.py) whose tables are the files of a folder."""

    def __init__(self, path: Path, issues: Issues) -> None:
        self._issues = issues
        try:
            files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES)
            self.bytes = sum(size_on_disk(file.stat()) for file in files)
        except OSError as error:
            raise NotReadable(f"cannot read {path}: {error.strerror}; expected a folder of nsys' tables") from error
        # If a table has both an Arrow file and a Parquet file, the Parquet file is used.
        self._files = {file.stem: file for file in files}
        # Maps table -> column -> value, for columns in which all rows have the same value according to the file's
        # statistics.
        self._same: dict[str, dict[str, pl.Series]] = {}
        self._thread = ThreadPoolExecutor(1)
        self._begun: dict[str, tuple[Sequence[str], Future[pl.DataFrame | BaseException]]] = {}
        self._columns: dict[str, Sequence[str]] = {}
        # NVTX is usually the largest table, so its reading starts before the descriptions of the other tables are read.
        for name in sorted(self._files, key=lambda name: (name != NVTX, name)):
            if columns := self._described(self._files[name]):
                self._columns[name] = columns
            if name == NVTX and columns:
                self.ahead(NVTX, {**NVTX_COLUMNS, **NVTX_EXTRAS})

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(cancel_futures=True)

    @property
    def tables(self) -> Sequence[str]:
        return tuple(self._columns)

    def columns(self, table: str) -> Sequence[str]:
        return self._columns.get(table, ())

    def count(self, table: str) -> int:
        file, columns = self._files.get(table), self.columns(table)[:1]
        return self._checked(file, columns, _attempt(file, columns)).height if file and columns else 0

    def ahead(self, table: str, columns: Mapping[str, Type], after: str | None = None) -> None:
        """Starts to read a table in the background for a later call of `frame`. Ignores `after` (a table that is needed
        earlier), because one thread reads all tables in order."""
        differ, _ = self._have(table, columns)
        self._begun[table] = differ, self._thread.submit(_attempt, self._files[table], differ)

    def frame(self, table: str, columns: Mapping[str, Type]) -> pl.DataFrame:
        differ, same = self._have(table, columns)
        if not differ:
            return without_rows(dtypes_of(columns))
        file = self._files[table]
        begun_with, begun = self._begun.pop(table, ((), None))
        result = begun.result() if begun and begun_with == differ else _attempt(file, differ)
        frame = self._checked(file, differ, result)
        progress.add(frame.height)
        typed = {name: self._typed(table, frame[name], columns[name]) for name in differ if name in frame.columns}
        # A value that all rows share becomes a literal, which takes no memory.
        literals = [pl.lit(cell[0], dtype=cell.dtype).alias(name) for name, cell in same.items()]
        return completed(pl.DataFrame(typed).with_columns(literals), dtypes_of(columns))

    def _have(self, table: str, columns: Mapping[str, Type]) -> tuple[list[str], dict[str, pl.Series]]:
        """Returns the columns to read, and column -> value for columns in which all rows have the same value. If all
        columns have such a value, the first column is read anyway, because it gives the number of rows."""
        have = [name for name in columns if name in self.columns(table)]
        same: dict[str, pl.Series] = {}
        for name in have:
            cell = self._same.get(table, {}).get(name)
            typed = None if cell is None else _cast(cell, columns[name])
            # If the shared value does not fit the type, the column is read, so that all wrong cells are counted.
            if cell is not None and typed is not None and typed.null_count() == cell.null_count():
                same[name] = typed
        if have and len(same) == len(have):
            del same[have[0]]
        return [name for name in have if name not in same], same

    def _described(self, file: Path) -> Sequence[str]:
        try:
            with named_file(file) as open_path:
                if file.suffix != ".parquet":
                    arrow.check(file)
                    return tuple(pl.read_ipc_stream(open_path, n_rows=0).columns)
                same = parquet.check(file)
                schema = pl.read_parquet_schema(open_path)
                if len(same) == len(schema):  # the lengths differ if columns are nested
                    cells = {name: one.of(schema[name]) for name, one in zip(schema, same, strict=True) if one}
                    self._same[file.stem] = {name: cell for name, cell in cells.items() if cell is not None}
                return tuple(schema)
        except FAILURES as error:
            self._damaged(file, error)
            return ()

    def _checked(self, file: Path, columns: Sequence[str], result: pl.DataFrame | BaseException) -> pl.DataFrame:
        if isinstance(result, pl.DataFrame):
            return result
        self._damaged(file, result)
        return pl.DataFrame(schema=dict.fromkeys(columns, pl.Int64))

    def _damaged(self, file: Path, error: BaseException) -> None:
        message = " ".join(str(error).split())[:120]
        if not any(issue.code == "damaged_file" and issue.detail.startswith(file.name) for issue in self._issues):
            self._issues.add("damaged_file", detail=f"{file.name} ({message})")

    def _typed(self, table: str, column: pl.Series, kind: Type) -> pl.Series:
        if kind == "text" and column.dtype == pl.Binary:
            typed, undecoded = checked(column)
            self._issues.add("undecoded_text", undecoded, table)
            return typed
        typed = _cast(column, kind)
        self._issues.add("odd_cells", typed.null_count() - column.null_count(), f"{table}, {column.name}")
        return typed


def _cast(column: pl.Series, kind: Type) -> pl.Series:
    """Converts the column to the type; values that do not fit become null."""
    dtype = DTYPES[kind]
    if column.dtype == pl.UInt64 and kind == "int":
        return column.reinterpret(signed=True)
    if column.dtype == dtype:
        return column
    try:
        typed = column.cast(dtype, strict=False)
    except pl.exceptions.PolarsError:  # polars cannot cast bytes, times, ...
        typed = column
    if typed.dtype != dtype:  # for some lists and structs, polars casts only the elements
        typed = pl.Series(column.name, [None], dtype=dtype).new_from_index(0, len(column))
    return typed


def _attempt(file: Path, columns: Sequence[str]) -> pl.DataFrame | BaseException:
    """Returns the columns. Returns an error instead of raising it, because the caller reports the error only if the
    columns are needed."""
    try:
        read: Callable[..., pl.DataFrame] = pl.read_parquet if file.suffix == ".parquet" else pl.read_ipc_stream
        with named_file(file) as open_path:
            # Without rechunk(), each operation that needs a column in one piece would copy it.
            return read(open_path, columns=list(columns)).rechunk()
    except FAILURES as error:
        return error
