"""Writes a file in pieces, which several threads make in parallel. The file is gzipped if its name ends with .gz.

A piece may be an iterator of bytes; each item is valid only until the next item is requested. Only a few pieces are in
memory at a time. A gzipped file is one stream, because some viewers read only the first of several streams.
Each piece is compressed without knowledge of the pieces before it, which makes the file only a little larger. Each
piece ends at a whole byte, so that the next piece can follow.
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
Bytes = bytes | memoryview
Piece = Bytes | Iterator[Bytes]
WORKERS = min(len(os.sched_getaffinity(0)), 8)
_LEVEL = 6
# The gzip header of RFC 1952: deflate, without a name and a time, from an unknown system.
_HEAD = b"\x1f\x8b\x08" + bytes(6) + b"\xff"


def write(path: Path, makers: Iterable[Callable[[], Piece]]) -> None:
    with path.open("wb") as file:
        if path.suffix.lower() != ".gz":
            for piece in _results(makers):
                file.writelines(_bytes(piece))
            return
        check = size = 0
        file.write(_HEAD)
        for plain, packed in _results(_packed(maker) for maker in makers):
            check = zlib.crc32(plain, check)
            size += len(plain)
            file.write(packed)
        file.write(_compressor().flush() + struct.pack("<LL", check, size & 0xFFFFFFFF))


def _results(makers: Iterable[Callable[[], T]]) -> Iterator[T]:
    waiting: deque[Future[T]] = deque()
    with ThreadPoolExecutor(WORKERS) as pool:
        for maker in makers:
            waiting.append(pool.submit(maker))
            if len(waiting) > WORKERS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _bytes(piece: Piece) -> Iterable[Bytes]:
    return (piece,) if isinstance(piece, bytes | memoryview) else piece


def _packed(maker: Callable[[], Piece]) -> Callable[[], tuple[bytes, bytes]]:
    def make() -> tuple[bytes, bytes]:
        plain, compressor = b"".join(map(bytes, _bytes(maker()))), _compressor()
        return plain, compressor.compress(plain) + compressor.flush(zlib.Z_SYNC_FLUSH)

    return make


def _compressor() -> zlib._Compress:
    return zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
