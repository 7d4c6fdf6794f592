"""Reads nvprof and the Visual Profiler: SQLite files (.nvvp, .prof, .nvprof, .sql, .sqlite) of every DB version.

A file is CUPTI's activity records, a table a kind (profile.py). Times are nanoseconds since 1970; the trace's zero is
the first of them. What the Visual Profiler saves without data, and nvprof's raw files, are refused with a sentence.
docs/formats/nvprof.md describes the tables.
"""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl

from opspan.errors import NotATrace
from opspan.files import open_file
from opspan.formats.sqlite import SqliteFile, is_sqlite, table_names
from opspan.readers.nvprof import calls, memory, ranges, target, work
from opspan.readers.nvprof.profile import Profile
from opspan.tables import Issues, Tables
from opspan.tables.schema import TABLES

# nsys' exports share the names of CUPTI's tables, but have their texts in StringIds.
OF_NVPROF = "StringTable"
ACTIVITY = "CUPTI_ACTIVITY_KIND_"

SESSION = re.compile(rb"\s*(<\?xml[^>]*>\s*)?<session version=")


def sniff(path: Path, head: bytes) -> bool:
    """Is it a database of nvprof's, or a session that the Visual Profiler saved beside one?"""
    if is_sqlite(head):
        return _is_profile(table_names(path))
    return SESSION.match(head) is not None


def read(path: Path) -> Tables:
    _refuse_what_is_no_database(path)
    issues = Issues(str(path))
    with SqliteFile(path, issues) as file:
        if not _is_profile(file.tables):
            raise NotATrace(f"{path} has none of nvprof's tables; expected what `nvprof --export-profile FILE` writes")
        return _read(path, Profile(file, issues), issues)


def _is_profile(tables: frozenset[str] | tuple[str, ...]) -> bool:
    return OF_NVPROF in tables and any(name.startswith(ACTIVITY) for name in tables)


def _refuse_what_is_no_database(path: Path) -> None:
    if not path.is_file():
        return  # whoever opens it says what it is
    with open_file(path) as file:
        head = file.read(256)
    advice = "write a database with `nvprof --export-profile FILE` and load that"
    if SESSION.match(head):
        raise NotATrace(f"{path} is a session of the Visual Profiler in XML, which holds no data; {advice}")
    if head and not is_sqlite(head):
        raise NotATrace(f"{path} is not a SQLite file (raw files of nvprof are not, either); {advice}")


def _read(path: Path, profile: Profile, issues: Issues) -> Tables:
    frames = {"ranges": ranges.read(profile), "calls": calls.read(profile), "memory": memory.read(profile)}
    names, contexts = target.names(profile), target.contexts(profile)
    pids = target.pids(names, frames.values())
    frames["work"] = work.read(profile, target.only(pids), contexts)
    if len(pids) > 1:
        issues.add("unknown_process", frames["work"]["pid"].null_count(), f"{len(pids)} processes")
    threads = target.threads(names, frames.values())
    processes = target.processes(names, pids)
    devices = target.devices(profile, frames["work"]["device_id"], contexts)
    origin_ns = _first_ns(frames)
    metadata = target.metadata(profile, path, origin_ns, names)
    profile.skip_the_rest()
    moved = {name: _from(origin_ns, name, frame) for name, frame in frames.items()}
    return Tables((metadata,), **moved, threads=threads, processes=processes, devices=devices, issues=issues.frame())


def _first_ns(frames: dict[str, pl.DataFrame]) -> int:
    starts = [
        frame.get_column(name).min() for frame in frames.values() for name in ("start_ns", "time_ns") if name in frame
    ]
    return min((start for start in starts if isinstance(start, int)), default=0)


def _from(origin_ns: int, table: str, frame: pl.DataFrame) -> pl.DataFrame:
    times = [column.name for column in TABLES[table].columns if column.unit == "ns" and column.name in frame.columns]
    return frame.with_columns(pl.col(times) - origin_ns) if times else frame
