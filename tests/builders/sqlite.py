"""Databases that tests make: nobody needs them after a power cut, and so nobody waits for the disk."""

from __future__ import annotations

import sqlite3
from pathlib import Path


def created(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA journal_mode = OFF")
    return connection
