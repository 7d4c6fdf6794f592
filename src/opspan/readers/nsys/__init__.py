"""Reads files of Nsight Systems: SQLite exports of 2019 to today, folders (parquetdir, arrowdir), reports (*.nsys-rep).

Only nsys can read its reports, so the installed nsys exports them first (reports.py). All forms have the same tables
(export.py), which the other modules of this folder translate. docs/formats/nsys.md describes the tables.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from opspan.errors import NotATrace
from opspan.files import open_file
from opspan.formats.columns import numbered_alike
from opspan.formats.sqlite import SqliteFile, is_sqlite, table_names
from opspan.readers.nsys import calls, measurements, nvtx, tables, target, work
from opspan.readers.nsys.export import Export, TableStore
from opspan.tables import Issues, Tables
from opspan.tables.same import each_once

# Tables that only nsys' exports have. Tables named after CUPTI are also in nvprof's databases.
OF_NSYS = frozenset({"StringIds", "META_DATA_EXPORT", "EXPORT_META_DATA", tables.NVTX})
HEAD_BYTES = 64  # enough to tell a database from a report


def sniff(path: Path, head: bytes) -> bool:
    """Returns whether the path is an export (file or folder) or a report. `head`: its first bytes, b"" for a folder."""
    if path.is_dir():
        from opspan.readers.nsys.folders import is_folder

        return is_folder(path)
    if is_sqlite(head):
        return not OF_NSYS.isdisjoint(table_names(path))
    from opspan.readers.nsys.reports import is_report

    return is_report(path, head)


def read(path: Path) -> Tables:
    issues = Issues(str(path))
    with ExitStack() as stack:
        store = _store(path, stack, issues)
        if OF_NSYS.isdisjoint(store.tables):
            raise NotATrace(f"{path} has none of nsys' tables; expected what `nsys export --type sqlite` writes")
        return _read(path, Export(store, issues), issues)


def _store(path: Path, stack: ExitStack, issues: Issues) -> TableStore:
    """Opens the tables. The tables stay open until the stack is closed."""
    if path.is_dir():
        from opspan.readers.nsys.folders import Folder

        return stack.enter_context(Folder(path, issues))
    with open_file(path) as stream:
        head = stream.read(HEAD_BYTES)
    if not is_sqlite(head):
        from opspan.readers.nsys import reports

        if reports.is_report(path, head):
            path = reports.export_once(path, stack, issues)
    return stack.enter_context(SqliteFile(path, issues))


def _read(path: Path, export: Export, issues: Issues) -> Tables:
    ranges, called = nvtx.read(export), calls.read(export)
    ran = work.with_processes(work.read(export), called, ranges.ranges)
    frames = {
        **numbered_alike(ranges=ranges.ranges, calls=called, work=ran),
        "memory": measurements.read_memory(export),
        "samples": measurements.read_samples(export),
        "counters": measurements.read_counters(export),
    }
    threads = target.threads(export, ranges.threads, frames.values())
    processes = target.processes(export, frames.values())
    devices = target.devices(export, each_once(frames["work"], "device_id"))
    target.note_diagnostics(export)
    metadata = target.metadata(export, path)
    trace = Tables((metadata,), **frames, threads=threads, processes=processes, devices=devices)
    trace = target.split_by_rank(export, trace)
    export.skip_the_rest()
    return trace.replace(issues=issues.frame().with_columns(rank=trace.metadata.rank))
