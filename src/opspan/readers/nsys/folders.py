"""Folders that `nsys export --type parquetdir` and `--type arrowdir` write: a file per table, columns as in SQLite.

    StringIds.parquet  NVTX_EVENTS.parquet  ...        StringIds.arrow  NVTX_EVENTS.arrow  ... (Arrow's stream format)

Unsigned columns (globalTid is one) become signed ones of the same bits, which is what SQLite holds.
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
# One of these is in every export.
MARKS = ("StringIds", "NVTX_EVENTS", "META_DATA_EXPORT")

# What polars raises for damaged files; it also panics, which is no Exception.
FAILURES = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ReadError)


def is_folder(path: Path) -> bool:
    return any((path / f"{name}{suffix}").is_file() for name in MARKS for suffix in SUFFIXES)


class Folder:
    """A `Source` of export.py."""

    def __init__(self, path: Path, issues: Issues) -> None:
        self._issues = issues
        try:
            files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES)
            self.bytes = sum(size_on_disk(file.stat()) for file in files)
        except OSError as error:
            raise NotReadable(f"cannot read {path}: {error.strerror}; expected a folder of nsys' tables") from error
        # Where both kinds of files are, they are the same tables twice.
        self._files = {file.stem: file for file in files}
        # What all rows of a column hold, as a cell, where the file says that of itself.
        self._same: dict[str, dict[str, pl.Series]] = {}
        self._thread = ThreadPoolExecutor(1)
        self._begun: dict[str, tuple[Sequence[str], Future[pl.DataFrame | BaseException]]] = {}
        self._columns: dict[str, Sequence[str]] = {}
        # The largest table, mostly, is read while the others are looked at.
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
        columns = self.columns(table)[:1]
        return self._read(self._files[table], columns).height if columns else 0

    def ahead(self, table: str, columns: Mapping[str, Type], after: str | None = None) -> None:
        """Begin to read what `frame` will be asked for, while the caller does something else: one table after the other
        in any case."""
        differ, _ = self._have(table, columns)
        self._begun[table] = differ, self._thread.submit(_attempt, self._files[table], differ)

    def frame(self, table: str, columns: Mapping[str, Type]) -> pl.DataFrame:
        differ, same = self._have(table, columns)
        if not differ:
            return without_rows(dtypes_of(columns))
        file = self._files[table]
        begun_with, begun = self._begun.pop(table, ((), None))
        found = begun.result() if begun and begun_with == differ else _attempt(file, differ)
        frame = self._whole(file, differ, found)
        progress.add(frame.height)
        typed = {name: self._typed(table, frame[name], columns[name]) for name in differ if name in frame.columns}
        # What is the same in all rows takes no memory as a literal.
        literals = [pl.lit(cell[0], dtype=cell.dtype).alias(name) for name, cell in same.items()]
        return completed(pl.DataFrame(typed).with_columns(literals), dtypes_of(columns))

    def _have(self, table: str, columns: Mapping[str, Type]) -> tuple[list[str], dict[str, pl.Series]]:
        """The columns that are there: those to be read, one at least, and the cells of those that are not."""
        have = [name for name in columns if name in self.columns(table)]
        same: dict[str, pl.Series] = {}
        for name in have:
            cell = self._same.get(table, {}).get(name)
            typed = None if cell is None else _cast(cell, columns[name])
            # One that is odd is counted where all rows are read.
            if cell is not None and typed is not None and typed.null_count() == cell.null_count():
                same[name] = typed
        if have and len(same) == len(have):
            del same[have[0]]
        return [name for name in have if name not in same], same

    def _described(self, file: Path) -> Sequence[str]:
        try:
            with named_file(file) as name:
                if file.suffix != ".parquet":
                    arrow.check(file)
                    return tuple(pl.read_ipc_stream(name, n_rows=0).columns)
                same = parquet.check(file)
                schema = pl.read_parquet_schema(name)
                if len(same) == len(schema):  # else some have columns within them
                    cells = {name: one.of(schema[name]) for name, one in zip(schema, same, strict=True) if one}
                    self._same[file.stem] = {name: cell for name, cell in cells.items() if cell is not None}
                return tuple(schema)
        except FAILURES as error:
            self._damaged(file, error)
            return ()

    def _read(self, file: Path, columns: Sequence[str]) -> pl.DataFrame:
        return self._whole(file, columns, _attempt(file, columns))

    def _whole(self, file: Path, columns: Sequence[str], found: pl.DataFrame | BaseException) -> pl.DataFrame:
        if isinstance(found, pl.DataFrame):
            return found
        self._damaged(file, found)
        return pl.DataFrame(schema=dict.fromkeys(columns, pl.Int64))

    def _damaged(self, file: Path, error: BaseException) -> None:
        said = " ".join(str(error).split())[:120]
        if not any(issue.code == "damaged_file" and issue.detail.startswith(file.name) for issue in self._issues):
            self._issues.add("damaged_file", detail=f"{file.name} ({said})")

    def _typed(self, table: str, column: pl.Series, kind: Type) -> pl.Series:
        if kind == "text" and column.dtype == pl.Binary:
            typed, undecoded = checked(column)
            self._issues.add("undecoded_text", undecoded, table)
            return typed
        typed = _cast(column, kind)
        self._issues.add("odd_cells", typed.null_count() - column.null_count(), f"{table}, {column.name}")
        return typed


def _cast(column: pl.Series, kind: Type) -> pl.Series:
    """In the type that is asked for; what it cannot hold is null."""
    dtype = DTYPES[kind]
    if column.dtype == pl.UInt64 and kind == "int":
        return column.reinterpret(signed=True)
    if column.dtype == dtype:
        return column
    try:
        typed = column.cast(dtype, strict=False)
    except pl.exceptions.PolarsError:  # bytes, a time, ...
        typed = column
    if typed.dtype != dtype:  # of some lists and structs the cast is of what is in them
        typed = pl.Series(column.name, [None], dtype=dtype).new_from_index(0, len(column))
    return typed


def _attempt(file: Path, columns: Sequence[str]) -> pl.DataFrame | BaseException:
    """The columns, or why there are none: who asked for them says so, when it is its turn."""
    try:
        read: Callable[..., pl.DataFrame] = pl.read_parquet if file.suffix == ".parquet" else pl.read_ipc_stream
        with named_file(file) as name:
            # In one piece: else each look at a column that needs it so puts its pieces together again.
            return read(name, columns=list(columns)).rechunk()
    except FAILURES as error:
        return error
