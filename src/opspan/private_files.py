"""Handles files that only this user may change: the cache, temporary folders, locks, and unfinished results.

This module writes every file whose name opspan itself chooses. So other users of a shared machine cannot put a link, a
pipe or a library where opspan is about to write or to load. docs/security.md says what opspan guarantees.

The name of a temporary folder contains the process id and cannot be guessed. The process locks the folder, and deletes
it at the end. The folder of a killed process is deleted later, if the process does not exist and the folder is not
locked. Both are checked, because processes of other containers are not visible here, and a daemon may have closed its
locks.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import grp
import os
import pwd
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

CACHE = "OPSPAN_CACHE_DIR"
_UNFINISHED = ".opspan-unfinished-"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
# O_NONBLOCK is necessary, because somebody may have put a pipe at the path, and opening a pipe would block.
_AS_IT_IS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# Maximum number of links to follow. The kernel has the same limit.
_MOST_LINKS = 40
# Errors that mean that the file system cannot make hard links, or cannot make this one.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EINVAL, errno.EXDEV)


# --- the cache, and checks that only this user can change it


def cache_folder() -> Path:
    """Returns the folder of the cache. Raises OSError if no environment variable names it and no home folder exists."""
    chosen = os.environ.get(CACHE)
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "opspan"
    except RuntimeError:  # HOME is not set and the user id is not known, which is common in containers
        raise FileNotFoundError(errno.ENOENT, "this user has no home folder", "~/.cache/opspan") from None


def kept_folder(path: Path, mode: int = 0o755) -> Path:
    """Makes the folder if it is missing. Returns its path without links. Raises PermissionError if others could change
    the folder."""
    path = Path(os.path.realpath(path))
    missing = [folder for folder in path.parents if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=0o755, exist_ok=True)
    path.mkdir(mode=mode, exist_ok=True)
    return check_folder(path)


def check_folder(path: Path) -> Path:
    """Returns the folder's path without links. Raises PermissionError if others could change the contents or replace
    the folder."""
    path = Path(os.path.realpath(path))
    wrong = _why_not_ours(path, path.stat())
    for folder in path.parents if wrong is None else ():
        wrong = wrong or _why_not_ours(folder, folder.stat(), is_above=True)
    if wrong is not None:
        raise PermissionError(wrong)
    return path


def opened(path: Path) -> int:
    """Opens a file for reading, and returns its descriptor. Raises PermissionError if users other than this one and
    root own the file or may write it. The checks apply to the descriptor, so the file that is read is the one that was
    checked."""
    descriptor = _plain_file(path, os.O_RDONLY)
    wrong = _why_not_ours(path, os.fstat(descriptor))
    if wrong is not None:
        os.close(descriptor)
        raise PermissionError(wrong)
    return descriptor


def path_of(descriptor: int, path: Path) -> str:
    """Returns a path that opens the descriptor's file, even if the file was moved. Without /proc, returns `path`, and
    raises OSError if another file has that path now."""
    name = f"/proc/self/fd/{descriptor}"
    if os.path.exists(name):  # noqa: PTH110  # `name` is always a text
        return name
    if not os.path.samestat(os.fstat(descriptor), path.stat()):
        raise FileNotFoundError(errno.ENOENT, "another file has taken its name, and there is no /proc", str(path))
    return str(path)


@contextlib.contextmanager
def locked(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Holds a lock that only one process can hold at a time. The kernel releases the lock when the process ends or is
    killed."""
    # Anybody may own the file, because it has no contents.
    descriptor = _plain_file(path, os.O_RDWR | os.O_CREAT)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _plain_file(path: Path, flags: int) -> int:
    try:
        descriptor = os.open(path, flags | _AS_IT_IS, 0o600)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise PermissionError(f"{path} is a link, which opspan did not make") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise PermissionError(f"{path} is no plain file")
    return descriptor


