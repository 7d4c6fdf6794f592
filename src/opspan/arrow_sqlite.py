"""SQLite's tables as Arrow's columns: the driver's own connections, for what reads a database and what writes one.

Not its DB-API module: that imports pyarrow wherever it is installed, and with it pandas, for most of a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import adbc_driver_sqlite
from adbc_driver_manager import AdbcConnection, AdbcStatement, Error

__all__ = ["AdbcStatement", "Error", "connected", "statement"]


@contextmanager
def connected(uri: str) -> Iterator[AdbcConnection]:
    with adbc_driver_sqlite.connect(uri) as database, AdbcConnection(database) as connection:
        yield connection


@contextmanager
def statement(uri: str) -> Iterator[AdbcStatement]:
    with connected(uri) as connection, AdbcStatement(connection) as made:
        yield made
