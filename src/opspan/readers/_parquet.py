"""Whether a Parquet file says of itself what its size allows, before a library believes it.

polars makes room for as many elements as a list of the footer says it has, and the process ends where there is none:
2 KB may ask for any number of gigabytes. The footer is Thrift's compact protocol, and is only stepped over here.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Final

import polars as pl

from opspan.errors import ReadError
from opspan.files import open_file, size_on_disk
from opspan.private_files import path_of
from opspan.readers._budget import FOOTER, ROWS

_MAGIC: Final = b"PAR1"
_END: Final = 8  # the footer's length, and the magic once more
_DEEPEST: Final = 64
_WIDTHS: Final = {1: 1, 2: 1, 3: 1, 7: 8, 13: 16}  # of elements of lists; as a field, a boolean is in its type
_VARINTS: Final = (4, 5, 6)
_BYTES, _LIST, _SET, _MAP, _STRUCT = 8, 9, 10, 11, 12


def check(path: Path) -> None:
    """Refuse what is no whole Parquet file, or says more of itself than a file of its size has."""
    with open_file(path) as file:
        _check_footer(file, path)
        rows = pl.scan_parquet(path_of(file.fileno())).select(pl.len()).collect().item()
        file_bytes = size_on_disk(os.fstat(file.fileno()))
    if rows > ROWS.allows(file_bytes):
        raise ROWS.passed(path, file_bytes)


def _check_footer(file: IO[bytes], path: Path) -> None:
    size = os.fstat(file.fileno()).st_size
    if size < len(_MAGIC) + _END:
        raise ReadError(f"{path} is no Parquet file: it has {size} bytes; copy it again")
    file.seek(size - _END)
    end = file.read(_END)
    length = int.from_bytes(end[:4], "little")
    if end[4:] != _MAGIC or length > size - len(_MAGIC) - _END:
        raise ReadError(f"{path} is a damaged Parquet file: its last bytes are not those of one; copy it again")
    if length > FOOTER.allows():
        raise FOOTER.passed(path)
    file.seek(size - _END - length)
    try:
        _Footer(file.read(length)).struct(0)
    except (ValueError, IndexError):
        raise ReadError(
            f"{path} is a damaged Parquet file: its footer says more than it holds; copy it again"
        ) from None


class _Footer:
    def __init__(self, raw: bytes) -> None:
        self._raw, self._at = raw, 0

    def struct(self, depth: int) -> None:
        while head := self._byte():
            if not head >> 4:  # the field's number is not that of the one before and some
                self._varint()
            if head & 15 not in (1, 2):
                self._value(head & 15, depth)

    def _value(self, kind: int, depth: int) -> None:
        if depth > _DEEPEST:
            raise ValueError(depth)
        if kind in _VARINTS:
            self._varint()
        elif kind in _WIDTHS:
            self._skip(_WIDTHS[kind])
        elif kind == _BYTES:
            self._skip(self._varint())
        elif kind in (_LIST, _SET):
            head = self._byte()
            self._values(self._varint() if head >> 4 == 15 else head >> 4, [head & 15], depth)
        elif kind == _MAP:
            count = self._varint()
            kinds = self._byte() if count else 0
            self._values(count, [kinds >> 4, kinds & 15], depth)
        elif kind == _STRUCT:
            self.struct(depth + 1)
        else:
            raise ValueError(kind)

    def _values(self, count: int, kinds: list[int], depth: int) -> None:
        if count > len(self._raw) - self._at:  # each has one byte at least
            raise ValueError(count)
        for _ in range(count):
            for kind in kinds:
                self._value(kind, depth + 1)

    def _byte(self) -> int:
        self._at += 1
        return self._raw[self._at - 1]

    def _varint(self) -> int:
        value, shift = 0, 0
        while (byte := self._byte()) & 128:
            value |= (byte & 127) << shift
            shift += 7
            if shift > 63:
                raise ValueError(shift)
        return value | byte << shift

    def _skip(self, count: int) -> None:
        self._at += count
        if self._at > len(self._raw):
            raise ValueError(count)
