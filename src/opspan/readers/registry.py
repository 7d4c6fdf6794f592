"""Which readers there are, and which one a path is for: decided by content, never by the name of a file.

A reader is a module of this package with `sniff(path, head) -> bool` and `read(path) -> Trace`; with `read_part(path,
window)` too, where it can read a part in no more memory than that needs. A new one is a file and a line here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path

import polars as pl

from opspan.errors import NotATrace, NotReadable, ReadError, UsageError
from opspan.files import open_file
from opspan.printable import listed
from opspan.readers import _nearby, _unknown
from opspan.readers._boundary import boundary
from opspan.readers._budget import check_room
from opspan.readers._writers import writer_of
from opspan.trace import Issues, Trace
from opspan.trace.window import Window, cut

HEAD_BYTES = 4096


@dataclass(frozen=True)
class Reader:
    name: str  # of the module, and for opspan.load(source=...)
    reads: str  # in words, for error messages
    # Memory that reading and a table surely take, for each byte of a large file (tools/bench measures it). 0: the size
    # of the file does not tell, as in a folder of which little is read.
    memory: float = 2.0

    @property
    def sniff(self) -> Callable[[Path, bytes], bool]:
        found: Callable[[Path, bytes], bool] = import_module(f"opspan.readers.{self.name}").sniff
        return found

    @property
    def read(self) -> Callable[[Path], Trace]:
        found: Callable[[Path], Trace] = import_module(f"opspan.readers.{self.name}").read
        return found

    @property
    def read_part(self) -> Callable[[Path, Window], Trace] | None:
        found: Callable[[Path, Window], Trace] | None = getattr(
            import_module(f"opspan.readers.{self.name}"), "read_part", None
        )
        return found


# A reader is imported when it is asked, so what people have most comes first: the others bring modules of their own.
READERS = (
    Reader("nsys", "Nsight Systems reports, SQLite exports, parquetdir and arrowdir folders"),
    Reader("capture", "opspan captures (*.opspan files and folders of them)", memory=1.5),
    Reader("saved", "folders written by Trace.save", memory=1.0),
    Reader("nvprof", "nvprof databases (*.nvvp, *.nvprof, *.prof, *.sql)"),
    Reader("rocpd", "rocpd databases of rocprofv3, rocprof-sys and rocmProfileData (*.db, *.rpd)"),
    Reader("unitrace", "Chrome traces of Intel's unitrace"),
    Reader("kineto", "torch.profiler's Chrome traces (*.pt.trace.json, *.json.gz)"),
    Reader(
        "vtune", "VTune results (folders, *.vtune, dicer.db, zip and tar files of them) and interval CSVs", memory=0
    ),
)


# What has rows in every trace that is worth a table.
_CONTENT = ("ranges", "calls", "work", "functions", "memory", "samples", "counters")


def read(reader: Reader, path: Path, window: Window | None = None) -> Trace:
    """The trace, or what overlaps the window. Refused where it would surely take more memory than there is."""
    with boundary(path):
        writer = writer_of(path)
        trace = _read(reader, path, window)
        if writer is None:
            return trace
        if all(trace.frames[name].is_empty() for name in _CONTENT):
            raise NotReadable(f"{path} holds nothing yet: {writer} still writes it; wait until that has ended")
        issues = Issues(str(path))
        issues.add("still_written", detail=writer)
        return trace.replace(issues=pl.concat([trace.issues, issues.frame()]))


def _read(reader: Reader, path: Path, window: Window | None) -> Trace:
    if window is not None and (read_part := reader.read_part) is not None:
        return read_part(path, window)
    check_room(path, reader.memory, has_parts=reader.read_part is not None)
    trace = reader.read(path)
    return trace if window is None else cut(trace, window)


def reader_for(path: Path, source: str | None = None) -> Reader:
    """The reader named, else the one that knows the content."""
    with boundary(path):
        head = _head(path)
        if source is not None:
            return named(source)
        found = _reader_of(path, head)
        if found is None:
            raise NotATrace(_not_a_trace(path, head))
        return found


def _reader_of(path: Path, head: bytes) -> Reader | None:
    return next((reader for reader in READERS if reader.sniff(path, head)), None)


def named(source: str) -> Reader:
    for reader in READERS:
        if reader.name == source:
            return reader
    raise UsageError(f"no reader is called {source!r}; there are {', '.join(reader.name for reader in READERS)}")


def sniffed(path: Path, source: str) -> bool:
    """Whether the reader of that name knows the content."""
    with boundary(path):
        return named(source).sniff(path, _head(path))


def _head(path: Path) -> bytes:
    """The first bytes of a file; none of a folder."""
    try:
        if path.is_dir():
            next(path.iterdir(), None)
            return b""
        if path.exists() and not path.is_file():
            raise NotReadable(f"{path} is neither a file nor a folder")
        if not path.exists() and (meant := _nearby.did_you_mean(_nearby.like(path))):
            raise NotReadable(f"there is no {path}; {meant}")
        with open_file(path) as file:
            return file.read(HEAD_BYTES)
    except (OSError, ValueError) as error:
        raise NotReadable(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def _is_trace(path: Path) -> bool:
    """Whether a reader knows the content. What `vtune -report` printed is known, and is no trace."""
    try:
        head = _head(path)
        reader = _reader_of(path, head)
        return reader is not None and not (
            reader.name == "vtune" and import_module("opspan.readers.vtune").is_report(path, head)
        )
    except ReadError:
        return False


def _not_a_trace(path: Path, head: bytes) -> str:
    """What the path is, and what was probably meant."""
    if path.is_dir():
        return _not_a_trace_folder(path)
    found = _unknown.guess(path, head)
    if (writer := writer_of(path)) is not None:
        return f"{path} is {found.what}, and {writer} still writes it; wait until that has ended"
    part_of = _nearby.around(path, _is_folder_of_parts) if found.may_be_part else []
    if part_of:
        return f"{path} is {found.what}, a part of a trace: {_nearby.did_you_mean(part_of)}"
    return _unknown.shown(found, path)


def _not_a_trace_folder(path: Path) -> str:
    names = sorted(entry.name for entry in islice(path.iterdir(), _nearby.ENTRIES))
    if not names:
        return f"{path} is an empty folder; a profiler has written nothing there: record again"
    what = f"{path} is a folder with {listed(names, most=3)}"
    if part_of := _nearby.around(path, _is_folder_of_parts):
        return f"{what}, a part of a trace: {_nearby.did_you_mean(part_of)}"
    if found := _nearby.inside(path, _is_trace):
        return f"{what}, and is no trace itself: {_nearby.did_you_mean(found)}"
    return f"{what}, and no trace is in it; expected what a profiler wrote; `opspan table --help` says of which"


def _is_folder_of_parts(path: Path) -> bool:
    """Whether files that lie somewhere in the folder are parts of one trace, and not others beside it."""
    return _is_trace(path) and not named("capture").sniff(path, b"")
