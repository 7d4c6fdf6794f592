"""Opens an SQLite file without changing the file or its folder. If that is impossible, the error says why.

The header of an SQLite file has these bytes:

0-15     'SQLite format 3\\0'
16-17    the page size; 1 means 65536
18, 19   1 if the file uses a rollback journal, 2 if it uses a write-ahead log
24-27    the number of changes of the file so far
28-31    the number of pages
92-95    the number of changes at the time when the number of pages was written
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

from opspan.errors import NotATrace, NotReadable, Truncated
from opspan.files import copy_file, open_file, temporary_folder

MAGIC = b"SQLite format 3\0"
HEADER_BYTES = 100
WAL = 2
# A journal ends with these bytes if it names another journal, because a transaction spanned several databases. Rolling
# the journal back would delete the file that it names, which may be any file.
NAMES_ANOTHER = bytes.fromhex("d9d505f920a163d7")


def is_sqlite(head: bytes) -> bool:
    return head.startswith(MAGIC)


def stamp(path: Path) -> tuple[int, int, bytes]:
    """Returns values that change whenever the file changes: its size, its modification time and its first bytes, which
    contain SQLite's count of changes."""
    try:
        with open_file(path) as stream:
            facts = os.fstat(stream.fileno())
            return facts.st_size, facts.st_mtime_ns, stream.read(HEADER_BYTES)
    except OSError as error:
        raise NotReadable(f"cannot read {path}: {error.strerror}; expected an SQLite file") from error


def read_only_uri(path: Path, stack: ExitStack) -> tuple[str, bool]:
    """Returns a URI, and whether the URI leads to a copy of the file. Opening the URI changes neither the file nor its
    folder."""
    size, _, head = stamp(path)
    if not is_sqlite(head):
        problem = "is empty" if not size else "does not begin as one"
        raise NotATrace(f"{path} is not a SQLite file: it {problem}; expected the bytes 'SQLite format 3'")
    journals = [other for suffix in ("-wal", "-journal") if (other := _beside(path, suffix)) is not None]
    if not journals:
        _check_size(path, size, head)
        # For a file in WAL mode, SQLite creates -wal and -shm files, unless the URI has immutable=1. With immutable=1
        # SQLite ignores a write-ahead log, which is safe, because this file has none.
        uri = _as_uri(path, "immutable=1" if len(head) > 19 and head[19] == WAL else "mode=ro")
        return uri, False
    return _as_uri(_copy(path, journals, stack.enter_context(temporary_folder("opspan-copy-"))), "mode=rw"), True


def _beside(path: Path, suffix: str) -> Path | None:
    other = path.with_name(path.name + suffix)
    try:
        # SQLite itself would open any kind of file, even a FIFO, and wait for a writer.
        with open_file(other) as stream:
            return other if os.fstat(stream.fileno()).st_size else None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NotReadable(f"{path} has a {other.name!r} beside it that cannot be read: {error.strerror}") from error


def _copy(path: Path, journals: Sequence[Path], folder: Path) -> Path:
    files = [path, *journals]
    try:
        before = [stamp(file) for file in files]
        for file in files:
            copy_file(file, folder / file.name)
    except OSError as error:
        raise NotReadable(
            f"{path} has a journal beside it and must be copied to {folder} to be read: {error.strerror or error}"
        ) from error
    if [stamp(file) for file in files] != before:
        raise NotReadable(f"{path} is being written by another program. Wait until that program has ended")
    for file in journals:
        if _ends_with(folder / file.name, NAMES_ANOTHER):
            raise NotReadable(
                f"{file} is the journal of a transaction over several databases, which only whoever wrote it can roll "
                f"back; open {path} with its own tool, or export it again"
            )
    return folder / path.name


def _ends_with(path: Path, what: bytes) -> bool:
    with open_file(path) as stream:
        stream.seek(-min(len(what), path.stat().st_size), os.SEEK_END)
        return stream.read() == what


def _check_size(path: Path, size: int, head: bytes) -> None:
    if len(head) < HEADER_BYTES:
        raise Truncated(f"{path} ends within the header of an SQLite file, after {size} bytes; copy or export it again")
    page_bytes = struct.unpack_from(">H", head, 16)[0]
    page_bytes = 65536 if page_bytes == 1 else page_bytes
    changes, pages = struct.unpack_from(">2I", head, 24)
    # As in SQLite, the number of pages is valid only if both counts of changes are equal.
    if changes == struct.unpack_from(">I", head, 92)[0] and pages * page_bytes > size:
        raise Truncated(
            f"{path} was cut off: {size:,} bytes of {pages * page_bytes:,} are there, and what is there cannot be "
            "trusted; copy or export it again"
        )


def _as_uri(path: Path, option: str) -> str:
    return f"file:{quote(os.fsencode(path.absolute()))}?{option}"
