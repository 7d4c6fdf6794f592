"""Reads VTune's results and interval CSVs. The user may name a result's folder, its .vtune or .amplxe file, its
database, or a zip or tar file of the result.

A finalised result is an SQLite database (database.py) with files around it (result_files.py). intervals.py reads the
CSVs that opspan exports for VTune. The sums that `vtune -report` prints are not traces: reports.py reads them.
docs/formats/vtune.md describes the tables.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl

from opspan.errors import NotATrace, NotReadable, ReadError
from opspan.files import temporary_folder
from opspan.formats.columns import first_ns, from_zero
from opspan.formats.sqlite import SqliteFile, is_sqlite, table_names
from opspan.printable import listed_counts, replace_path, shell_path
from opspan.readers.vtune import (
    archives,
    containers,
    counters,
    intervals,
    ranges,
    result_files,
    samples,
    tables,
    target,
    waits,
)
from opspan.readers.vtune.database import EPOCH_NS, ResultClock, ResultDatabase
from opspan.readers.vtune.result_files import ResultFiles
from opspan.tables import Issues, Tables

OF_VTUNE = frozenset({tables.BAND, tables.THREAD, tables.PROCESS})


def sniff(path: Path, head: bytes) -> bool:
    if path.is_dir():
        return result_files.is_result(path)
    if is_sqlite(head):
        return table_names(path) >= OF_VTUNE
    if archives.is_archive(head):
        return archives.holds_result(path, head)
    return result_files.is_descriptor(head) or intervals.is_intervals(head) or _begins_as_report(path)


def is_report(path: Path, head: bytes) -> bool:
    """Returns whether the file is a report of `vtune -report`: sums by name, which are not a trace."""
    is_other = path.is_dir() or is_sqlite(head) or archives.is_archive(head) or result_files.is_descriptor(head)
    return not is_other and not intervals.is_intervals(head) and _begins_as_report(path)


def _begins_as_report(path: Path) -> bool:
    # Imported only here, because compiling the patterns in `reports` takes longer than reading many results.
    from opspan.readers.vtune import reports

    return reports.is_report(path)


def read(path: Path) -> Tables:
    issues = Issues(str(path))
    head = b"" if path.is_dir() else result_files.first_bytes(path)
    if intervals.is_intervals(head):
        return intervals.read(path, issues)
    if is_report(path, head):
        raise NotATrace(
            f"{path} is a report that `vtune -report` printed: sums by name, without the events of a trace. "
            f"`opspan table {shell_path(path)}` prints it; to add them to the table of the result that it is of: "
            f"`opspan table RESULT --metrics {shell_path(path)}`"
        )
    if not archives.is_archive(head):
        return _read(result_files.find(path, str(path), issues), issues)
    with temporary_folder("opspan-unpacked-") as folder:
        result = archives.unpack(path, head, folder)
        try:
            return _read(result_files.find(result, str(path), issues), issues)
        except ReadError as error:
            raise type(error)(replace_path(str(error), result, str(path), "unpack it")) from error


def _read(files: ResultFiles, issues: Issues) -> Tables:
    _refuse_tasks_in_containers(files, issues)
    with SqliteFile(files.database, issues) as store:
        if not set(store.tables) >= OF_VTUNE:
            raise NotATrace(f"{files.shown} has none of VTune's tables; expected what `vtune -finalize` writes")
        return _translate(ResultDatabase(store, issues), files, issues)


def _refuse_tasks_in_containers(files: ResultFiles, issues: Issues) -> None:
    for folder in files.containers:
        if folder.name in (tables.TASKS, tables.FRAMES, tables.REGIONS) and containers.count(folder, issues):
            raise NotReadable(
                f"{files.shown} keeps its {folder.name} in a container outside SQLite, which opspan does not read; "
                "finalise it again (`vtune -finalize -r DIR`) with the version that collected it, or load the sums of "
                "`vtune -report hotspots -group-by task -format csv -r DIR` with opspan.load_vtune_report"
            )


def _translate(database: ResultDatabase, files: ResultFiles, issues: Issues) -> Tables:
    sites = samples.sites(database)
    sampled, counted = samples.read(database, sites, files.containers)
    with ThreadPoolExecutor(1) as beside:
        events, making = ranges.begin(database, beside)
        counters_of_all = pl.concat([counters.read(database), counted], how="diagonal")
        calls = waits.read(database, sites)
        frames = {"ranges": events, "calls": calls, "counters": counters_of_all, "samples": sampled}
        # If the machine's clock is not in the result, times count from the first event.
        clock = database.clock() or ResultClock(None, first_ns(frames.values(), EPOCH_NS))
        is_task = ~pl.col("is_mark") & ~pl.col("is_async")
        target.note_no_tasks(database, files, int(events.select(is_task.sum()).item()))
        metadata = target.metadata(database, files, clock)
        processes = target.processes(database, files, clock.zero_utc_ns)
        threads = target.threads(database, frames.values())
        database.skip_the_rest()
        _count_containers(files, issues)
        frames["ranges"] = making.result()
    frames = from_zero(clock.zero_utc_ns, frames)
    return Tables((metadata,), **frames, threads=threads, processes=processes, issues=issues.frame())


def _count_containers(files: ResultFiles, issues: Issues) -> None:
    """Adds an issue that counts the rows of unread containers (tables outside SQLite). Leaves out containers whose
    names begin with _, because they are caches."""
    names = {folder.name: folder for folder in files.containers if not folder.name.startswith("_")}
    skipped = {
        name: rows
        for name, folder in names.items()
        if name != samples.PMU and (rows := containers.count(folder, issues))
    }
    issues.add("skipped_tables", sum(skipped.values()), listed_counts(skipped))
