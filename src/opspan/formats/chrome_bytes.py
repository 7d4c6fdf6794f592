"""The bytes of a Chrome trace, in pieces that can be parsed side by side. Not here: what is in them (chrome.py)."""

from __future__ import annotations

import re
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final

from opspan.formats.compressed import FAILURES, Bounded

_NEAR_END: Final = 256 << 10  # of a piece: where it is cut
_SPARE: Final = 1 << 20  # of what a piece is read to: the next may have more left of the one before it
_EVENT_BEGINS: Final = re.compile(rb'\{\s*"(?:ph|cat|name|pid|tid|ts|id|dur|args|s|bp)"')
_SPACE: Final = b" \t\r\n\v\f"


class Reading:
    """The bytes of a stream in pieces that end where an event seems to begin."""

    def __init__(self, stream: Bounded) -> None:
        self._stream = stream
        self._tail = b""
        self._free: SimpleQueue[memoryview] = SimpleQueue()

    def piece(self, size: int) -> tuple[memoryview, bool, tuple[str, str] | None]:
        """Some bytes, whether they are the last, and the issue that made them so."""
        room = self._room(len(self._tail) + size)
        room[: len(self._tail)] = self._tail
        filled = len(self._tail)
        try:
            while filled < len(room):
                count = self._stream.readinto(room[filled:])
                if not count:
                    return room[:filled], True, None
                filled += count
        except EOFError:
            return room[:filled], True, ("truncated_file", "its compressed data ends early")
        except FAILURES as error:
            why = f"its compressed data cannot be unpacked further: {error}"
            return room[:filled], True, ("damaged_file", why)
        near_end = bytes(room[-_NEAR_END:])
        cut = filled - len(near_end) + _last_event(near_end)
        self._tail = bytes(room[cut:])
        return room[:cut], False, None

    def done(self, piece: memoryview) -> None:
        """Its memory may be written again: what is fresh takes the system longer than the file."""
        self._free.put(memoryview(piece.obj))

    def _room(self, size: int) -> memoryview:
        with suppress(Empty):
            while len(room := self._free.get_nowait()) >= size:
                return room[:size]
        return memoryview(bytearray(size + _SPARE))[:size]


def _last_event(text: bytes) -> int:
    """Where the last thing begins that looks like an event; else the end."""
    at = len(text)
    while (at := text.rfind(b"{", 0, at)) >= 0:
        before = at - 1
        while before >= 0 and text[before] in _SPACE:
            before -= 1
        if before >= 0 and text[before] in b",[" and _EVENT_BEGINS.match(text, at):
            return at
    return len(text)
