"""The protocol between `opspan attach` and a listening process. Each side sends a line of JSON through a Unix socket.

    {"folder": "/tmp/out", "steps": 3, "seconds": 60.0, "shapes": true, ...}      the request, sent once
    {"file": "/tmp/out/12-3.opspan", "steps": 3, "ranges": 1234, "notes": [], "ended": false}     the reply
    {"error": "one sentence"}                                                     or an error instead

To end the recording early, the requester shuts down its sending half of the socket. Neither side trusts the other. So a
line has a limited length, its fields must have the right types, and each side asks the kernel for the user at the other
end.
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

SOCKET: Final = "opspan.sock"  # in a folder that only the user can enter
LONGEST: Final = 64 * 1024
MOST_SECONDS: Final = 86_400.0
MOST_STEPS: Final = 1_000_000
_CREDENTIALS = struct.Struct("3i")

S = TypeVar("S", "Request", "Reply")


@dataclass(frozen=True)
class Request:
    folder: str  # absolute, because the listening process may have another working directory
    steps: int  # how many steps to record; 0: record for `seconds`
    seconds: float  # the recording ends after this time at the latest
    shapes: bool
    stacks: bool
    memory: bool
    modules: bool
    devices: bool  # whether to record the work of devices, if the process uses any


@dataclass(frozen=True)
class Reply:
    file: str
    steps: int  # how many steps were recorded from begin to end
    ranges: int
    notes: list[str]  # sentences that say how the recording differs from the request
    ended: bool = False  # whether the program ended before the requested steps or seconds were recorded


_TYPES: Final[dict[str, type]] = {"str": str, "int": int, "float": float, "bool": bool, "list[str]": list}


def line_of(message: Request | Reply | EmitError) -> bytes:
    data = {"error": str(message)} if isinstance(message, EmitError) else asdict(message)
    line = json.dumps(data).encode() + b"\n"
    return line if len(line) <= LONGEST else line_of(EmitError(f"there is too much to say ({len(line):,} bytes)"))


def request_of(line: bytes) -> Request:
    request = _checked(Request, _object(line))
    if not request.folder.startswith("/") or "\0" in request.folder:
        raise EmitError("the folder to record into is to be an absolute path")
    if not 0 <= request.steps <= MOST_STEPS or not 0 < request.seconds <= MOST_SECONDS:
        raise EmitError(f"{request.steps} steps and {request.seconds} s cannot be recorded")
    return request


def reply_of(line: bytes) -> Reply:
    """Returns the reply, or raises the error that was sent instead."""
    data = _object(line)
    if set(data) == {"error"} and isinstance(data["error"], str):
        raise EmitError(data["error"])
    return _checked(Reply, data)


def _object(line: bytes) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise EmitError(f"the line is not a JSON object: {line[:80]!r}")
    return data


def _checked(kind: type[S], data: dict[str, Any]) -> S:
    types = {field.name: _TYPES[str(field.type)] for field in fields(kind)}
    right = set(data) == set(types) and all(type(data[name]) is type_ for name, type_ in types.items())
    if not right or not all(isinstance(note, str) for note in data.get("notes", [])):
        raise EmitError("the line has other fields than expected: use one version of opspan on both sides")
    return kind(**data)


def read_line(connection: socket.socket, seconds: float) -> bytes:
    """Returns a line, including its line end, or b"" if the other side has closed the socket. Raises EmitError if the
    line takes too much time or is too long."""
    until, line = time.monotonic() + seconds, b""
    while not line.endswith(b"\n"):
        connection.settimeout(max(until - time.monotonic(), 0.001))
        try:
            part = connection.recv(LONGEST)
        except TimeoutError:
            raise EmitError(f"no answer within {seconds:.0f} s") from None
        except ConnectionError:
            part = b""
        if not part:
            return b""
        line += part
        if len(line) > LONGEST:
            raise EmitError(f"the line is longer than the {LONGEST:,} bytes that are expected")
    return line


def send(connection: socket.socket, line: bytes) -> None:
    """Sends a line. If the other side is gone, there is neither an error nor a SIGPIPE."""
    with contextlib.suppress(OSError):
        connection.settimeout(5)
        while line:
            line = line[connection.send(line, socket.MSG_NOSIGNAL) :]


def peer(connection: socket.socket) -> tuple[int, int]:
    """Returns the process and the user at the other end, as the kernel reports them."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user, _ = _CREDENTIALS.unpack(credentials)
    return pid, user
