"""Reads the parts of Thrift's compact protocol that Parquet's metadata uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

# The fields to read from a structure. Maps a field's number to its name and, if the field itself is a structure, to the
# fields to read from that structure.
Fields = Mapping[int, tuple[str, Any]]
PLAIN: Final[Fields] = {}

_DEEPEST: Final = 64
# Types of booleans; the type of a boolean field is also its value, but a boolean in a list has a byte of its own.
_TRUE, _FALSE = 1, 2
_WIDTHS: Final = {1: 1, 2: 1, 7: 8, 13: 16}
_BYTE, _VARINTS = 3, (4, 5, 6)
_BYTES, _LIST, _SET, _MAP, _STRUCT = 8, 9, 10, 11, 12


class CompactReader:
    """Reads structures. Raises IndexError if bytes are missing, and ValueError for bytes that are not Thrift."""

    def __init__(self, raw: bytes) -> None:
        self._raw, self.at = raw, 0

    def struct(self, wanted: Fields, depth: int = 0) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        raw, number = self._raw, 0
        while True:
            head = raw[self.at]
            self.at += 1
            if not head:
                return fields
            number = number + (head >> 4) if head >> 4 else self._number()
            kind = head & 15
            value: Any
            if kind in _VARINTS:  # most fields are numbers of one byte, so they are read here, without a call
                byte = raw[self.at]
                if byte < 128:
                    self.at += 1
                    value = byte >> 1 ^ -(byte & 1)
                else:
                    value = self._number()
                if number in wanted:
                    fields[wanted[number][0]] = value
                continue
            name, inner = wanted.get(number, ("", PLAIN))
            value = kind == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind, inner, depth)
            if name:
                fields[name] = value

    def _value(self, kind: int, wanted: Fields, depth: int) -> Any:
        if depth > _DEEPEST:
            raise ValueError(depth)
        if kind in _VARINTS:
            return self._number()
        if kind == _BYTE:
            return self._byte()
        if kind in _WIDTHS:
            return self._bytes(_WIDTHS[kind])
        if kind == _BYTES:
            return self._bytes(self._varint())
        if kind in (_LIST, _SET):
            head = self._byte()
            return self._values(self._varint() if head >> 4 == 15 else head >> 4, [head & 15], wanted, depth)
        if kind == _MAP:
            count = self._varint()
            kinds = self._byte() if count else 0
            return self._values(count, [kinds >> 4, kinds & 15], PLAIN, depth)
        if kind == _STRUCT:
            return self.struct(wanted, depth + 1)
        raise ValueError(kind)

    def _values(self, count: int, kinds: list[int], wanted: Fields, depth: int) -> list[Any]:
        if count > len(self._raw) - self.at:  # a value has at least one byte
            raise IndexError(count)
        values = []
        for _ in range(count):
            for kind in kinds:
                value = self._value(kind, wanted, depth + 1)
                if wanted:
                    values.append(value)
        return values

    def _byte(self) -> int:
        self.at += 1
        return self._raw[self.at - 1]

    def _number(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)

    def _varint(self) -> int:
        value, shift = 0, 0
        while (byte := self._byte()) & 128:
            value |= (byte & 127) << shift
            shift += 7
            if shift > 63:
                raise ValueError(shift)
        return value | byte << shift

    def _bytes(self, count: int) -> bytes:
        self.at += count
        if self.at > len(self._raw):
            raise IndexError(count)
        return self._raw[self.at - count : self.at]
