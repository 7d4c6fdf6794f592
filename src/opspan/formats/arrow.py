"""Checks the sizes that a file in Arrow's stream format states, before polars reads the file.

polars allocates as many bytes as a buffer claims to have, and the process ends if there is not enough memory. So this
module first checks the messages of the file. A message has a head, in Flatbuffers, and a body that the head describes.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from opspan.errors import ReadError
from opspan.files import open_file, size_on_disk
from opspan.formats.budget import FOOTER, PAGE, ROWS
from opspan.formats.counts import SAYS_MORE, within

_CONTINUES: Final = b"\xff\xff\xff\xff"
_DICTIONARY, _BATCH = 2, 3  # the kinds of messages that have a body
# Field numbers, by which Flatbuffers finds fields. The first line has those of a message, the second those of a batch
# of rows, and the third that of a dictionary's head.
_KIND, _HEADER, _BODY_BYTES = 1, 2, 3
_ROWS, _NODES, _BUFFERS, _COMPRESSION, _VIEWED = 0, 1, 2, 3, 4
_DATA = 1


def check(path: Path) -> None:
    """Raises an error if the stream is cut off, states sizes that its bytes cannot hold, or exceeds a limit."""
    with open_file(path) as stream:
        facts = os.fstat(stream.fileno())
        file_bytes = size_on_disk(facts)
        rows, longest = 0, 0
        try:
            for message, body_at in _messages(stream, facts.st_size, path):
                kind, header = message.number(_KIND, "B"), message.table(_HEADER)
                if kind == _DICTIONARY:
                    header = header.table(_DATA)
                if kind in (_DICTIONARY, _BATCH):
                    rows += _longest_column(header)
                    longest = max(longest, _longest_buffer(header, stream, body_at, message.number(_BODY_BYTES, "q")))
        except (struct.error, ValueError):
            raise ReadError(f"{path} is a damaged Arrow file: {SAYS_MORE}; copy it again") from None
    if rows > ROWS.allows(file_bytes):
        raise ROWS.passed(path, file_bytes)
    if longest > PAGE.allows(file_bytes):
        raise PAGE.passed(path, file_bytes)


def _messages(stream: IO[bytes], size: int, path: Path) -> Iterator[tuple[_Table, int]]:
    """Yields each message and the offset of its body."""
    at = 0
    while at < size:
        stream.seek(at)
        head = stream.read(4)
        if head == _CONTINUES:  # releases of Arrow before 0.15 do not write this marker
            head, at = stream.read(4), at + 4
        (length,) = struct.unpack("<i", head)
        if length == 0:
            return
        if length > FOOTER.allows():
            raise FOOTER.passed(path)
        raw = stream.read(within(length, size - at))
        at += 4 + len(raw)
        message = _Table.first(raw)
        yield message, at
        at += within(message.number(_BODY_BYTES, "q"), size - at)


def _longest_column(batch: _Table) -> int:
    longest = within(batch.number(_ROWS, "q"))
    for length, nulls in batch.pairs(_NODES):
        longest = max(longest, within(length))
        within(nulls, length)
    return longest


def _longest_buffer(batch: _Table, stream: IO[bytes], body_at: int, body_bytes: int) -> int:
    """Returns the unpacked length, in bytes, of the batch's longest buffer."""
    buffers = batch.pairs(_BUFFERS)
    if sum(within(count, len(buffers)) for count in batch.numbers(_VIEWED)) > len(buffers):
        raise ValueError(batch)
    longest = 0
    for offset, length in buffers:
        within(length, body_bytes - within(offset, body_bytes))
        longest = max(longest, length)
        # A buffer begins with its unpacked length, or with -1 if it is not compressed.
        if length and batch.has(_COMPRESSION):
            stream.seek(body_at + offset)
            (unpacked,) = struct.unpack("<q", stream.read(8))
            longest = max(longest, within(unpacked, least=-1))
    return longest


class _Table:
    """A table in the format Flatbuffers. Its fields have numbers, and a separate list has the offset of each field."""

    def __init__(self, raw: bytes, at: int) -> None:
        self._raw, self._at = raw, within(at, len(raw))
        (back,) = self._read("<i", at)
        self._fields = at - back
        (self._field_bytes,) = self._read("<H", self._fields)

    @classmethod
    def first(cls, raw: bytes) -> _Table:
        return cls(raw, *struct.unpack_from("<I", raw))

    def has(self, field: int) -> bool:
        return self._where(field) is not None

    def number(self, field: int, kind: str) -> int:
        at = self._where(field)
        return 0 if at is None else int(self._read(f"<{kind}", at)[0])

    def table(self, field: int) -> _Table:
        at = self._where(field)
        if at is None:
            raise ValueError(field)
        return _Table(self._raw, at + self._read("<I", at)[0])

    def numbers(self, field: int, width: int = 1) -> tuple[int, ...]:
        """Returns all numbers of a list as one tuple. An item of the list has `width` numbers of 64 bits."""
        at = self._where(field)
        if at is None:
            return ()
        at += self._read("<I", at)[0]
        (count,) = self._read("<I", at)
        within(8 * width * count, len(self._raw) - at)
        return self._read(f"<{width * count}q", at + 4)

    def pairs(self, field: int) -> list[tuple[int, int]]:
        numbers = self.numbers(field, width=2)
        return list(zip(numbers[::2], numbers[1::2], strict=True))

    def _where(self, field: int) -> int | None:
        place = 4 + 2 * field
        offset = self._read("<H", self._fields + place)[0] if place < self._field_bytes else 0
        return self._at + offset if offset else None

    def _read(self, form: str, at: int) -> tuple[int, ...]:
        if at < 0:  # Python would count a negative offset from the end
            raise ValueError(at)
        return struct.unpack_from(form, self._raw, at)
