"""What `opspan attach` and a process that listens say to each other: a line of JSON each way, through a Unix socket.

    {"folder": "/tmp/out", "steps": 3, "seconds": 60.0, "shapes": true, ...}      asked, once, when the socket is open
    {"file": "/tmp/out/12-3.opspan", "steps": 3, "ranges": 1234, "notes": [], "ended": false}     the answer
    {"error": "one sentence"}                                                     or this

Who asked ends the recording early by closing its half of the socket. Neither side believes the other: a line has an
end and a limit, each of its fields the type that it should have, and the system says which process and user it is of.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import time
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, TypeVar

from opspan.errors import EmitError

SOCKET: Final = "opspan.sock"  # in a folder that is the user's alone
LONGEST: Final = 64 * 1024
MOST_SECONDS: Final = 86_400.0
MOST_STEPS: Final = 1_000_000
_CREDENTIALS = struct.Struct("3i")

S = TypeVar("S", "Asked", "Answer")


@dataclass(frozen=True)
class Asked:
    folder: str  # absolute; the process that listens may stand elsewhere
    steps: int  # to record; 0: as long as `seconds` says
    seconds: float  # at most
    shapes: bool
    stacks: bool
    memory: bool
    modules: bool
    devices: bool  # where the process uses some


@dataclass(frozen=True)
class Answer:
    file: str
    steps: int  # that were recorded from begin to end
    ranges: int
    notes: list[str]  # what is not as it was asked for
    ended: bool = False  # the program did, before all was recorded that was asked for


_TYPES: Final[dict[str, type]] = {"str": str, "int": int, "float": float, "bool": bool, "list[str]": list}


def line_of(said: Asked | Answer | EmitError) -> bytes:
    data = {"error": str(said)} if isinstance(said, EmitError) else asdict(said)
    line = json.dumps(data).encode() + b"\n"
    return line if len(line) <= LONGEST else line_of(EmitError(f"there is too much to say ({len(line):,} bytes)"))


def asked_of(line: bytes) -> Asked:
    asked = _checked(Asked, _object(line))
    if not asked.folder.startswith("/") or "\0" in asked.folder:
        raise EmitError("the folder to record into is to be an absolute path")
    if not 0 <= asked.steps <= MOST_STEPS or not 0 < asked.seconds <= MOST_SECONDS:
        raise EmitError(f"{asked.steps} steps and {asked.seconds} s cannot be recorded")
    return asked


def answer_of(line: bytes) -> Answer:
    """Or the error that it answers."""
    data = _object(line)
    if set(data) == {"error"} and isinstance(data["error"], str):
        raise EmitError(data["error"])
    return _checked(Answer, data)


def _object(line: bytes) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise EmitError(f"what was said is no JSON object: {line[:80]!r}")
    return data


def _checked(kind: type[S], data: dict[str, Any]) -> S:
    wanted = {field.name: _TYPES[str(field.type)] for field in fields(kind)}
    right = set(data) == set(wanted) and all(type(data[name]) is type_ for name, type_ in wanted.items())
    if not right or not all(isinstance(note, str) for note in data.get("notes", [])):
        raise EmitError("what was said has other fields than expected: use one version of opspan on both sides")
    return kind(**data)


def read_line(connection: socket.socket, seconds: float) -> bytes:
    """Up to its end. EmitError where none comes in time, or one that is too long; b"" where the other side closed."""
    until, line = time.monotonic() + seconds, b""
    while not line.endswith(b"\n"):
        connection.settimeout(max(until - time.monotonic(), 0.001))
        try:
            part = connection.recv(LONGEST)
        except TimeoutError:
            raise EmitError(f"nothing was said for {seconds:.0f} s") from None
        except ConnectionError:
            part = b""
        if not part:
            return b""
        line += part
        if len(line) > LONGEST:
            raise EmitError(f"more was said than the {LONGEST:,} bytes that are expected")
    return line


def send(connection: socket.socket, line: bytes) -> None:
    """To somebody who may have gone. A signal of that must not end the program that we are in."""
    with contextlib.suppress(OSError):
        connection.settimeout(5)
        while line:
            line = line[connection.send(line, socket.MSG_NOSIGNAL) :]


def peer(connection: socket.socket) -> tuple[int, int]:
    """The process and the user at the other end, as the system says."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user, _ = _CREDENTIALS.unpack(found)
    return pid, user
