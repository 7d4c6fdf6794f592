"""Reads the bytes of a capture file, and its header.

Reads the file instead of mapping it into memory: if a mapped file became shorter, SIGBUS would end the process. Here,
missing units only become an issue.
"""

from __future__ import annotations

import dataclasses
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from opspan.capture_files import FACT_ENTRIES, MAGIC
from opspan.errors import NotATrace, NotReadable, TooNew, Truncated
from opspan.files import open_file, size_on_disk
from opspan.readers.capture import layout
from opspan.readers.capture.file import Header
from opspan.tables import processors
from opspan.tables.metadata import VARIABLES

HEADER = struct.Struct("<8s4I4q2IQ2I64s3072sq2I832s")


class CaptureBytes:
    """An open file, with the size that it had when it was opened. Bytes that a program appends later are ignored."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.missing = 0  # bytes that disappeared from the file after it was opened
        try:
            self._file = open_file(path, 0)
            facts = os.fstat(self._file.fileno())
            self.size, self.bytes = facts.st_size, size_on_disk(facts)
        except OSError as error:
            raise self._unreadable(error) from error

    def __enter__(self) -> CaptureBytes:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def header(self) -> Header:
        return _header(self.path, self.read(0, HEADER.size))

    def read(self, at: int, count: int) -> bytes:
        """Returns `count` bytes, or fewer at the end of the file."""
        buffer = bytearray(count)
        return bytes(buffer[: self.read_into(memoryview(buffer), at)])

    def read_into(self, buffer: memoryview, at: int) -> int:
        """Reads bytes into the buffer, and returns how many bytes were read. Bytes that the file lacks stay zero in the
        buffer, and zeros are an empty unit."""
        done, expected = 0, max(0, min(len(buffer), self.size - at))
        try:
            while done < expected and (some := os.preadv(self._file.fileno(), [buffer[done:expected]], at + done)):
                done += some
        except OSError as error:
            raise self._unreadable(error) from error
        self.missing += expected - done
        return done

    def _unreadable(self, error: OSError) -> NotReadable:
        return NotReadable(f"cannot read {self.path}: {error.strerror or error}")


def read_header(path: Path) -> Header:
    with CaptureBytes(path) as segment:
        return segment.header()


def _variables(raw: bytes) -> Iterator[tuple[str, str]]:
    for entry in raw.split(b"\0"):
        name, is_one, value = entry.decode("utf-8", "replace").partition("=")
        if is_one and (name in VARIABLES or name in FACT_ENTRIES or name in processors.NAMES):
            yield name, value


def join_headers(headers: Sequence[Header]) -> Header:
    """Returns the header of a whole file from the headers of its segments."""
    first, last = headers[0], headers[-1]
    return dataclasses.replace(
        first,
        close_monotonic_ns=last.close_monotonic_ns,
        close_utc_ns=last.close_utc_ns,
        state=layout.FULL if any(header.state == layout.FULL for header in headers) else last.state,
        lost=sum(header.lost for header in headers),
        environment=last.environment,  # opspan.record adds torch.distributed's rank when the recording ends
    )


def _header(path: Path, head: bytes) -> Header:
    if head[: len(MAGIC)] != MAGIC:
        problem = "is empty" if not head else "does not begin as one"
        raise NotATrace(f"{path} is not a capture: it {problem}; expected the bytes {MAGIC.decode()}")
    if len(head) >= 12 and (version := struct.unpack_from("<I", head, 8)[0]) > layout.VERSION:
        raise TooNew(
            f"{path} is a capture of version {version}; this opspan reads up to {layout.VERSION}: update opspan"
        )
    if len(head) < HEADER.size:
        raise Truncated(f"{path} ends within its header, after {len(head)} bytes: nothing can be read from it")
    _, _, _, pid, parent_pid, opened, opened_utc, closed, closed_utc, *others = HEADER.unpack(head)
    state, producer, lost, forked, _, host, command_line, session_ns, session_pid, segment, environment = others
    return Header(
        pid=pid,
        parent_pid=parent_pid,
        open_monotonic_ns=opened,
        open_utc_ns=opened_utc,
        close_monotonic_ns=closed,
        close_utc_ns=closed_utc,
        state=state,
        producer=producer,
        lost=lost,
        forked=bool(forked),
        host=name_of(host),
        arguments=tuple(part.decode("utf-8", "replace") for part in command_line.rstrip(b"\0").split(b"\0")),
        # Older writers store no session (0), so each of their files counts as a session of its own.
        session=(session_ns, session_pid) if session_ns else (opened, pid),
        segment=segment,
        environment=dict(_variables(environment)),
    )


def name_of(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode("utf-8", "replace")