def _why_not_ours(path: Path, facts: os.stat_result, is_above: bool = False) -> str | None:
    """Returns why users other than this one and root could change the file, or None if they cannot. `is_above`: the
    path is a folder above the file."""
    owners = {0, os.geteuid()}
    if is_above and (unseen := _owner_of_the_unseen()) is not None:
        owners.add(unseen)
    if facts.st_uid not in owners:
        return f"{path} belongs to {_user(facts.st_uid)}"
    others = facts.st_mode & _OTHERS_WRITE
    if is_above and facts.st_mode & stat.S_ISVTX:
        others = 0  # in a folder with the sticky bit, such as /tmp, users cannot delete files of other users
    elif others == stat.S_IWGRP and _is_alone(facts.st_uid, facts.st_gid):
        others = 0
    return f"{path} can be written by others (chmod go-w mends that)" if others else None


def _owner_of_the_unseen() -> int | None:
    """Returns the user id that owns / and other system folders in a container that does not map root, or None."""
    try:
        if any(int(line.split()[1]) == 0 for line in _lines("/proc/self/uid_map")):
            return None
        return int(_lines("/proc/sys/kernel/overflowuid")[0])
    except (OSError, ValueError, IndexError):
        return None


def _lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="ascii").splitlines()


def _is_alone(user: int, group: int) -> bool:
    """Returns whether the user is the only member of the group. Many systems create such a group for each user, so its
    write permission is harmless. Returns False for root, because root's group does not list all its members."""
    if user == 0:
        return False
    try:
        name, entry = pwd.getpwuid(user).pw_name, grp.getgrgid(group)
    except KeyError:
        return False
    return entry.gr_name == name and set(entry.gr_mem) <= {name}


def _user(number: int) -> str:
    try:
        return f"user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"user {number}"


# --- results, which become visible only when they are complete


@contextlib.contextmanager
def unfinished(target: Path, *, overwrite: bool) -> Iterator[Path]:
    """Provides a path to write a file or folder to. At the end of the `with` block, the result becomes `target`. After
    an exception the result is deleted.

    The path has the target's name, in a new folder next to the target. Only this process uses the folder, so it may
    also hold other files, such as a database's journal. Raises FileExistsError if the target exists at the end and
    `overwrite` is false.

    The new file or folder gets the mode of the one that it replaces. If the target is a link, the file that the link
    points to is replaced. If the target is a FIFO or a device (/dev/null), the result is written into it.
    """
    is_sent = is_stream(target)
    real = _behind_links(target) if overwrite and not is_sent else target
    with claimed(None if is_sent else real.parent, _UNFINISHED) as folder:
        path = folder / target.name
        yield path
        if is_sent:
            _send(path, target)
            return
        _keep_mode(path, real)
        if path.is_dir():
            _bring_folder(path, real, overwrite)
        else:
            _bring_file(path, real, overwrite)


