"""Reads and writes tables of SQLite as Arrow columns, with the connections of the ADBC driver.

This module does not use the driver's DB-API module, which imports pyarrow and pandas if they are installed. Importing
them takes most of a second.
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
