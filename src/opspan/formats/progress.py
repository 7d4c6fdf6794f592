"""Counts the rows that the readers have read so far, for progress displays. Readers report the rows of each piece of a
file."""

from __future__ import annotations

import threading

_lock = threading.Lock()
_rows = 0
_waiting_for = ""


def add(rows: int) -> None:
    global _rows
    with _lock:
        _rows += rows


def rows() -> int:
    """Returns the number of rows that were read since the program began."""
    return _rows


def wait_for(what: str) -> None:
    """Notes what the reader waits for, such as "nsys exports 'x'". An empty text ends the wait."""
    global _waiting_for
    _waiting_for = what


def waiting_for() -> str:
    return _waiting_for
