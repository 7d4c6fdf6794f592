"""Opens files that the user or another program named, without the risk of blocking the program.

A path may lead to a FIFO, a device or a socket instead of a file, especially if the path was found in a folder. Opening
a FIFO waits for a writer, and reading a device may never end.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO, cast

from opspan import private_files

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
# Signals that ask a process to end, and that a handler can catch.
_ENDING = (signal.SIGTERM, signal.SIGHUP)
_live: list[Path] = []  # temporary folders to delete if one of the signals in `_ENDING` comes


def open_file(path: str | os.PathLike[str], buffering: int = -1) -> IO[bytes]:
    """Opens a file for reading. Raises OSError if it is not a regular file."""
    # With O_NONBLOCK, opening a FIFO does not wait for a writer. The flag has no effect on a regular file.
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        kind = stat.S_IFMT(os.fstat(number).st_mode)
        if kind == stat.S_IFDIR:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        if kind != stat.S_IFREG:
            raise OSError(errno.EINVAL, f"it is {_KINDS.get(kind, 'no file')}", os.fspath(path))
        return cast("IO[bytes]", os.fdopen(number, "rb", buffering))
    except BaseException:
        os.close(number)
        raise


@contextmanager
def named_file(path: str | os.PathLike[str]) -> Iterator[str]:
    """Opens a file and provides a path to the open file, for a library that opens files by path. This path is ASCII,
    and stays valid if the file is moved. On a system without /proc it is the file's original path."""
    with open_file(path) as stream:
        yield private_files.path_of(stream.fileno(), Path(path))


def exists(path: str | os.PathLike[str]) -> bool:
    """Returns whether a path exists. If this user may not search a folder in the path, returns False, whereas
    Path.exists raises an error. The caller opens the path later, and gets a better error then."""
    return os.path.exists(path)  # noqa: PTH110


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Returns whether the path is a folder. Like `exists`, it raises no error."""
    return os.path.isdir(path)  # noqa: PTH112


def check_folder(folder: Path) -> None:
    """Raises OSError if this user may not list the folder, or may not access its contents."""
    with os.scandir(folder) as entries:
        next(entries, None)
    try:
        os.stat(f"{os.fspath(folder)}/.")  # noqa: PTH116  # a Path has no dot at its end
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(folder)) from None


def size_on_disk(facts: os.stat_result) -> int:
    """Returns the size of a file in bytes without its holes. Limits use this size, because holes take no disk space."""
    return min(facts.st_size, facts.st_blocks * 512) if facts.st_blocks else facts.st_size


def copy_file(source: Path, target: Path) -> None:
    """Copies a file. The copy has the same holes."""
    with open_file(source, 0) as original, target.open("xb", 0) as copy:
        size, at = os.fstat(original.fileno()).st_size, 0
        while at < size:
            try:
                at = os.lseek(original.fileno(), at, os.SEEK_DATA)
                end = os.lseek(original.fileno(), at, os.SEEK_HOLE)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                break  # the rest of the file is a hole
            os.lseek(copy.fileno(), at, os.SEEK_SET)
            while at < end and (count := os.sendfile(copy.fileno(), original.fileno(), at, end - at)):
                at += count
            if at < end:
                break  # the file has become shorter
        copy.truncate(size)


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """Provides a temporary folder for a `with` block. Deletes the folder at the end of the block, or earlier if a
    signal ends the process."""
    with private_files.claimed(None, prefix) as folder:
        _live.append(folder)
        changed = [number for number in _ENDING if _takes(number)]
        try:
            yield folder
        finally:
            for number in changed:
                signal.signal(number, signal.SIG_DFL)
            _live.remove(folder)


def _takes(number: signal.Signals) -> bool:
    """Installs our handler for the signal, unless another handler exists or this is not the main thread. Returns
    whether the handler was installed."""
    if signal.getsignal(number) is not signal.SIG_DFL:
        return False
    try:
        signal.signal(number, _end)
    except ValueError:
        return False
    return True


def _end(number: int, _frame: FrameType | None) -> None:
    for folder in _live:
        shutil.rmtree(folder, ignore_errors=True)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
