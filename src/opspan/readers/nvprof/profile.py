"""Gives access to one file of nvprof: its tables, its texts, the process and thread of a row. Counts the rows of
unread tables.

StringTable: 0 '-- null --', 1 'python train.py', 2 'mul, seq = 116', 3 '_Z3addPf'
objectId: 7b 71 00 00  40 97 ec 4c  00 00 00 00        process 29051, thread 0x4cec9740
"""

from __future__ import annotations

import struct

import polars as pl

from opspan.formats.budget import TEXTS, Meter
from opspan.formats.columns import Columns, TextTable, in_time
from opspan.formats.sqlite import SqliteFile
from opspan.printable import listed_counts
from opspan.readers.nvprof import tables
from opspan.row_numbers import ROW_NUMBER
from opspan.tables import Issues

ID_MASK = 0xFFFFFFFF


class Profile:
    def __init__(self, store: SqliteFile, issues: Issues) -> None:
        self.issues = issues
        self._store = store
        self._read: set[str] = set()
        strings = self.frame(tables.STRINGS, tables.STRING_COLUMNS).rename({"_id_": "id"})
        self._strings = TextTable(strings, Meter(TEXTS, store.bytes, issues), issues)

    def frame(self, table: str, columns: Columns) -> pl.DataFrame:
        """Returns the columns of a table. A missing column is null, and a missing table has no rows."""
        self._read.add(table)
        return self._store.frame(table, columns)

    def timed(self, table: str, columns: Columns) -> pl.DataFrame:
        """Returns the columns of a table, with start_ns and end_ns instead of start and end. Drops rows without a valid
        start."""
        return in_time(self.frame(table, columns), table, self.issues)

    def texts(self, ids: pl.Series, what: str) -> tuple[pl.Series, pl.Series]:
        """Returns the distinct texts that `ids` refers to, and for each id the index of its text (null without a
        text)."""
        rows = self._strings.rows(ids.replace(0, None), what)  # 0 means no text
        used = rows.drop_nulls().unique().sort()
        if not len(used):
            return pl.Series([], dtype=pl.String), rows
        at = used.search_sorted(rows).zip_with(rows.is_not_null(), pl.Series([None], dtype=ROW_NUMBER))
        return self._strings.values.gather(used), at

    def names(self, ids: pl.Series, what: str) -> pl.Series:
        """Returns the texts that `ids` refers to, as a Categorical."""
        return self._strings.names(ids.replace(0, None), what)

    def owners(self, frame: pl.DataFrame, what: str) -> pl.DataFrame:
        """Returns each row's pid and tid from objectKind and objectId. Both are null if the object is not a process or
        thread."""
        blobs = frame["objectId"].drop_nulls().unique()
        # A loop in Python is fast enough, because there is only one blob for each thread.
        pairs = [struct.unpack_from("<II", blob) if len(blob) >= 8 else (None, None) for blob in blobs]
        schema = {"pid": pl.Int64, "tid": pl.Int64}
        known = pl.DataFrame(pairs, schema=schema, orient="row").with_columns(objectId=blobs)
        self.issues.add("odd_cells", known["pid"].null_count(), f"{what}, objectId")
        ids = frame.select("objectKind", "objectId").join(known, on="objectId", how="left", maintain_order="left")
        return ids.select(
            pl.when(pl.col("objectKind").is_in([tables.PROCESS, tables.THREAD])).then("pid").alias("pid"),
            pl.when(pl.col("objectKind") == tables.THREAD).then("tid").alias("tid"),
        )

    def skip_the_rest(self) -> None:
        """Adds an issue that counts the rows of unread tables."""
        skipped = {
            name: rows
            for name in self._store.tables
            if name not in self._read | tables.DESCRIPTIONS and not name.startswith("sqlite_")
            if (rows := self._store.count(name))
        }
        self.issues.add("skipped_tables", sum(skipped.values()), listed_counts(skipped))


def unsigned(column: str) -> pl.Expr:
    """Returns the unsigned value of a u32 column that the file stores as signed."""
    return pl.col(column) & ID_MASK
