"""Temporary folders that go when their process does; those of a process that was killed go at the next use.

A folder's name says which process it is of, and that process holds a lock on it. Both must be gone: a process of
another container is not seen by its number, and one that became a daemon may have closed its locks.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass
class _Claim:
    path: Path
    lock: int  # descriptor
    owner: int  # process

    def release(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)


_home: _Claim | None = None  # what this process' temporary folders are in: one lock for all of them


def folder(prefix: str) -> Path:
    """A new temporary folder, until `remove` or the end of the process."""
    global _home
    if _home is None or _home.owner != os.getpid() or not _home.path.is_dir():
        _home = _claim(Path(tempfile.gettempdir()), prefix)
        atexit.register(_release_home, os.getpid())
    return Path(tempfile.mkdtemp(prefix="", dir=_home.path))


def remove(path: Path) -> None:
    """A folder that `folder` gave."""
    shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):  # the process has others
        path.parent.rmdir()
        _release_home(os.getpid())


@contextlib.contextmanager
def claimed(parent: Path, prefix: str, keep_failed: bool = False) -> Iterator[Path]:
    """A folder in `parent` for as long as the `with` lasts; `keep_failed`: after an exception, until the next use."""
    claim = _claim(parent, prefix)
    try:
        yield claim.path
    except BaseException:
        if keep_failed:
            os.close(claim.lock)
        else:
            claim.release()
        raise
    claim.release()


def _release_home(owner: int) -> None:
    global _home
    # A fork must not take its parent's recordings away.
    if _home is not None and _home.owner == owner == os.getpid():
        _home.release()
        _home = None


def _claim(parent: Path, prefix: str) -> _Claim:
    _sweep(parent, prefix)
    while True:
        path = Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=parent))
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with contextlib.suppress(OSError):  # a file system without locks: then the number has to do
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.is_dir():  # nobody swept it in between
            return _Claim(path, lock, os.getpid())
        os.close(lock)


def _sweep(parent: Path, prefix: str) -> None:
    try:
        names = [entry.name for entry in os.scandir(parent) if entry.name.startswith(prefix)]
    except OSError:
        return
    for name in names:
        owner = name[len(prefix) :].split("-")[0]
        if owner.isascii() and owner.isdigit() and not is_alive(int(owner)):
            _remove_unlocked(parent / name)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass
    return True


def _remove_unlocked(path: Path) -> None:
    try:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # another user's, or gone
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    except OSError:
        pass
    finally:
        os.close(lock)
