"""Turns extended NVTX payloads into JSON. A schema says what the bytes of a payload mean.

    entries: ("bytes", type 18 = uint64, offset 0), ("rank", type 15 = int32, offset 8)     payload: 00 10 00 ... 03 ...
    -> "bytes": 4096, "rank": 3

Whole columns are decoded at once: payloads with the same schema and length form a matrix of bytes, and an entry is a
slice of the matrix. The readers know which bytes belong to which range.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from opspan import json_columns
from opspan.formats.budget import FIELDS, Meter
from opspan.tables import Issues

Bytes = npt.NDArray[np.uint8]

DEEPEST = 8  # maximum number of levels of nested schemas
FEW_NAMES = 64  # decoding this many names of an enumeration takes as long as decoding one field

# NVTX_PAYLOAD_ENTRY_TYPE_*, as numpy types
NUMBERS = {
    **dict.fromkeys((11,), "i1"),
    **dict.fromkeys((2, 12, 32), "u1"),
    **dict.fromkeys((3, 13), "i2"),
    **dict.fromkeys((4, 14), "u2"),
    **dict.fromkeys((5, 15), "i4"),
    **dict.fromkeys((6, 16, 68, 69, 71, 73), "u4"),
    **dict.fromkeys((7, 9, 17), "i8"),
    **dict.fromkeys((8, 10, 18, 22, 23, 67, 70, 72, 74), "u8"),
    **dict.fromkeys((19, 43), "f4"),
    **dict.fromkeys((20, 44), "f8"),
    42: "f2",
}
CHARACTERS = (1, 25)
TEXT_IDS = (75, 76, 80)  # types of texts; the payload has a text's number in place of the program's pointer or handle
INLINE_TEXTS = (75, 76)  # types of entries that contain the text itself, if the entry has a length

# NVTX_PAYLOAD_ENTRY_FLAG_*. ELSEWHERE: the entry is only a pointer or an offset to its data.
ELSEWHERE = 2 | 4 | 8
ARRAY_MASK, FIXED_ARRAY = 7 << 4, 1 << 4

STATIC, ENUM = 1, 0x100  # types of schemas; opspan's captures add ENUM (format.h)


@dataclass(frozen=True)
class PayloadEntry:
    name: str
    type: int  # a type of NVTX, or the number of another schema
    # The entry's offset in the payload, in bytes; for an entry of an enumeration, the value that has this name.
    offset: int
    flags: int
    detail: int  # the length of an array or of inline text


@dataclass(frozen=True)
class Schema:
    name: str
    type: int
    bytes: int
    entries: tuple[PayloadEntry, ...]


class Budget:
    """The limits for all payloads of a file together. Schemas may refer to each other and to themselves, so a few
    schemas can describe any number of fields. The name of a field is written again for every row."""

    def __init__(self, written: Meter, issues: Issues) -> None:
        self.fields, self.written = Meter(FIELDS, 0, issues), written


class Decoder:
    """Decodes payloads by the schemas of one domain. `texts` maps the numbers of texts in payloads to these texts."""

    def __init__(
        self, schemas: Mapping[int, Schema], texts: Callable[[npt.NDArray[np.int64]], pl.Series], budget: Budget
    ) -> None:
        self._schemas = schemas
        self._texts = texts
        self._budget = budget

    def members(self, number: int, raw: Bytes) -> tuple[pl.Series, bool]:
        """Returns the fields of each payload as members of a JSON object, and whether all fields could be read."""
        schema = self._schemas.get(number)
        if schema is None:
            schema = _without_schema(number, raw.shape[1])
        written, is_complete = self._fields(schema, raw, 0)
        if not is_complete:
            written.append('"bytes": ' + json_columns.hexes(raw, raw.shape[1]))
        return _joined(written, len(raw)), is_complete

    def _fields(self, schema: Schema, raw: Bytes, depth: int) -> tuple[list[pl.Series], bool]:
        written: list[pl.Series] = []
        is_complete = schema.type == STATIC and depth < DEEPEST
        for place, entry in enumerate(schema.entries if is_complete else ()):
            name = json.dumps(entry.name or f"field{place}", ensure_ascii=False)
            if not self._may_write(name, len(raw)):
                return written, False
            value = self._value(entry, raw[:, entry.offset :], depth)
            if value is None:
                is_complete = False
            else:
                written.append(name + ": " + value)
        return written, is_complete

    def _may_write(self, name: str, rows: int, fields: int = 1) -> bool:
        return self._budget.fields.take(fields) and self._budget.written.take(rows * (len(name) + 4 * fields))

    def _value(self, entry: PayloadEntry, raw: Bytes, depth: int) -> pl.Series | None:
        """Returns one entry of every payload as JSON; None if opspan cannot read this entry. `raw` begins at
        the entry."""
        array = entry.flags & ARRAY_MASK
        count = entry.detail if array else 1
        if entry.flags & ELSEWHERE or array not in (0, FIXED_ARRAY) or not 0 < count <= raw.shape[1]:
            return None
        if array and entry.type not in CHARACTERS and not self._may_write("", len(raw), count):
            return None
        if entry.type in INLINE_TEXTS and entry.detail:
            return _characters(raw, entry.detail)
        if entry.type in CHARACTERS:
            return _characters(raw, count)
        if entry.type in TEXT_IDS:
            ids = numbers(raw, "i8", count)
            if ids is None:
                return None
            return _items([json_columns.written(self._texts(column), json_columns.text) for column in ids.T], array)
        if entry.type in NUMBERS:
            values = numbers(raw, NUMBERS[entry.type], count)
            return None if values is None else _items([_written(column) for column in values.T], array)
        nested = self._schemas.get(entry.type)
        if nested is None or nested.bytes * count > raw.shape[1]:
            return None
        size = nested.bytes
        parts = [self._nested(nested, raw[:, place * size : (place + 1) * size], depth) for place in range(count)]
        known = [part for part in parts if part is not None]
        return _items(known, array) if len(known) == count else None

    def _nested(self, schema: Schema, raw: Bytes, depth: int) -> pl.Series | None:
        if schema.type != ENUM:
            fields, is_complete = self._fields(schema, raw, depth + 1)
            return "{" + _joined(fields, len(raw)) + "}" if is_complete else None
        values = numbers(raw, f"u{schema.bytes}", 1) if schema.bytes in (1, 2, 4, 8) else None
        if values is None:
            return None
        # Entries that are single flags get no names, because a value may be a combination of flags.
        names = {str(entry.offset): json.dumps(entry.name) for entry in schema.entries if not entry.flags & 1}
        written = _written(values[:, 0])
        longest = max(names.values(), key=len, default="")
        if not self._may_write(longest, len(raw), 1 + len(names) // FEW_NAMES):
            return None
        return written.replace(list(names), list(names.values())) if names else written


def numbers(raw: Bytes, dtype: str, count: int) -> npt.NDArray[Any] | None:
    """Returns the first `count` numbers of every row as a matrix, or None if the rows are too short."""
    size = np.dtype(dtype).itemsize * count
    if size > raw.shape[1]:
        return None
    values: npt.NDArray[Any] = np.ascontiguousarray(raw[:, :size]).view(dtype)
    return values


def _without_schema(number: int, size: int) -> Schema:
    """Returns a schema for payloads without one. `number` is their NVTX type: they contain numbers of this type, or a
    text."""
    if number in NUMBERS:
        width = np.dtype(NUMBERS[number]).itemsize
        flags = FIXED_ARRAY if size > width else 0
        return Schema("", STATIC, size, (PayloadEntry("payload", number, 0, flags, size // width),))
    if number in INLINE_TEXTS:
        return Schema("", STATIC, size, (PayloadEntry("payload", number, 0, 0, size),))
    return Schema("", 0, size, ())


def _written(values: npt.NDArray[Any]) -> pl.Series:
    if values.dtype.kind == "f":
        return json_columns.written(pl.Series(values.astype(np.float64)), json_columns.real)
    return pl.Series(np.ascontiguousarray(values)).cast(pl.String)


def _characters(raw: Bytes, count: int) -> pl.Series | None:
    """Returns the texts in fields of `count` bytes, as JSON. A text ends at the first NUL."""
    if count > raw.shape[1]:
        return None
    fields = np.ascontiguousarray(raw[:, :count]).view(f"S{count}")[:, 0]
    distinct, places = np.unique(fields, return_inverse=True)
    texts = [json.dumps(text.split(b"\0", 1)[0].decode("utf-8", "replace"), ensure_ascii=False) for text in distinct]
    return pl.Series(texts, dtype=pl.String).gather(places)


def _items(columns: list[pl.Series], array: int) -> pl.Series:
    known = [column.fill_null("null") for column in columns]
    return "[" + _joined(known, len(known[0])) + "]" if array else known[0]


def _joined(columns: list[pl.Series], count: int) -> pl.Series:
    if not columns:
        return pl.Series([""], dtype=pl.String).new_from_index(0, count)
    return pl.select(pl.concat_str([pl.lit(column) for column in columns], separator=", ")).to_series()
