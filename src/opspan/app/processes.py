"""Reads /proc to find the owners and descendants of processes on this machine, and the sockets at which they wait for
`opspan attach`."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from opspan.emit.asking import SOCKET, peer
from opspan.errors import UsageError
from opspan.private_files import is_alive

_PROC = Path("/proc")
_LISTENS = 0x10000  # the flag of a listening socket, in the column Flags of /proc/PID/net/unix
_CONNECT_SECONDS = 5


def check(pid: int) -> None:
    """Raises UsageError if there is no such process, or if this process cannot attach to it."""
    check_exists(pid)
    try:
        # The line is `Uid: real effective ...`. The owner of the folder /proc/PID is not used, because it is root if a
        # process does not let others read its data.
        owner = int(_status(pid, "Uid:").split()[1])
        if owner != os.geteuid():
            raise _of_another(pid)
        namespace = (_PROC / str(pid) / "ns" / "mnt").stat().st_ino
    except FileNotFoundError:
        raise UsageError(f"process {pid} has just ended") from None
    except OSError as error:
        raise UsageError(
            f"the system does not let this process look into process {pid} ({error.strerror}): that one has other "
            "rights; in a container it takes the capability SYS_PTRACE"
        ) from None
    if namespace != (_PROC / "self" / "ns" / "mnt").stat().st_ino:
        raise UsageError(f"process {pid} sees other files than this one (a container): run opspan attach in there")


def check_exists(pid: int) -> None:
    """Raises UsageError if there is no such process, or if this user cannot see it."""
    if not (_PROC / "self").exists():
        raise UsageError("/proc is not mounted here, and processes are found by it: mount -t proc proc /proc")
    if not (_PROC / str(pid)).exists():
        # If /proc is mounted with hidepid, it hides the processes of other users.
        raise _of_another(pid) if is_alive(pid) else UsageError(f"there is no process {pid}")


def _status(pid: int, name: str) -> str:
    lines = (_PROC / str(pid) / "status").read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.removeprefix(name) for line in lines if line.startswith(name)), "")


def _of_another(pid: int) -> UsageError:
    return UsageError(f"process {pid} is another user's: who it belongs to may attach, and nobody else")


def descendants(pid: int) -> list[int]:
    """Returns `pid`, its children, their children and so on."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdecimal() and (parent := _parent(entry)) is not None:
            children.setdefault(parent, []).append(int(entry.name))
    family = [pid]
    for member in family:  # also visits the children that the loop itself appends to `family`
        family += sorted(children.get(member, []))
    return family


def _parent(process: Path) -> int | None:
    try:
        # The text is like `4242 (name) S 4241 ...`. The name may contain parentheses.
        return int((process / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):  # the process has just ended
        return None


def listens_at(pid: int) -> str | None:
    """Returns the path of the socket at which the process waits for `opspan attach`, or None. The socket counts only if
    the process has it open, because the file of a socket may be left from an earlier process."""
    process = _PROC / str(pid)
    try:
        lines = (process / "net" / "unix").read_text(encoding="utf-8", errors="surrogateescape").splitlines()[1:]
        ours: dict[str, str] = {}
        for line in lines:
            # The columns are Num RefCount Protocol Flags Type St Inode Path.
            columns = line.split(None, 7)
            if len(columns) == 8 and int(columns[3], 16) & _LISTENS and columns[7].endswith(f"/{SOCKET}"):
                ours[f"socket:[{columns[6]}]"] = columns[7]
        for descriptor in (process / "fd").iterdir() if ours else ():
            if (path := ours.get(_link(descriptor))) is not None:
                return path
    except (OSError, ValueError):
        return None
    return None


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""


def connect(pid: int, path: str) -> socket.socket:
    """Connects to the process. Raises UsageError if another process listens at that path."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(_CONNECT_SECONDS)
        connection.connect(path)
        credentials = peer(connection)
        if credentials != (pid, os.geteuid()):
            raise UsageError(f"at the socket of process {pid} listens process {credentials[0]}: attach to that one")
    except OSError as error:
        connection.close()
        raise UsageError(f"process {pid} does not answer at {path} ({error.strerror or error})") from error
    except BaseException:
        connection.close()
        raise
    return connection
