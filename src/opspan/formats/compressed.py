"""Opens files that may be compressed, as streams of the unpacked content, and limits the size of that content."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, cast

from opspan.files import open_file, size_on_disk
from opspan.formats.budget import NO_LIMIT, UNPACKED

COMPRESSED: dict[bytes, Callable[[IO[bytes]], IO[bytes]]] = {
    b"\x1f\x8b": lambda packed: cast("IO[bytes]", gzip.GzipFile(fileobj=packed)),
    b"BZh": lambda packed: cast("IO[bytes]", bz2.BZ2File(packed)),
    b"\xfd7zXZ": lambda packed: cast("IO[bytes]", lzma.LZMAFile(packed)),  # noqa: SIM115 - closed where it is used
}
# All errors that gzip, bz2 and lzma raise for a damaged file.
FAILURES = (zlib.error, lzma.LZMAError, EOFError, OSError, ValueError)

PART = 1 << 20


def issue_of(failure: Exception) -> tuple[str, str]:
    """Returns the code and the detail of the issue for one of FAILURES."""
    if isinstance(failure, EOFError):
        return "truncated_file", "its compressed data ends early"
    return "damaged_file", f"its compressed data cannot be unpacked further: {failure}"


class UnpackedStream(io.RawIOBase):
    """The unpacked content of a file. Raises TooLarge if a compressed file unpacks to more bytes than are allowed."""

    def __init__(self, path: Path, packed: IO[bytes], stream: IO[bytes]) -> None:
        self._path, self._packed, self._stream = path, packed, stream
        self._bytes = size_on_disk(os.fstat(packed.fileno()))
        self._left = UNPACKED.allows(self._bytes) if stream is not packed else NO_LIMIT

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        # read1 returns the bytes that are ready. So the readable part of a damaged file is returned before the error
        # occurs.
        raw: bytes = self._stream.read1(PART if size < 0 else size)  # type: ignore[attr-defined]  # all streams have it
        self._take(len(raw))
        return raw

    def readinto(self, room: Any) -> int:
        count: int = self._stream.readinto1(room)  # type: ignore[attr-defined]  # all streams have it
        self._take(count)
        return count

    def _take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise UNPACKED.passed(self._path, self._bytes)

    def close(self) -> None:
        self._stream.close()
        self._packed.close()
        super().close()


def is_compressed(head: bytes) -> bool:
    return head.startswith(tuple(COMPRESSED))


def opened(path: Path, head: bytes) -> UnpackedStream:
    """Opens the file's content, unpacked if it is compressed."""
    opener = next((opener for magic, opener in COMPRESSED.items() if head.startswith(magic)), None)
    packed = open_file(path)
    return UnpackedStream(path, packed, opener(packed) if opener else packed)
