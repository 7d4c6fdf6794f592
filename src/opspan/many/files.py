"""Finds the files that the user's paths, folders and patterns mean. Each file is a rank, and rank2 comes before rank10.

A folder may be a trace itself (a capture, a result of VTune, ...). Any other folder is searched for traces, also in its
subfolders. Files that are not traces are left out, except files with names like those of traces, because these are
probably damaged traces.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from opspan.addresses import Address, file_of
from opspan.errors import NotATrace, NotReadable, ReadError
from opspan.files import check_folder, exists, is_folder
from opspan.readers import source_for, trace_source
from opspan.readers.graph_captures import FOLDER

DEPTH = 2  # the levels of folders to search: a folder and its direct subfolders, which may be runs or ranks
_NAMES = (".nsys-rep", ".qdrep", ".sqlite", ".opspan", ".nvvp", ".nvprof", ".rpd", ".vtune", ".pt.trace.json")
_REPORTS = (".nsys-rep", ".qdrep")
_COMPRESSED = ("", ".gz", ".bz2", ".xz")
_IS_TRACE = tuple(name + packed for name in _NAMES for packed in _COMPRESSED)


class File(NamedTuple):
    """A file and its size in bytes. An unknown size is 0."""

    path: str
    size: int


class FileList(NamedTuple):
    files: list[File]
    skipped: int  # the number of files that were found in folders, but are not traces


def files_of(paths: Sequence[str | os.PathLike[str]], source: str | None = None) -> FileList:
    """Returns the files of all paths without duplicates. If the user named a reader (`source`), folders count as
    traces."""
    files: list[File] = []
    skipped = 0
    for file in map(file_of, paths):
        some, others = (_there(file), 0) if isinstance(file, Address) else _here(file, source)
        files += some
        skipped += others
    return FileList(list({file.path: file for file in files}.values()), skipped)


def _there(address: Address) -> list[File]:
    if not address.is_several:
        return [File(address.text, 0)]
    from opspan.remote import listed  # imported only for addresses, because it imports asyncio

    return sorted((File(one.text, size) for one, size in listed(address)), key=lambda file: in_order(file.path))


def _here(pattern: Path, source: str | None) -> tuple[list[File], int]:
    files: list[Path] = []
    skipped = 0
    for path in _matching(pattern):
        if source is not None or not is_folder(path) or trace_source(path) is not None:
            files.append(path)
            continue
        inside, others = _inside(path)
        if not inside:
            raise _no_trace(path)
        files += inside
        skipped += others
    return [File(str(path), _size(path)) for path in files], skipped


def _no_trace(folder: Path) -> ReadError:
    """Returns the error that reading this folder as a trace raises, or a general error if reading succeeds."""
    try:
        source_for(folder)
    except ReadError as error:
        return error
    return NotATrace(f"{folder} is a folder in which there is no trace")


def _matching(path: Path) -> list[Path]:
    pattern = str(path)
    if exists(path) or not glob.has_magic(pattern):
        return [path]
    matches = sorted(map(Path, glob.glob(pattern, recursive=True)), key=in_order)  # noqa: PTH207  absolute ones, too
    if not matches:
        raise NotReadable(f"no file is called {pattern!r}; expected a pattern that fits some, such as 'run/*.sqlite'")
    return matches


def _inside(folder: Path) -> tuple[list[Path], int]:
    """Returns the traces in a folder, and how many files are not traces. A folder that may not be listed counts as a
    trace, so that its reader reports the error."""
    known: dict[Path, str] = {}
    others: list[Path] = []
    forbidden: list[Path] = []
    for path in _walk(folder, forbidden):
        if (source := trace_source(path)) is not None:
            known[path] = source.name
        elif not is_folder(path):
            others.append(path)
    # A report of nsys and its SQLite export in the same folder are the same rank. Only the export is read.
    exports = {path.with_suffix("") for path, name in known.items() if name == "nsys" and path.suffix == ".sqlite"}
    like = {_shape(path) for path in known}
    damaged = [path for path in others if path.name.endswith(_IS_TRACE) or _shape(path) in like]
    twice = {path for path in (*known, *damaged) if path.suffix in _REPORTS and path.with_suffix("") in exports}
    traces = sorted({*known, *damaged} - twice, key=in_order)
    if not traces:
        if forbidden:
            source_for(forbidden[0])  # raises an error with the reason
        return [], len(others)
    return sorted([*traces, *forbidden], key=in_order), len(others) - len(damaged)


def _walk(folder: Path, forbidden: list[Path], depth: int = DEPTH) -> Iterator[Path]:
    """Yields the files and the traces in a folder. Searches subfolders, too, unless they are traces. Adds folders that
    may not be listed to `forbidden`. Leaves out folders named FOLDER (graph_captures.py), because they belong to the
    traces beside them."""
    try:
        check_folder(folder)
        inside = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError:
        forbidden.append(folder)
        return
    for path in inside:
        if not is_folder(path) or trace_source(path) is not None:
            yield path
        elif depth > 1 and path.name != FOLDER:
            yield from _walk(path, forbidden, depth - 1)


def in_order(path: Path | str) -> list[tuple[int, int, str]]:
    """Returns a sort key that puts rank2 before rank10."""
    parts = re.split(r"([0-9]{1,18})", str(path))
    return [(0, int(part), "") if part.isdigit() and part.isascii() else (1, 0, part) for part in parts]


def _shape(path: Path) -> str:
    """Returns the file's name with each number replaced by 0, so that all ranks of a run have the same name."""
    return re.sub("[0-9]+", "0", path.name)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if not is_folder(path) else sum(one.stat().st_size for one in path.iterdir())
    except OSError:
        return 0