def is_stream(path: Path) -> bool:
    """Returns whether the path is a FIFO or a device that results can be written into. Raises OSError if the path is a
    disk or a socket."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116
    except OSError:
        return False
    if stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
        what = "a socket" if stat.S_ISSOCK(mode) else "a disk"
        raise OSError(errno.EINVAL, f"it is {what}; expected a file", os.fspath(path))
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)


def _send(path: Path, target: Path) -> None:
    try:
        # With O_NONBLOCK, opening a FIFO without a reader raises an error instead of blocking the program.
        descriptor = os.open(target, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise OSError(errno.ENXIO, "nobody reads from it", os.fspath(target)) from None
    with os.fdopen(descriptor, "wb") as stream, path.open("rb") as content:
        os.set_blocking(descriptor, True)
        shutil.copyfileobj(content, stream)


def _behind_links(target: Path) -> Path:
    """Returns the path itself, or the path that a link points to. Raises PermissionError if another user made the link,
    because that user could choose which file is replaced."""
    path = target
    for _ in range(_MOST_LINKS):
        if not path.is_symlink():
            return path
        if path.lstat().st_uid not in {0, os.geteuid(), _owner_of_the_unseen()}:
            raise PermissionError(errno.EPERM, "it is a link that another user made", os.fspath(path))
        path = path.parent / path.readlink()
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(target))


def _keep_mode(path: Path, target: Path) -> None:
    """Gives the new file the mode of the file that it replaces, and also the owner if this user is root."""
    try:
        facts = target.lstat()
    except OSError:
        return  # there is no file to replace
    if stat.S_ISLNK(facts.st_mode):
        return
    if os.geteuid() == 0:
        with contextlib.suppress(OSError):  # some file systems have no owners
            os.chown(path, facts.st_uid, facts.st_gid)
    # A folder can be moved only if this user may write in it.
    path.chmod(facts.st_mode & 0o777 | (0o700 if path.is_dir() else 0))


def _bring_file(path: Path, target: Path, overwrite: bool) -> None:
    if overwrite:
        path.replace(target)
        return
    try:
        os.link(path, target, follow_symlinks=False)  # unlike a rename, a link fails if the target exists
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from None
        path.rename(target)


def _bring_folder(path: Path, target: Path, overwrite: bool) -> None:
    for number in count():
        try:
            path.rename(target)  # fails if the target is a file, or a folder that is not empty
            return
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise
            if not overwrite:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from None
        with contextlib.suppress(FileNotFoundError):  # another process that writes the same target has moved it already
            target.rename(path.with_name(f"replaced-{number}"))


# --- temporary folders


class _Claim(NamedTuple):
    path: Path
    lock: int  # the descriptor of the folder; the process holds a lock on it
    owner: int  # the pid of the process that made the folder

    def release(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)


# The folder that contains all temporary folders that `folder` made, so that these folders need only one lock.
_home: _Claim | None = None


def folder(prefix: str) -> Path:
    """Returns a new temporary folder, which exists until `remove` or the end of the process."""
    global _home
    if _home is None or _home.owner != os.getpid() or not _home.path.is_dir():
        _home = _claim(Path(tempfile.gettempdir()), prefix)
        atexit.register(_release_home, os.getpid())
    return Path(tempfile.mkdtemp(prefix="", dir=_home.path))


def remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):  # fails if the process has other temporary folders
        path.parent.rmdir()
        _release_home(os.getpid())


@contextlib.contextmanager
def claimed(parent: Path | None, prefix: str) -> Iterator[Path]:
    """Provides a temporary folder in `parent`, or in the system's temporary folder, during the `with` block."""
    claim = _claim(Path(tempfile.gettempdir()) if parent is None else parent, prefix)
    try:
        yield claim.path
    finally:
        claim.release()


def _release_home(owner: int) -> None:
    global _home
    # A forked process must not delete the folders of its parent.
    if _home is not None and _home.owner == owner == os.getpid():
        _home.release()
        _home = None


def _claim(parent: Path, prefix: str) -> _Claim:
    while True:
        path = Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=parent))
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _AS_IT_IS)
        except FileNotFoundError:  # a process in another container deleted the folder before it was locked
            continue
        except OSError:
            path.rmdir()
            raise
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # another process is deleting the folder
            os.close(lock)
            continue
        except OSError:  # the file system has no locks, so only the pid in the name protects the folder
            pass
        if path.is_dir():  # false if another process deleted the folder before it was locked
            _sweep(parent, prefix, os.fstat(lock).st_uid)
            return _Claim(path, lock, os.getpid())
        os.close(lock)


def _sweep(parent: Path, prefix: str, user: int) -> None:
    """Deletes this user's temporary folders whose processes were killed."""
    try:
        names = [entry.name for entry in os.scandir(parent) if entry.name.startswith(prefix)]
    except OSError:
        return
    for name in names:
        owner = name[len(prefix) :].split("-")[0]
        if owner.isascii() and owner.isdigit() and not is_alive(int(owner)):
            _remove_unlocked(parent / name, user)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass
    return True


def _remove_unlocked(path: Path, user: int) -> None:
    try:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _AS_IT_IS)
    except OSError:  # the folder belongs to another user, or was deleted
        return
    try:
        if os.fstat(lock).st_uid == user:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
    except OSError:
        pass
    finally:
        os.close(lock)
