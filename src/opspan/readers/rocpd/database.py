"""Gives access to a rocpd file of either form. Finds its tables by their base names, and counts its unread tables."""

from __future__ import annotations

import re
from collections.abc import Mapping

import polars as pl

from opspan.formats.budget import TEXTS, Meter
from opspan.formats.columns import in_time
from opspan.formats.sqlite import SqliteFile, Type
from opspan.printable import listed_counts
from opspan.tables import Issues

# rocpd_region_00003fdc_92cb_72cb_9169_c7e541b1fcdf; some versions leave out the inner underscores
_SUFFIXED = re.compile(r"(rocpd_[a-z_]+?)_([0-9a-f]{8}_?[0-9a-f]{4}_?[0-9a-f]{4}_?[0-9a-f]{4}_?[0-9a-f]{12})")

# Tables that describe the run and its machine: never counted as skipped.
DESCRIPTIONS = re.compile("rocpd_info_.*|rocpd_track|rocpd_metadata|sqlite_.*")


def base_name(table: str) -> str:
    """Returns the name without the suffix of the run. A file may have several runs."""
    match = _SUFFIXED.fullmatch(table)
    return match[1] if match else table


class RocpdDatabase:
    def __init__(self, file: SqliteFile, issues: Issues) -> None:
        self.issues = issues
        self.written = Meter(TEXTS, file.bytes, issues)
        self._file = file
        self._read: set[str] = set()
        self._tables: dict[str, list[str]] = {}
        for table in file.tables:
            self._tables.setdefault(base_name(table), []).append(table)

    def ahead(self, table: str, columns: Mapping[str, Type]) -> None:
        """Starts to read a table in the background, for a later call of `frame`."""
        for name in self._tables.get(table, []):
            self._file.ahead(name, columns)

    def frame(self, table: str, columns: Mapping[str, Type]) -> pl.DataFrame:
        """Returns the rows of all tables with that base name. Without such a table there are no rows."""
        self._read.add(table)
        parts = [self._file.frame(name, columns) for name in self._tables.get(table, [table])]
        return parts[0] if len(parts) == 1 else pl.concat(parts)

    def timed(self, table: str, columns: Mapping[str, Type]) -> pl.DataFrame:
        """Returns the columns of a table, with start_ns and end_ns instead of start and end. Drops rows without a valid
        start."""
        return in_time(self.frame(table, columns), table, self.issues)

    def skip_the_rest(self) -> None:
        """Counts the rows of tables that no translation has read, as an issue."""
        counts = {
            name: rows
            for base, names in self._tables.items()
            if base not in self._read and not DESCRIPTIONS.fullmatch(base)
            for name in names
            if (rows := self._file.count(name))
        }
        self.issues.add("skipped_tables", sum(counts.values()), listed_counts(counts))
