"""Which readers there are, and which one a path is for: decided by content, never by the name of a file.

A reader is a module of this package with `sniff(path, head) -> bool` and `read(path) -> Trace`; with `read_part(path,
window)` too, where it can read a part in no more memory than that needs. A new one is a file and a line here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from opspan.errors import NotATrace, NotReadable, UsageError
from opspan.printable import listed
from opspan.readers._room import check_room
from opspan.trace import Trace
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


def read(reader: Reader, path: Path, window: Window | None = None) -> Trace:
    """The trace, or what overlaps the window. Refused where it would surely take more memory than there is."""
    if window is not None and (read_part := reader.read_part) is not None:
        return read_part(path, window)
    check_room(path, reader.memory, has_parts=reader.read_part is not None)
    trace = reader.read(path)
    return trace if window is None else cut(trace, window)


def reader_for(path: Path, source: str | None = None) -> Reader:
    """The reader named, else the one that knows the content."""
    head = _head(path)
    if source is not None:
        return named(source)
    for reader in READERS:
        if reader.sniff(path, head):
            return reader
    known = "; ".join(reader.reads for reader in READERS)
    raise NotATrace(f"{path} is {describe(path, head)}; opspan reads {known}")


def named(source: str) -> Reader:
    for reader in READERS:
        if reader.name == source:
            return reader
    raise UsageError(f"no reader is called {source!r}; there are {', '.join(reader.name for reader in READERS)}")


def sniffed(path: Path, source: str) -> bool:
    """Whether the reader of that name knows the content."""
    return named(source).sniff(path, _head(path))


def _head(path: Path) -> bytes:
    """The first bytes of a file; none of a folder."""
    try:
        if path.is_dir():
            next(path.iterdir(), None)
            return b""
        if path.exists() and not path.is_file():
            raise NotReadable(f"{path} is neither a file nor a folder")
        with path.open("rb") as file:
            return file.read(HEAD_BYTES)
    except (OSError, ValueError) as error:
        raise NotReadable(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


MAGICS = (
    (b"SQLite format 3\0", "a SQLite database"),
    (b"\x1f\x8b", "a gzip file"),
    (b"PK\x03\x04", "a zip file"),
    (b"PAR1", "a Parquet file"),
    (b"ARROW1", "an Arrow file"),
    (b"\x7fELF", "a program or library"),
    (b"<?xml", "an XML file"),
    (b"BZh", "a bzip2 file"),
    (b"\x28\xb5\x2f\xfd", "a zstd file"),
    (b"\xfd7zXZ", "an xz file"),
)


def describe(path: Path, head: bytes) -> str:
    """What an unknown path seems to be, for a person who expected a trace."""
    if path.is_dir():
        return _describe_folder(path)
    if not head:
        return "an empty file"
    for magic, what in MAGICS:
        if head.startswith(magic):
            return what if what != "a SQLite database" else _describe_database(path)
    if not head.strip(b"\0"):
        return "a file that begins with zeros: its writer may have been killed before it wrote anything"
    text = head.decode("utf-8", "ignore")
    if len(text.encode()) >= len(head) - 3 and all(char.isprintable() or char in "\r\n\t\ufeff" for char in text):
        begins = text.lstrip("\ufeff \r\n\t")
        return "a JSON file" if begins[:1] in ("{", "[") else f"text that begins {begins.split(chr(10))[0][:40]!r}"
    return f"binary data that begins {head[:8].hex(' ')}"


def _describe_folder(path: Path) -> str:
    names = sorted(entry.name for entry in path.iterdir())
    if not names:
        return "an empty folder"
    return f"a folder with {listed(names, most=3)}"


def _describe_database(path: Path) -> str:
    import sqlite3

    try:
        # Read-only and immutable: not even a journal appears beside the user's file.
        with sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True) as connection:
            rows = connection.execute("select name from sqlite_master where type = 'table' order by name limit 4")
            names = [str(name) for (name,) in rows]
    except sqlite3.Error as error:
        return f"a SQLite database that cannot be opened ({error})"
    if not names:
        return "a SQLite database without tables"
    return f"a SQLite database with tables {listed(names[:3])}{' ...' if len(names) > 3 else ''}"
