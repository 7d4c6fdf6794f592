"""Reads folders written by Trace.save: Parquet files and an index. Writing and reading them is tables/storage.py's."""

from __future__ import annotations

from pathlib import Path

from opspan.formats import parquet
from opspan.tables import Tables, storage


def sniff(path: Path, head: bytes) -> bool:
    return path.is_dir() and storage.is_saved(path)


def read(path: Path) -> Tables:
    for file in sorted(path.glob("*.parquet")):
        parquet.check(file)
    return storage.load(path)
