"""Gives access to a rocpd file of either form. Finds its tables by names without suffixes, and counts the rows of
unread tables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import polars as pl

from opspan.formats.budget import TEXTS, Meter
from opspan.formats.columns import in_time
from opspan.formats.sqlite import SqliteFile, Type
from opspan.printable import listed_counts
from opspan.tables import Issues

# Matches names such as rocpd_region_00003fdc_92cb_72cb_9169_c7e541b1fcdf. Some versions leave out the underscores
# within the suffix.
_SUFFIXED = re.compile(r"(rocpd_[a-z_]+?)_([0-9a-f]{8}_?[0-9a-f]{4}_?[0-9a-f]{4}_?[0-9a-f]{4}_?[0-9a-f]{12})")

# Tables that describe the run and its machine. They never count as skipped.
DESCRIPTIONS = re.compile("rocpd_info_.*|rocpd_track|rocpd_metadata|sqlite_.*")


def base_name(table: str) -> str:
    """Returns the table's name without the suffix, which names a run. A file may have tables of several runs."""
    match = _SUFFIXED.fullmatch(table)
    return match[1] if match else table


class RocpdDatabase:
    def __init__(self, store: SqliteFile, issues: Issues) -> None:
        self.issues = issues
        self.written = Meter(TEXTS, store.bytes, issues)
        self._store = store
        self._read: set[str] = set()
        self._tables: dict[str, list[str]] = {}
        for table in store.tables:
            self._tables.setdefault(base_name(table), []).append(table)

    def ahead(self, table: str, columns: Mapping[str, Type]) -> None:
        """Starts to read a table in the background, for a later call of `frame`."""
        for name in self._tables.get(table, []):
            self._store.ahead(name, columns)

    def frame(self, table: str, columns: Mapping[str, Type]) -> pl.DataFrame:
        """Returns the rows of all tables with this base name; no rows if there is no such table."""
        self._read.add(table)
        parts = [self._store.frame(name, columns) for name in self._tables.get(table, [table])]
        return parts[0] if len(parts) == 1 else pl.concat(parts)

    def timed(self, table: str, columns: Mapping[str, Type]) -> pl.DataFrame:
        """Returns the columns of a table, with start_ns and end_ns instead of start and end. Drops rows without a valid
        start."""
        return in_time(self.frame(table, columns), table, self.issues)

    def skip_the_rest(self) -> None:
        """Adds an issue that counts the rows of unread tables."""
        counts = {
            name: rows
            for base, names in self._tables.items()
            if base not in self._read and not DESCRIPTIONS.fullmatch(base)
            for name in names
            if (rows := self._store.count(name))
        }
        self.issues.add("skipped_tables", sum(counts.values()), listed_counts(counts))
