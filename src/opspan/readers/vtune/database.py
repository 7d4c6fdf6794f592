"""One database of a result: its tables, its clock, whose a row is, and what of it nobody asked for.

Times are ticks of 100 picoseconds since the beginning of 2008, UTC, whatever the processor:

    start_tsc 4041035591946616600 -> 1603249159.194661660 s since 1970

dd_marker_info has one moment on two clocks: utc_time 16032491590365820 (of 100 ns since 1970), sys_tsc 4016591910821464
(of 1 / sys_frequency s). On Linux sys_tsc is CLOCK_MONOTONIC_RAW in ns, and so are the times of the trace; else they
count from the first event.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from opspan.formats.budget import TEXTS, Meter
from opspan.formats.columns import in_time
from opspan.formats.keys import beside, once, places
from opspan.formats.sqlite import ROWID, SqliteFile
from opspan.printable import listed_counts
from opspan.readers.vtune import tables
from opspan.readers.vtune.tables import Columns
from opspan.tables import Issues

EPOCH_NS = 1_199_145_600_000_000_000  # 2008-01-01 00:00:00 UTC
LATEST_NS = 4_102_444_800_000_000_000  # the year 2100
TICKS_OF_NS = 10
NS_OF_UTC = 100
NANOSECONDS = 1_000_000_000
MONOTONIC = "CLOCK_MONOTONIC_RAW"
_SMALL = 1_000  # rows; to hold on to more would take memory, and few are asked for again


@dataclass(frozen=True)
class Clock:
    name: str | None
    zero_utc_ns: int


class Database:
    def __init__(self, file: SqliteFile, issues: Issues) -> None:
        self.issues = issues
        self.written = Meter(TEXTS, file.bytes, issues)
        self._file = file
        self._read: set[str] = set()
        self._domains: tuple[pl.DataFrame, pl.DataFrame] | None = None  # as they were read, and as they are shown
        self._sound: dict[str, tuple[Columns, pl.DataFrame]] = {}  # tables of which there is nothing to say
        for table, columns in ((tables.TASKS, tables.INSTANCE_COLUMNS), (tables.TASK, tables.TASK_COLUMNS)):
            file.ahead(table, columns)  # mostly the largest
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
        return table in self._file.tables

    def frame(self, table: str, columns: Columns) -> pl.DataFrame:
        """The columns, null where the file has not got them; no rows where it has not got the table."""
        self._read.add(table)
        known, frame = self._sound.get(table, (None, None))
        if frame is not None and known == columns:
            return frame
        before = self.issues.found
        frame = self._file.frame(table, columns)
        if frame.height < _SMALL and self.issues.found == before:
            self._sound[table] = columns, frame
        return frame

    def rows(self, table: str, columns: Columns) -> pl.DataFrame:
        """The same of a table that others refer to: each row id once."""
        found = self.frame(table, columns)
        return once(found.drop_nulls(ROWID) if found[ROWID].null_count() else found, ROWID)

    def target(self, of: str, column: str, *known: str) -> str:
        """The table that a column of a table refers to: as the file states it, else the first known that has rows."""
        stated = self._stated.get(f"{of}.{column}")
        return stated or next((table for table in known if self._file.count(table)), known[0])

    def follow(
        self, frame: pl.DataFrame, of: str, column: str, columns: Columns, *known: str, named: str | None = None
    ) -> pl.DataFrame:
        """The frame with these columns of the table that its column, which is `of.named`, refers to."""
        to = self.target(of, named or column, *known)
        rows = self.rows(to, columns)
        if not (set(columns) - {ROWID}) & set(self._file.columns(to)):
            rows = rows.clear()  # a table of another kind
        return self.referred(frame, column, rows, f"{of}.{named or column}", to)

    def referred(self, frame: pl.DataFrame, column: str, rows: pl.DataFrame, what: str, to: str) -> pl.DataFrame:
        """The frame with the columns of the rows that its column refers to; what refers to nothing is counted."""
        wanted = frame[column]
        at = places(wanted.to_frame(), rows[ROWID].to_frame(column))
        if at.null_count() > wanted.null_count() and (lost := int((at.is_null() & (wanted >= 0)).sum())):
            why = "" if rows.height else self._why_empty(to)
            self.issues.add("missing_rows", lost, f"{what} to rows of {to}{why}")
        return beside(frame, self.written.columns_at(rows, at, ROWID))

    def _why_empty(self, table: str) -> str:
        if not self.has(table):
            return ", which is not in the file"
        return ", which has none of its columns" if self._file.count(table) else ", which has none"

    def instances(self, table: str) -> pl.DataFrame:
        """attr, pid, tid and the times of what happened, in ns since 1970."""
        found = timed(self.frame(table, tables.INSTANCE_COLUMNS), table, self.issues)
        bands = found.drop_in_place("__bucket_idx")
        return found.hstack(self.owners(bands, table))

    def aggregates(self, view: str) -> pl.DataFrame:
        """The rows under a view of two tables: attr, count, duration, pid, tid and the times of their band.

        Not through the view: a damaged band would make it join all with all.
        """
        of_data, of_bands = tables.data(view), tables.bands(view)
        self._read.add(view)
        data = self.rows(of_data, tables.DATA_COLUMNS).sort(ROWID)
        bands = timed(self.frame(of_bands, tables.BAND_COLUMNS), of_bands, self.issues)
        first, last = pl.col("data_start_rowid"), pl.col("data_end_rowid")
        bands = bands.filter((first <= last).fill_null(value=False)).sort("data_start_rowid")
        found = data.join_asof(bands, left_on=ROWID, right_on="data_start_rowid")
        found = found.filter((pl.col(ROWID) <= last).fill_null(value=False))
        self.issues.add("no_time", data.height - found.height, f"{of_data}, which no row of {of_bands} has")
        kept = found.select(ROWID, "attr", "count", "duration", "start_ns", "end_ns", "__bucket_idx")
        return kept.with_columns(self.owners(kept["__bucket_idx"], of_bands)).drop(ROWID, "__bucket_idx")

    # --- whose

    def owners(self, bands: pl.Series, what: str) -> pl.DataFrame:
        """pid and tid by row of dd_band; null where the band is no thread's."""
        frame = self.referred(bands.rename("band").to_frame(), "band", self._bands, f"{what}.__bucket_idx", tables.BAND)
        return self.of_threads(frame["dd_thread"], f"{tables.BAND}.dd_thread")

    def of_threads(self, threads: pl.Series, what: str) -> pl.DataFrame:
        """pid and tid by row of dd_thread."""
        wanted = threads.rename("thread").to_frame()
        found = self.referred(wanted, "thread", self._known_threads, what, tables.THREAD)
        found.drop_in_place("thread")
        return found

    @cached_property
    def pids(self) -> pl.Series:
        """The processes that are not VTune's own, if any is not."""
        own = self.threads.filter(pl.col("ignored") == 1)["process"]
        ours = self.threads.filter(pl.col("ignored").is_null() | (pl.col("ignored") != 1))["process"]
        tools = own.filter(~own.is_in(ours.implode()))
        found = self.processes.filter(~pl.col(ROWID).is_in(tools.implode()))["pid"].drop_nulls().unique().sort()
        return found if len(found) else self.processes["pid"].drop_nulls().unique().sort()

    # --- texts and clocks

    def names(self, table: str) -> pl.DataFrame:
        """Row ids and names."""
        return self.rows(table, tables.NAME_COLUMNS)

    def domains(self) -> pl.DataFrame:
        """Row ids and names: VTune's own without their sign, and that of no domain null."""
        names = self.names(tables.DOMAIN)
        if self._domains is None or self._domains[0] is not names:
            plain = pl.when(pl.col("name") != tables.NO_DOMAIN).then(builtin("name"))
            self._domains = names, names.select(ROWID, plain.cast(pl.Categorical).alias("domain_name"))
        return self._domains[1]

    def in_domain(self, frame: pl.DataFrame, of: str) -> pl.DataFrame:
        """The frame with domain_name, of its column domain, which is one of that table."""
        return self.referred(frame, "domain", self.domains(), f"{of}.domain", tables.DOMAIN)

    def clock(self) -> Clock | None:
        """The clock that dd_marker_info tells; None where it tells none, or several."""
        pairs = self.frame(tables.MARKER_INFO, tables.MARKER_INFO_COLUMNS).drop_nulls().unique()
        if pairs.height != 1:
            return None
        utc, system, frequency = pairs.row(0)
        sound = 0 < system < LATEST_NS and EPOCH_NS < utc * NS_OF_UTC < LATEST_NS
        return Clock(MONOTONIC, utc * NS_OF_UTC - system) if sound and frequency == NANOSECONDS else None

    # --- what the file says of itself

    def _stated_targets(self) -> dict[str, str]:
        """'table.column' -> the table that it refers to, of those that the file has."""
        stated = self.frame(tables.REFERENCES, tables.REFERENCES_COLUMNS).drop_nulls().iter_rows()
        return {column: table for column, table in stated if self.has(table)}

    def _events(self) -> list[str]:
        """The tables of what happened: those that the file lists, and all that are called like no other. The rest
        describes, or is left over from VTune's own work."""
        listed = set(self.frame(tables.INSTANCES, tables.INSTANCES_COLUMNS)["name"].drop_nulls())
        return sorted(
            name
            for name in self._file.tables
            if name in listed or name in tables.UNREAD_DIMENSIONS or tables.is_event(name)
        )

    # --- the rest

    def skip_the_rest(self) -> None:
        """Count what is in tables of events that nobody asked for."""
        skipped = {}
        for name in self._events():
            if name in self._read or name in tables.ELAPSED:
                continue
            # What happened is in the rows of data; a band says when and where.
            if name.endswith(tables.bands("")) and self._file.count(tables.data(name.removesuffix(tables.bands("")))):
                continue
            if rows := self._file.count(name):
                skipped[name] = rows
        self.issues.add("skipped_tables", sum(skipped.values()), listed_counts(skipped))


def timed(frame: pl.DataFrame, table: str, issues: Issues) -> pl.DataFrame:
    """The frame with start_ns and end_ns since 1970, without the rows whose start is no time."""
    times = {"start_tsc": "start", "end_tsc": "end"}
    columns = (utc_ns(name).alias(times[name]) if name in times else name for name in frame.columns)
    return in_time(frame.select(*columns), table, issues)


def utc_ns(column: str) -> pl.Expr:
    """Ticks as ns since 1970; nothing is before 2008."""
    tsc = pl.col(column)
    return pl.when(tsc > 0).then(tsc // TICKS_OF_NS + EPOCH_NS).alias(column)


def builtin(column: str) -> pl.Expr:
    """A name of VTune's own without its sign."""
    return pl.col(column).str.strip_prefix(tables.BUILTIN)


def first_ns(frames: Iterable[pl.DataFrame]) -> int:
    starts = [frame[name].min() for frame in frames for name in ("start_ns", "time_ns") if name in frame.columns]
    return min((start for start in starts if isinstance(start, int)), default=EPOCH_NS)
