"""Reads folders written by Trace.save: Parquet files and an index. Writing and reading them is trace/storage.py's."""

from __future__ import annotations

from pathlib import Path

from opspan.readers import _parquet
from opspan.trace import Trace, storage


def sniff(path: Path, head: bytes) -> bool:
    return path.is_dir() and storage.is_saved(path)


def read(path: Path) -> Trace:
    for file in sorted(path.glob("*.parquet")):
        _parquet.check(file)
    return storage.load(path)
