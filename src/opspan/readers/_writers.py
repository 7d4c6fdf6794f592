"""Finds another program that still writes to a file. Such a file may hold an incomplete or empty trace.

A lock of SQLite shows a writer on any operating system. Without a lock, Linux still tells which of the user's processes
have the file open for writing. Searching the processes takes milliseconds, so they are searched only if the file
changed recently or has an SQLite journal.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from pathlib import Path

from opspan.files import open_file

LATELY_S = 60
SQLITE = b"SQLite format 3\0"
# Offset and count of the bytes that SQLite's writers lock: PENDING and RESERVED in the database, WRITE in the -shm
# file.
IN_DATABASE = (0x40000000, 2)
IN_WAL = (120, 1)
_FLOCK = "hhqqi4x"


def writer_of(path: Path) -> str | None:
    """Returns the writer as text: 'python (process 4711)', or 'another program' if the process is unknown. Returns None
    if no program writes to the file."""
    try:
        if not path.is_file():
            return None
        facts = path.stat()
        journals = (_with(path, suffix) for suffix in ("-wal", "-journal"))
        has_journal = any(journal.is_file() and journal.stat().st_size > 0 for journal in journals)
        with open_file(path) as stream:
            is_database = stream.read(len(SQLITE)) == SQLITE
        if is_database:
            for suffix, span in (("", IN_DATABASE), ("-shm", IN_WAL)):
                if (pid := _locked(_with(path, suffix), span)) is not None:
                    return _program_of(pid)
        if not has_journal and time.time() - facts.st_mtime > LATELY_S:
            return None
    except OSError:
        return None  # ignored, because the reader of the file will raise the error
    return _open_for_writing(facts)


def _with(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _locked(path: Path, span: tuple[int, int]) -> int | None:
    """Returns the id of the process that locked these bytes, 0 if the id is unknown, or None without a lock."""
    try:
        with open_file(path) as stream:
            request = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, *span, 0)
            kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(stream, fcntl.F_GETLK, request))
    except OSError:
        return None
    return None if kind == fcntl.F_UNLCK else max(pid, 0)


def _open_for_writing(facts: os.stat_result) -> str | None:
    try:
        processes = os.listdir("/proc")  # noqa: PTH208, a Path for each file that is open takes ten times as long
    except OSError:  # /proc is not mounted
        return None
    for process in processes:
        if not process.isdigit() or int(process) == os.getpid():
            continue
        files = f"/proc/{process}/fd"
        try:
            numbers = os.listdir(files)  # noqa: PTH208
        except OSError:  # another user's process, or a process that has ended
            continue
        for number in numbers:
            try:
                opened = os.stat(f"{files}/{number}")  # noqa: PTH116
                if (opened.st_dev, opened.st_ino) == (facts.st_dev, facts.st_ino) and _writes(process, number):
                    return _program_of(int(process))
            except (OSError, ValueError):
                continue
    return None


def _writes(process: str, number: str) -> bool:
    text = Path("/proc", process, "fdinfo", number).read_text()
    flags = next(int(line.split()[1], 8) for line in text.splitlines() if line.startswith("flags:"))
    return bool(flags & (os.O_WRONLY | os.O_RDWR))


def _program_of(pid: int) -> str:
    try:
        name = Path("/proc", str(pid), "comm").read_text(errors="replace").strip() if pid else ""
    except OSError:
        name = ""
    return f"{ascii(name)[1:-1]} (process {pid})" if name else "another program"
