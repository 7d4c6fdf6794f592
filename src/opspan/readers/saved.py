"""Reads folders written by Trace.save: Parquet files and an index. tables/storage.py does the reading and writing."""

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
