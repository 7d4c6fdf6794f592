"""Files that may be compressed as a whole, as streams of what is in them. How much comes out of one is bounded."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, cast

from opspan.errors import ReadError

COMPRESSED: dict[bytes, Callable[[Path], IO[bytes]]] = {
    b"\x1f\x8b": lambda path: cast("IO[bytes]", gzip.GzipFile(path)),
    b"BZh": lambda path: cast("IO[bytes]", bz2.BZ2File(path)),
    b"\xfd7zXZ": lambda path: cast("IO[bytes]", lzma.LZMAFile(path)),  # noqa: SIM115 - closed where it is used
}
# All that those modules raise for a damaged file.
FAILURES = (zlib.error, lzma.LZMAError, EOFError, OSError, ValueError)

# Databases and traces shrink to a tenth or a thirtieth.
RATIO = 200
ALWAYS_ALLOWED = 64 << 20
LARGEST = 64 << 30
PART = 1 << 20


class TooMuch(ReadError):
    """More comes out of a compressed file than can be in one of its size."""

    def __init__(self) -> None:
        super().__init__("more comes out of it than can be in a file of its size")


class Bounded(io.RawIOBase):
    """A stream that ends with an error when more than so much has been read."""

    def __init__(self, stream: IO[bytes], limit: int) -> None:
        self._stream = stream
        self._left = limit

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        # What a damaged file still gives comes before its error: no more is asked for than is there at once.
        found: bytes = self._stream.read1(PART if size < 0 else size)  # type: ignore[attr-defined]  # all have it
        self._left -= len(found)
        if self._left < 0:
            raise TooMuch
        return found

    def close(self) -> None:
        self._stream.close()
        super().close()


def is_compressed(head: bytes) -> bool:
    return head.startswith(tuple(COMPRESSED))


def limit_of(path: Path) -> int:
    """How much may come out of the file."""
    return min(LARGEST, max(ALWAYS_ALLOWED, RATIO * path.stat().st_size))


def opened(path: Path, head: bytes, limit: int) -> Bounded:
    """The file's content, unpacked if it is compressed."""
    opener = next((opener for magic, opener in COMPRESSED.items() if head.startswith(magic)), None)
    return Bounded(opener(path) if opener else path.open("rb"), limit)
