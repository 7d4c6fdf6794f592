"""Writes the analysis database: a trace for the sqlite shell and Datasette. docs/sqlite.md describes its tables.

sqlite-utils makes the tables, keys, indexes and views. Rows are inserted as columns, without a Python object for each
value.
"""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
import sqlite_utils

from opspan import arrow_sqlite
from opspan.analysis import Analysis
from opspan.errors import WriteError
from opspan.printable import shortened
from opspan.tables.schema import Column
from opspan.views.database import ABOUT, TABLES_IN_ORDER, VIEWS, DatabaseTable
from opspan.views.relational import relational

_BATCH = 250_000  # rows in a batch
_APPEND = {"adbc.ingest.mode": "adbc.ingest.mode.append"}


def write(analysis: Analysis, path: Path) -> list[str]:
    frames = {**relational(analysis), "about": _about()}
    tables = (*TABLES_IN_ORDER, ABOUT)
    database = sqlite_utils.Database(path)
    with closing(database):
        # If writing fails, the file is deleted. So SQLite's journal is not needed.
        database.execute("PRAGMA journal_mode = OFF")
        for table in tables:
            _create(database, table)
    _fill(path, {table.name: _stored(frames[table.name], table) for table in tables})
    database = sqlite_utils.Database(path)
    with closing(database):
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("PRAGMA synchronous = OFF")
        for table in tables:
            for columns in table.indexes:
                database.table(table.name).create_index(list(columns))
        for view in VIEWS:
            database.create_view(view.name, view.sql)
        database.execute("ANALYZE")
        database.conn.commit()
    return []


def _create(database: sqlite_utils.Database, table: DatabaseTable) -> None:
    foreign_keys: list[Any] = [(column.name, *column.refers.split(".")) for column in table.columns if column.refers]
    database.table(table.name).create(
        {column.name: _python_type(column) for column in table.columns}, pk=table.key, foreign_keys=foreign_keys
    )


def _python_type(column: Column) -> type:
    if column.dtype == pl.Float64:
        return float
    return str if _is_text(column) else int


def _is_text(column: Column) -> bool:
    # The largest integer of SQLite is 2^63 - 1, so columns that may have larger numbers are written as text.
    return column.dtype in (pl.String, pl.Categorical, pl.UInt64) or isinstance(column.dtype, pl.Enum)


def _stored(frame: pl.DataFrame, table: DatabaseTable) -> pl.LazyFrame:
    """Returns the columns of the table in the table's order, with types that SQLite has."""
    types = {str: pl.String, int: pl.Int64, float: pl.Float64}
    return frame.lazy().select(pl.col(column.name).cast(types[_python_type(column)]) for column in table.columns)


def _fill(path: Path, frames: dict[str, pl.LazyFrame]) -> None:
    try:
        with arrow_sqlite.connected(str(path)) as connection, arrow_sqlite.AdbcStatement(connection) as statement:
            connection.set_autocommit(False)
            for name, frame in frames.items():
                start = 0
                while (part := frame.slice(start, _BATCH).collect()).height:
                    statement.set_options(**_APPEND, **{"adbc.ingest.target_table": name})
                    statement.bind_stream(part)
                    statement.execute_update()
                    start += _BATCH
            connection.commit()
    except arrow_sqlite.Error as error:
        raise WriteError(f"cannot write the database: {_why(error)}") from error


def _why(error: Exception) -> str:
    """Returns the message of SQLite, here "database or disk is full", from an error of the driver:
    `INTERNAL: failed to execute: database or disk is full\\nquery was: INSERT INTO ...`"""
    message = re.split(r"\s*query was:", str(error))[0]
    return shortened(" ".join(re.sub(r"^[A-Z_]+: (?:failed to [a-z ]+: )?", "", message).split()))


def _about() -> pl.DataFrame:
    rows = []
    for table in (*TABLES_IN_ORDER, ABOUT):
        rows.append((table.name, "", "", table.sentence))
        rows += [(table.name, column.name, column.unit, column.sentence) for column in table.columns]
    rows += [(view.name, "", "", view.sentence) for view in VIEWS]
    return pl.DataFrame(rows, schema={column.name: pl.String for column in ABOUT.columns}, orient="row")
