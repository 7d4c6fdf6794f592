"""The numbered texts of a Perfetto trace, and the args of events ("debug annotations").

perfetto.py writes events in batches. Each batch begins with packets that define the texts to which its events refer by
number. A text's number is the integer by which polars stores it in a Categorical column, plus 1, because 0 means no
text. The keys of args are instead numbered from 1 in each batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import polars as pl

from opspan import native

PACKET = 1  # field number of TracePackets in the file
SEQUENCE = 1  # all packets belong to one sequence, as if one thread of a program had written them
FLAGS = pl.lit(2).alias("13")  # flag of a packet: it refers to texts by number
_CLEARED = 1  # flag of a packet: earlier numbers are forgotten
_INTERNED = "12"
_NAMES, _CATEGORIES, _KEYS, _TEXTS = "2", "1", "3", "29"  # field numbers in InternedData
_ANNOTATION = "4"  # field number of the args ("debug annotations") in TrackEvent
_KEY, _BOOL, _INTEGER, _REAL, _TEXT, _NUMBERED_TEXT = "1", "2", "4", "5", "6", "17"  # field numbers in DebugAnnotation


class InternedTexts:
    """Collects the texts of a batch, to which the packets of the batch refer by number."""

    def __init__(self) -> None:
        self._known: dict[str, list[pl.Series]] = {_NAMES: [], _CATEGORIES: [], _TEXTS: []}
        self._keys: list[str] = []

    def names(self, column: pl.Series) -> pl.Series:
        return self._numbers(_NAMES, column)

    def categories(self, column: pl.Series) -> pl.Series:
        return self._numbers(_CATEGORIES, column)

    def _numbers(self, field: str, column: pl.Series) -> pl.Series:
        self._known[field].append(column.unique())
        return column.to_physical().cast(pl.UInt32) + 1  # 0 means no text

    def annotations(self, values: pl.DataFrame) -> Iterator[pl.Series]:
        for column in values.iter_columns():
            if column.null_count() == len(column):
                continue
            if column.name not in self._keys:
                self._keys.append(column.name)
            key = pl.lit(self._keys.index(column.name) + 1).alias(_KEY)
            field, cells = self._value(column)
            annotation = pl.when(cells.is_not_null()).then(pl.struct(key, cells.alias(field)))
            yield pl.select(annotation.alias(f"{_ANNOTATION}:{column.name}:{field}")).to_series()

    def _value(self, column: pl.Series) -> tuple[str, pl.Series]:
        if column.dtype == pl.Categorical:
            return _NUMBERED_TEXT, self._numbers(_TEXTS, column)
        if column.dtype == pl.Boolean:
            return _BOOL, column
        if column.dtype.is_float():
            return _REAL, column.cast(pl.Float64)
        if column.dtype == pl.UInt64:  # the field holds signed numbers: keep the same 64 bits
            return _INTEGER, column.reinterpret(signed=True)
        if column.dtype.is_integer():
            return _INTEGER, column.cast(pl.Int64)
        return _TEXT, column.cast(pl.String)

    def packets(self) -> bytes:
        """Returns packets that define the numbers of the batch. They also tell the reader to forget earlier numbers."""
        begin = pl.select(pl.lit(SEQUENCE).alias("10"), pl.lit(_CLEARED).alias("13"))
        return b"".join(native.protobuf(frame, PACKET) for frame in (begin, *self._interned()))

    def _interned(self) -> Iterable[pl.DataFrame]:
        for field, columns in self._known.items():
            texts = pl.concat([*columns, pl.Series([], dtype=pl.Categorical)]).drop_nulls().unique()
            yield _packets(field, texts.to_physical().cast(pl.UInt32) + 1, texts.cast(pl.String))
        keys = pl.Series(self._keys, dtype=pl.String)
        yield _packets(_KEYS, pl.int_range(1, len(keys) + 1, eager=True), keys)


def _packets(field: str, numbers: pl.Series, texts: pl.Series) -> pl.DataFrame:
    entry = pl.struct(numbers.alias("1"), texts.alias("2"))
    return pl.select(pl.lit(SEQUENCE).alias("10"), FLAGS, pl.struct(entry.alias(field)).alias(_INTERNED))
