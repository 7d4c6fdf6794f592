"""Memory of a device as torch's caching allocator holds it: segments of the device's memory, and pieces of them.

A block takes the smallest free piece that it fits in, and leaves the rest of it free. Where it fits in none, a segment
is taken from the device. Free pieces that touch become one, but only within a segment.
"""

from __future__ import annotations

from dataclasses import dataclass

_ROUND = 2 << 20  # bytes, as sizes of segments of large blocks are


@dataclass(frozen=True, order=True)
class _Piece:
    bytes: int
    address: int
    segment: int


class Allocator:
    def __init__(self) -> None:
        self.allocated = self.reserved = 0
        self._next = 1 << 40  # the address of the next segment
        self._free: list[_Piece] = []
        self._taken: dict[int, list[_Piece]] = {}

    def take(self, size: int) -> int:
        """Returns the block's address."""
        fits = [piece for piece in self._free if piece.bytes >= size]
        found = min(fits) if fits else self._segment(size)
        self._free.remove(found)
        if found.bytes > size:
            self._free.append(_Piece(found.bytes - size, found.address + size, found.segment))
        self._taken.setdefault(size, []).append(_Piece(size, found.address, found.segment))
        self.allocated += size
        return found.address

    def give_back(self, size: int) -> int:
        """Gives back the block of this size that was taken last, and returns its address."""
        block = self._taken[size].pop()
        self.allocated -= size
        begin, end = block.address, block.address + size
        for piece in [piece for piece in self._free if piece.segment == block.segment]:
            if piece.address + piece.bytes == begin or piece.address == end:
                self._free.remove(piece)
                begin, end = min(begin, piece.address), max(end, piece.address + piece.bytes)
        self._free.append(_Piece(end - begin, begin, block.segment))
        return block.address

    def _segment(self, size: int) -> _Piece:
        made = _Piece(-(-size // _ROUND) * _ROUND, self._next, self._next)
        self._next += made.bytes
        self.reserved += made.bytes
        self._free.append(made)
        return made
