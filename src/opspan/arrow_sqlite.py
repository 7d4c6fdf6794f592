"""SQLite's tables as Arrow's columns by the driver's own connections, for reading and writing databases.

The driver's DB-API module is not used: it imports pyarrow wherever it is installed, and with it pandas: most of a
second.
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
    with connected(uri) as connection, AdbcStatement(connection) as prepared:
        yield prepared
