"""A file that is made in pieces, several at a time, and written in their order; gzipped if its name ends with .gz.

A piece may be made while it is written, some bytes at a time, which are there until the next are asked for. Only so
many pieces as are being made are in memory. Gzipped, the file is one stream, for viewers that read no more than the
first of several: each piece is compressed without knowing the ones before it, which costs few bytes, and ends at a
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
Bytes = bytes | memoryview
Piece = Bytes | Iterator[Bytes]
WORKERS = min(len(os.sched_getaffinity(0)), 8)
_LEVEL = 6
# RFC 1952: deflate, no name, no time, of an unknown system.
_HEAD = b"\x1f\x8b\x08" + bytes(6) + b"\xff"


def write(path: Path, makers: Iterable[Callable[[], Piece]]) -> None:
    with path.open("wb") as file:
        if path.suffix.lower() != ".gz":
            for piece in _made(makers):
                for some in _bytes(piece):
                    file.write(some)
            return
        check = size = 0
        file.write(_HEAD)
        for whole, packed in _made(_packed(maker) for maker in makers):
            check = zlib.crc32(whole, check)
            size += len(whole)
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


def _bytes(piece: Piece) -> Iterable[Bytes]:
    return (piece,) if isinstance(piece, bytes | memoryview) else piece


def _packed(maker: Callable[[], Piece]) -> Callable[[], tuple[bytes, bytes]]:
    def make() -> tuple[bytes, bytes]:
        whole, compressor = b"".join(map(bytes, _bytes(maker()))), _compressor()
        return whole, compressor.compress(whole) + compressor.flush(zlib.Z_SYNC_FLUSH)

    return make


def _compressor() -> zlib._Compress:
    return zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
