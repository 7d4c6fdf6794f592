"""Defines further classes of torch's profiler: StringTable, MemRecordsAcc, EnforceUnique."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from opspan.native import demangled


class StringTable(defaultdict[str, str]):
    """Maps mangled names to C++ names. Each name is demangled once. A name of one letter is returned unchanged, so `t`
    does not become `unsigned short`."""

    def __missing__(self, key: str) -> str:
        self[key] = demangled(key) if len(key) > 1 else key
        return self[key]


class MemRecordsAcc:
    """Finds memory records by time. A record is a sequence whose first item has `start_ns()`."""

    def __init__(self, mem_records: Sequence[Any]) -> None:
        self._mem_records = mem_records
        starts = sorted((record[0].start_ns(), index) for index, record in enumerate(mem_records))
        self._start_nses = [start for start, _ in starts]
        self._indices = [index for _, index in starts]

    def in_interval(self, start_ns: int, end_ns: int) -> Iterator[Any]:
        """Yields the records from start_ns to end_ns, both included, in order of time."""
        first = bisect.bisect_left(self._start_nses, start_ns)
        past = bisect.bisect_right(self._start_nses, end_ns)
        for index in self._indices[first:past]:
            yield self._mem_records[index]


class EnforceUnique:
    """Raises an error if a key is seen more than once."""

    def __init__(self) -> None:
        self.seen: set[tuple[Any, ...]] = set()

    def see(self, *key: Any) -> None:
        if key in self.seen:
            raise RuntimeError(f"duplicate key: {key}")
        self.seen.add(key)
