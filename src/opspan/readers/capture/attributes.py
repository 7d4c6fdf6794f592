"""Reads attributes of ranges or threads. An attribute is ITT metadata, or a field of a user's own range. Attributes
that opspan wrote for ranges become columns. All other attributes become JSON."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from opspan import json_columns
from opspan.readers.capture.file import Bools, Ints, Texts, Units, distinct

INT, UINT, DOUBLE, TEXT, BYTES = range(1, 6)
VALUES = 5  # how many values of an attribute fit into one unit

# The attributes of opspan's own ranges: key -> the types that the value may have.
OWN = {
    "seq": (INT, UINT),
    "op_id": (INT, UINT),
    "fwd_tid": (INT, UINT),
    "kind": (INT, UINT),
    "payload": (INT, UINT, DOUBLE),
    "name": (TEXT,),
    "sizes": (TEXT,),
    "category": (TEXT,),
    "class": (TEXT,),
    "args": (TEXT,),
}


@dataclass(frozen=True)
class Attributes:
    """The units (64-byte records) that hold attributes of ranges or of threads."""

    units: Units
    rows: Ints  # for each unit, the row of its range or the id of its thread
    texts: Texts

    def where(self, mask: Bools) -> Attributes:
        return Attributes(self.units.where(mask), self.rows[mask], self.texts)

    @cached_property
    def types(self) -> npt.NDArray[np.uint32]:
        return self.units.u32(4)

    @cached_property
    def own(self) -> npt.NDArray[np.int8]:
        """The index of each attribute's key in OWN; -1 if OWN lacks the key, or lists other types for it."""
        used, places = distinct(self.texts.rows(self.units.u32(1)), len(self.texts.column))
        keys = self.texts.column.gather(used)
        known = list(OWN)
        numbers = np.array([known.index(key) if key in OWN else -1 for key in keys], dtype=np.int8)[places]
        for number, types in enumerate(OWN.values()):
            numbers[(numbers == number) & ~np.isin(self.types, types)] = -1
        return numbers


def own_columns(attributes: Attributes, count: int) -> dict[str, pl.Series]:
    """Returns a column a_<key> for each key in OWN. Each column has `count` rows, one for each range. A further column,
    a_payload_type, has the types of the values in a_payload."""
    columns = {}
    for number, (key, types) in enumerate(OWN.items()):
        some = attributes.where(attributes.own == number)
        values = some.texts.of(some.units.u32(6)) if types == (TEXT,) else pl.Series(some.units.i64(3))
        columns[f"a_{key}"] = scatter(values, some.rows, count)
        if key == "payload":
            columns["a_payload_type"] = scatter(pl.Series(some.types), some.rows, count)
    return columns


def scatter(values: pl.Series, rows: Ints, count: int) -> pl.Series:
    """Returns a column of `count` rows. Each value is put into the row that `rows` has for it; all other rows are null.
    If a row gets several values, the last value counts."""
    if not len(values):
        return pl.Series([None], dtype=values.dtype).new_from_index(0, count)
    places = np.full(count, len(values), dtype=np.int64)
    places[rows] = np.arange(len(values))
    return pl.concat([values, pl.Series([None], dtype=values.dtype)]).gather(places)


def json_members(attributes: Attributes) -> pl.DataFrame:
    """Returns one row for each range or thread that has attributes. The columns are row (see `Attributes.rows`) and
    members (a JSON object without its braces: `"key": value, "other": [1, 2]`)."""
    units, types, texts = attributes.units, attributes.types, attributes.texts
    single = np.isin(types, (TEXT, BYTES))
    counts = np.where(single, 1, np.clip(units.u32(5), 1, VALUES)).astype(np.int64)
    unit = np.repeat(np.arange(len(units)), counts)
    slot = np.arange(len(unit)) - np.repeat(np.cumsum(counts) - counts, counts)
    values = _values(units.words[unit, 3 + slot], types[unit], texts)
    if (types == BYTES).any():
        chosen = units.where(types == BYTES)
        hexes = json_columns.hexes(np.ascontiguousarray(chosen.words.view(np.uint8)[:, 24:]), chosen.u32(5))
        values = scatter(hexes, np.flatnonzero(types[unit] == BYTES), len(values)).fill_null(values)
    keys = texts.of(units.u32(1)).fill_null("").gather(unit)
    frame = pl.DataFrame({"row": attributes.rows[unit], "key": keys, "value": values.fill_null("null")})
    # Usually no range has several values for a key, and no lists are needed.
    if frame.select(pl.struct("row", "key").is_duplicated().any()).item():
        # If an attribute has more values than fit into a unit, the other values are in the next unit, with the same
        # key.
        lists = frame.group_by("row", "key", maintain_order=True).agg(
            pl.col("value").str.join(", "), pl.len().alias("count")
        )
        several = pl.col("count") > 1
        frame = lists.with_columns(pl.when(several).then("[" + pl.col("value") + "]").otherwise("value").alias("value"))
    members = json_columns.written(frame["key"], json_columns.text) + ": " + frame["value"].fill_null("null")
    return join_members(frame.select("row", members.alias("members")))


def join_members(members: pl.DataFrame) -> pl.DataFrame:
    """Joins the members of each range into one text. Keeps the order of the members."""
    if members["row"].n_unique() == members.height:
        return members
    return members.sort("row", maintain_order=True).group_by("row").agg(pl.col("members").str.join(", "))


def _values(words: Ints, types: npt.NDArray[np.uint32], texts: Texts) -> pl.Series:
    """Returns each word as JSON, according to its type. A word of type BYTES becomes null."""
    numbers = pl.Series(words)
    named = texts.of(np.where(types == TEXT, words & 0xFFFFFFFF, 0))
    by_type = {
        INT: numbers.cast(pl.String),
        UINT: numbers.reinterpret(signed=False).cast(pl.String),
        DOUBLE: json_columns.written(pl.Series(words.view(np.float64)), json_columns.real),
        TEXT: json_columns.written(named, json_columns.text),
    }
    values = pl.Series([None], dtype=pl.String).new_from_index(0, len(words))
    for value_type, written in by_type.items():
        values = written.zip_with(pl.Series(types == value_type), values)
    return values
