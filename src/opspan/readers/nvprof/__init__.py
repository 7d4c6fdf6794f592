"""Reads files of nvprof and the Visual Profiler: SQLite (.nvvp, .prof, .nvprof, .sql, .sqlite) of every DB version.

A file has CUPTI's activity records, a table for each kind (profile.py). The file's times are nanoseconds since 1970.
The times of the trace count from the first event. Two kinds of files only raise an error with an explanation: sessions
of the Visual Profiler in XML (they have no data), and nvprof's raw files. docs/formats/nvprof.md describes the tables.
"""

from __future__ import annotations

import re
from pathlib import Path

from opspan.errors import NotATrace
from opspan.files import open_file
from opspan.formats.columns import first_ns, from_zero
from opspan.formats.sqlite import SqliteFile, is_sqlite, table_names
from opspan.readers.nvprof import calls, memory, ranges, target, work
from opspan.readers.nvprof.profile import Profile
from opspan.tables import Issues, Tables

# Only nvprof's files have this table. Exports of nsys have the same CUPTI tables, but their texts are in StringIds.
OF_NVPROF = "StringTable"
ACTIVITY = "CUPTI_ACTIVITY_KIND_"

SESSION = re.compile(rb"\s*(<\?xml[^>]*>\s*)?<session version=")


def sniff(path: Path, head: bytes) -> bool:
    """Returns whether the path is a database of nvprof or a session of the Visual Profiler. `read` refuses sessions."""
    if is_sqlite(head):
        return _is_profile(table_names(path))
    return SESSION.match(head) is not None


def read(path: Path) -> Tables:
    _refuse_other_files(path)
    issues = Issues(str(path))
    with SqliteFile(path, issues) as store:
        if not _is_profile(store.tables):
            raise NotATrace(f"{path} has none of nvprof's tables; expected what `nvprof --export-profile FILE` writes")
        return _read(path, Profile(store, issues), issues)


def _is_profile(tables: frozenset[str] | tuple[str, ...]) -> bool:
    return OF_NVPROF in tables and any(name.startswith(ACTIVITY) for name in tables)


def _refuse_other_files(path: Path) -> None:
    if not path.is_file():
        return  # SqliteFile will raise the error
    with open_file(path) as stream:
        head = stream.read(256)
    advice = "write a database with `nvprof --export-profile FILE` and load that"
    if SESSION.match(head):
        raise NotATrace(f"{path} is a session of the Visual Profiler in XML, which holds no data; {advice}")
    if head and not is_sqlite(head):
        raise NotATrace(f"{path} is not a SQLite file (raw files of nvprof are not, either); {advice}")


def _read(path: Path, profile: Profile, issues: Issues) -> Tables:
    frames = {"ranges": ranges.read(profile), "calls": calls.read(profile), "memory": memory.read(profile)}
    names, contexts = target.names(profile), target.contexts(profile)
    pids = target.pids(names, frames.values())
    frames["work"] = work.read(profile, pids[0] if len(pids) == 1 else None, contexts)
    if len(pids) > 1:
        issues.add("unknown_process", frames["work"]["pid"].null_count(), f"{len(pids)} processes")
    threads = target.threads(names, frames.values())
    processes = target.processes(names, pids)
    devices = target.devices(profile, frames["work"]["device_id"], contexts)
    origin_ns = first_ns(frames.values(), 0)
    metadata = target.metadata(profile, path, origin_ns, names)
    profile.skip_the_rest()
    frames = from_zero(origin_ns, frames)
    return Tables((metadata,), **frames, threads=threads, processes=processes, devices=devices, issues=issues.frame())
