"""How many rows the readers have read so far, for who shows it. Counted once a piece of a file, at no cost."""

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
    """Since the program began."""
    return _rows


def wait_for(what: str) -> None:
    """Another program is at work, and nothing is read meanwhile; '': no more."""
    global _waiting_for
    _waiting_for = what


def waiting_for() -> str:
    return _waiting_for
