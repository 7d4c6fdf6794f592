"""Reads the bytes of a Chrome trace in pieces that can be parsed in parallel. chrome.py parses them."""

from __future__ import annotations

import re
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final

from opspan.formats.compressed import FAILURES, UnpackedStream, issue_of

# A piece is cut where an event begins. This many bytes at the end of the piece are searched for such a point.
_NEAR_END: Final = 256 << 10
_SPARE: Final = 1 << 20  # extra bytes of a buffer, so that the buffer also fits a later piece that is slightly longer
_EVENT_BEGINS: Final = re.compile(rb'\{\s*"(?:ph|cat|name|pid|tid|ts|id|dur|args|s|bp)"')
_SPACE: Final = b" \t\r\n\v\f"


class Reading:
    """Reads a stream in pieces. Each piece ends where an event seems to begin."""

    def __init__(self, stream: UnpackedStream) -> None:
        self._stream = stream
        self._tail = b""
        self._free: SimpleQueue[memoryview] = SimpleQueue()

    def piece(self, size: int) -> tuple[memoryview, bool, tuple[str, str] | None]:
        """Returns the next bytes, whether they are the last ones, and an issue if reading the file failed."""
        room = self._room(len(self._tail) + size)
        room[: len(self._tail)] = self._tail
        filled = len(self._tail)
        try:
            while filled < len(room):
                count = self._stream.readinto(room[filled:])
                if not count:
                    return room[:filled], True, None
                filled += count
        except FAILURES as error:
            return room[:filled], True, issue_of(error)
        near_end = bytes(room[-_NEAR_END:])
        cut = filled - len(near_end) + _last_event(near_end)
        self._tail = bytes(room[cut:])
        return room[:cut], False, None

    def done(self, piece: memoryview) -> None:
        """Keeps the memory of a piece for later pieces, because allocating new memory takes longer than reading the
        file."""
        self._free.put(memoryview(piece.obj))

    def _room(self, size: int) -> memoryview:
        with suppress(Empty):
            while len(room := self._free.get_nowait()) >= size:
                return room[:size]
        return memoryview(bytearray(size + _SPARE))[:size]


def _last_event(text: bytes) -> int:
    """Returns the offset of the last text that looks like the begin of an event, or the length of the text."""
    at = len(text)
    while (at := text.rfind(b"{", 0, at)) >= 0:
        before = at - 1
        while before >= 0 and text[before] in _SPACE:
            before -= 1
        if before >= 0 and text[before] in b",[" and _EVENT_BEGINS.match(text, at):
            return at
    return len(text)
