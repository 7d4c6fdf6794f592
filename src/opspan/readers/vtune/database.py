"""Gives access to the database of a result: its tables, its clock, the process and thread of a row. Counts the rows of
unread tables.

Times are ticks of 100 picoseconds since the beginning of 2008, UTC, on any processor:

    start_tsc 4041035591946616600 -> 1603249159.194661660 s since 1970

dd_marker_info has the time of one moment on two clocks: utc_time 16032491590365820 (in units of 100 ns since 1970),
sys_tsc 4016591910821464 (in units of 1 / sys_frequency s). On Linux sys_tsc is CLOCK_MONOTONIC_RAW in ns, and the trace
uses this clock. Otherwise times count from the first event.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from opspan.formats.budget import TEXTS, Meter
from opspan.formats.columns import Columns, in_time
from opspan.formats.keys import beside, once, places
from opspan.formats.sqlite import ROWID, SqliteFile
from opspan.printable import listed_counts
from opspan.readers.vtune import tables
from opspan.tables import Issues

EPOCH_NS = 1_199_145_600_000_000_000  # 2008-01-01 00:00:00 UTC
LATEST_NS = 4_102_444_800_000_000_000  # the year 2100
TICKS_OF_NS = 10
NS_OF_UTC = 100
NANOSECONDS = 1_000_000_000
MONOTONIC = "CLOCK_MONOTONIC_RAW"
_SMALL = 1_000  # cached tables have fewer rows, because larger ones take much memory and are rarely read again


@dataclass(frozen=True)
class ResultClock:
    name: str | None
    zero_utc_ns: int


class ResultDatabase:
    def __init__(self, store: SqliteFile, issues: Issues) -> None:
        self.issues = issues
        self.written = Meter(TEXTS, store.bytes, issues)
        self._store = store
        self._read: set[str] = set()
        self._domains: tuple[pl.DataFrame, pl.DataFrame] | None = None  # domains: with stored names, with shown names
        # Cache of small tables that were read without an issue.
        self._sound: dict[str, tuple[Columns, pl.DataFrame]] = {}
        for table, columns in ((tables.TASKS, tables.INSTANCE_COLUMNS), (tables.TASK, tables.DETAILS_COLUMNS)):
            store.ahead(table, columns)  # the largest tables of most files
        self._stated = self._stated_targets()
        self.processes = self.rows(tables.PROCESS, tables.PROCESS_COLUMNS)
        processes = self.processes.select("pid", process=ROWID)
        self.threads = self.rows(tables.THREAD, tables.THREAD_COLUMNS).join(
            processes, on="process", how="left", maintain_order="left"
        )
        self._known_threads = self.threads.select(ROWID, "pid", tid="thread_id")
        self._bands = self.rows(tables.BAND, tables.OWNER_COLUMNS)

    # --- tables

    def has(self, table: str) -> bool:
        return table in self._store.tables

    def frame(self, table: str, columns: Columns) -> pl.DataFrame:
        """Returns the columns of a table. A missing column is null, and a missing table has no rows."""
        self._read.add(table)
        known, frame = self._sound.get(table, (None, None))
        if frame is not None and known == columns:
            return frame
        before = self.issues.found
        frame = self._store.frame(table, columns)
        if frame.height < _SMALL and self.issues.found == before:
            self._sound[table] = columns, frame
        return frame

    def rows(self, table: str, columns: Columns) -> pl.DataFrame:
        """Returns the columns of a table for look-ups by row id. Each row id occurs once."""
        frame = self.frame(table, columns)
        return once(frame.drop_nulls(ROWID) if frame[ROWID].null_count() else frame, ROWID)

    def target(self, of: str, column: str, *known: str) -> str:
        """Returns the table that the column `column` of the table `of` refers to: the table in the file's list of
        references, or else the first table of `known` that has rows."""
        stated = self._stated.get(f"{of}.{column}")
        return stated or next((table for table in known if self._store.count(table)), known[0])

    def follow(
        self, frame: pl.DataFrame, of: str, column: str, columns: Columns, *known: str, named: str | None = None
    ) -> pl.DataFrame:
        """Adds columns of the table that the frame's column `column` refers to. In the file, `column` belongs to the
        table `of`. There it is called `named` (default: `column`)."""
        to = self.target(of, named or column, *known)
        rows = self.rows(to, columns)
        if not (set(columns) - {ROWID}) & set(self._store.columns(to)):
            rows = rows.clear()  # a table with none of the columns is of another kind
        return self.look_up(frame, column, rows, f"{of}.{named or column}", to)

    def look_up(self, frame: pl.DataFrame, column: str, rows: pl.DataFrame, what: str, to: str) -> pl.DataFrame:
        """Adds the columns of the rows that the frame's column refers to. Counts references to missing rows."""
        wanted = frame[column]
        at = places(wanted.to_frame(), rows[ROWID].to_frame(column))
        if at.null_count() > wanted.null_count() and (lost := int((at.is_null() & (wanted >= 0)).sum())):
            why = "" if rows.height else self._why_empty(to)
            self.issues.add("missing_rows", lost, f"{what} to rows of {to}{why}")
        return beside(frame, self.written.columns_at(rows, at, ROWID))

    def _why_empty(self, table: str) -> str:
        if not self.has(table):
            return ", which is not in the file"
        return ", which has none of its columns" if self._store.count(table) else ", which has none"

    def instances(self, table: str) -> pl.DataFrame:
        """Returns attr, pid, tid and the times of events, in ns since 1970."""
        events = timed(self.frame(table, tables.INSTANCE_COLUMNS), table, self.issues)
        bands = events.drop_in_place("__bucket_idx")
        return events.hstack(self.owners(bands, table))

    def aggregates(self, view: str) -> pl.DataFrame:
        """Returns attr, count, duration, pid, tid and times of a view's rows. Reads the view's two tables (data and
        bands) instead of the view: if a band is damaged, the view may join every row with every other row."""
        of_data, of_bands = tables.data(view), tables.bands(view)
        self._read.add(view)
        data = self.rows(of_data, tables.DATA_COLUMNS).sort(ROWID)
        bands = timed(self.frame(of_bands, tables.BAND_COLUMNS), of_bands, self.issues)
        first, last = pl.col("data_start_rowid"), pl.col("data_end_rowid")
        bands = bands.filter((first <= last).fill_null(value=False)).sort("data_start_rowid")
        rows = data.join_asof(bands, left_on=ROWID, right_on="data_start_rowid")
        rows = rows.filter((pl.col(ROWID) <= last).fill_null(value=False))
        self.issues.add("no_time", data.height - rows.height, f"{of_data}, which no row of {of_bands} has")
        owners = self.owners(rows["__bucket_idx"], of_bands)
        return rows.select("attr", "count", "duration", "start_ns", "end_ns").hstack(owners)

    # --- processes and threads

    def owners(self, bands: pl.Series, what: str) -> pl.DataFrame:
        """Returns pid and tid for row ids of dd_band; null if the band has no thread."""
        frame = self.look_up(bands.rename("band").to_frame(), "band", self._bands, f"{what}.__bucket_idx", tables.BAND)
        return self.of_threads(frame["dd_thread"], f"{tables.BAND}.dd_thread")

    def of_threads(self, threads: pl.Series, what: str) -> pl.DataFrame:
        """Returns pid and tid for row ids of dd_thread."""
        frame = threads.rename("thread").to_frame()
        return self.look_up(frame, "thread", self._known_threads, what, tables.THREAD).drop("thread")

    @cached_property
    def pids(self) -> pl.Series:
        """The pids of the program, without VTune's own processes; all pids if the file has only VTune's."""
        own = self.threads.filter(pl.col("ignored") == 1)["process"]
        ours = self.threads.filter(pl.col("ignored").is_null() | (pl.col("ignored") != 1))["process"]
        tools = own.filter(~own.is_in(ours.implode()))
        pids = self.processes.filter(~pl.col(ROWID).is_in(tools.implode()))["pid"].drop_nulls().unique().sort()
        return pids if len(pids) else self.processes["pid"].drop_nulls().unique().sort()

    # --- texts and clocks

    def names(self, table: str) -> pl.DataFrame:
        return self.rows(table, tables.NAME_COLUMNS)

    def domains(self) -> pl.DataFrame:
        """Returns row ids and names of domains. VTune's own names lose their prefix. The name that means no domain
        becomes null."""
        names = self.names(tables.DOMAIN)
        if self._domains is None or self._domains[0] is not names:
            plain = pl.when(pl.col("name") != tables.NO_DOMAIN).then(builtin("name"))
            self._domains = names, names.select(ROWID, plain.cast(pl.Categorical).alias("domain_name"))
        return self._domains[1]

    def in_domain(self, frame: pl.DataFrame, of: str) -> pl.DataFrame:
        """Adds the column `domain_name`: the names of the domains in the frame's column `domain`. `of`: the table from
        which the column `domain` comes."""
        return self.look_up(frame, "domain", self.domains(), f"{of}.domain", tables.DOMAIN)

    def clock(self) -> ResultClock | None:
        """Returns the clock from dd_marker_info; None unless this table has exactly one distinct, valid row."""
        pairs = self.frame(tables.MARKER_INFO, tables.MARKER_INFO_COLUMNS).drop_nulls().unique()
        if pairs.height != 1:
            return None
        utc, system, frequency = pairs.row(0)
        sound = 0 < system < LATEST_NS and EPOCH_NS < utc * NS_OF_UTC < LATEST_NS
        return ResultClock(MONOTONIC, utc * NS_OF_UTC - system) if sound and frequency == NANOSECONDS else None

    # --- the file's lists of references and event tables

    def _stated_targets(self) -> dict[str, str]:
        """Maps 'table.column' to the table that the column refers to. Leaves out references to missing tables."""
        stated = self.frame(tables.REFERENCES, tables.REFERENCES_COLUMNS).drop_nulls().iter_rows()
        return {column: table for column, table in stated if self.has(table)}

    def _events(self) -> list[str]:
        """Returns the names of the tables of events: those in the file's list, and others that look like names of such
        tables."""
        listed = set(self.frame(tables.INSTANCES, tables.INSTANCES_COLUMNS)["name"].drop_nulls())
        return sorted(
            name
            for name in self._store.tables
            if name in listed or name in tables.UNREAD_DIMENSIONS or tables.is_event(name)
        )

    # --- the rest

    def skip_the_rest(self) -> None:
        """Adds an issue that counts the rows of unread tables of events."""
        skipped = {}
        for name in self._events():
            if name in self._read or name in tables.ELAPSED:
                continue
            # A table of bands only has the times and threads of events. The events themselves are rows of the view's
            # table of data, which is counted instead.
            if name.endswith(tables.bands("")) and self._store.count(tables.data(name.removesuffix(tables.bands("")))):
                continue
            if rows := self._store.count(name):
                skipped[name] = rows
        self.issues.add("skipped_tables", sum(skipped.values()), listed_counts(skipped))


def timed(frame: pl.DataFrame, table: str, issues: Issues) -> pl.DataFrame:
    """Returns the frame with start_ns and end_ns since 1970, without rows that have no valid start."""
    times = {"start_tsc": "start", "end_tsc": "end"}
    columns = (utc_ns(name).alias(times[name]) if name in times else name for name in frame.columns)
    return in_time(frame.select(*columns), table, issues)


def utc_ns(column: str) -> pl.Expr:
    """Converts ticks to ns since 1970. Ticks up to 0 (before 2008) become null."""
    tsc = pl.col(column)
    return pl.when(tsc > 0).then(tsc // TICKS_OF_NS + EPOCH_NS).alias(column)


def builtin(column: str) -> pl.Expr:
    """Removes the prefix that VTune's own names have."""
    return pl.col(column).str.strip_prefix(tables.BUILTIN)
