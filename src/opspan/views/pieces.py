"""A file that is made in pieces, several at a time, and written in their order; gzipped if its name ends with .gz.

Only so many pieces as are being made are in memory. Gzipped, the file is one stream, for viewers that read no more than
the first of several: each piece is compressed without knowing the ones before it, which costs few bytes, and ends at a
whole byte, so that the next can follow.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
Piece = bytes | memoryview
WORKERS = min(len(os.sched_getaffinity(0)), 8)
_LEVEL = 6
# RFC 1952: deflate, no name, no time, of an unknown system.
_HEAD = b"\x1f\x8b\x08" + bytes(6) + b"\xff"


def write(path: Path, makers: Iterable[Callable[[], Piece]]) -> None:
    with path.open("wb") as file:
        if path.suffix.lower() != ".gz":
            for piece in _made(makers):
                file.write(piece)
            return
        check = size = 0
        file.write(_HEAD)
        for piece, packed in _made(_packed(maker) for maker in makers):
            check = zlib.crc32(piece, check)
            size += len(piece)
            file.write(packed)
        file.write(_compressor().flush() + struct.pack("<LL", check, size & 0xFFFFFFFF))


def _made(makers: Iterable[Callable[[], T]]) -> Iterator[T]:
    waiting: deque[Future[T]] = deque()
    with ThreadPoolExecutor(WORKERS) as pool:
        for maker in makers:
            waiting.append(pool.submit(maker))
            if len(waiting) > WORKERS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _packed(maker: Callable[[], Piece]) -> Callable[[], tuple[Piece, bytes]]:
    def make() -> tuple[Piece, bytes]:
        piece, compressor = maker(), _compressor()
        return piece, compressor.compress(piece) + compressor.flush(zlib.Z_SYNC_FLUSH)

    return make


def _compressor() -> zlib._Compress:
    return zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
