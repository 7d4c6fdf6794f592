"""Collects the columns of a frame that is read in pieces, without taking more memory than the rows need.

If a column has the same value in every row, or only nulls, only that value is stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import polars as pl

FEW = 8


@dataclass
class _Column:
    dtype: pl.DataType
    value: Any  # the value that all rows so far have; not used if the rows differ
    rows: int = 0
    parts: list[pl.Series] = field(default_factory=list)
    small: list[pl.Series] = field(default_factory=list)  # the latest parts, which are not joined yet

    def add(self, part: pl.Series) -> None:
        if not self._goes_on(part):
            if self.rows and not self.varies:
                self.small.append(pl.Series(part.name, [self.value], dtype=self.dtype).new_from_index(0, self.rows))
            self.small.append(part)
            if len(self.small) >= FEW:
                # Copies the parts, because a part refers to the memory of its whole piece and would keep it.
                self.parts.append(pl.concat(self.small, rechunk=True))
                self.small.clear()
        self.rows += len(part)

    def _goes_on(self, part: pl.Series) -> bool:
        """Returns whether all rows so far and all rows of this part have the same value."""
        if self.varies:
            return False
        constant, value = _constant(part)
        if self.rows == 0:
            self.value = value
        return constant and bool(value == self.value)

    @property
    def varies(self) -> bool:
        return bool(self.parts or self.small)

    def taken(self) -> pl.Series:
        """Returns the column, and frees its parts."""
        parts, self.parts, self.small = [*self.parts, *self.small], [], []
        return pl.concat(parts, rechunk=True)


class Columns:
    """Collects pieces with the same columns. `frame` joins them, and can be called only once."""

    def __init__(self) -> None:
        self._columns: dict[str, _Column] = {}
        self._rows = 0

    def add(self, piece: pl.DataFrame) -> None:
        if not piece.height:
            return
        self._rows += piece.height
        for part in piece.iter_columns():
            self._columns.setdefault(part.name, _Column(part.dtype, None)).add(part)

    def frame(self, empty: pl.DataFrame) -> pl.DataFrame:
        """Returns the frame; `empty` if no rows were added."""
        if not self._rows:
            return empty
        done, literals = [], []
        for name, column in self._columns.items():
            if column.varies:
                done.append(column.taken())
            else:
                literals.append(pl.lit(column.value, dtype=column.dtype).alias(name))
        order = list(self._columns)
        if not done:
            return pl.select(pl.int_range(self._rows).alias("")).with_columns(literals).select(order)
        return pl.DataFrame(done).with_columns(literals).select(order)


def _constant(part: pl.Series) -> tuple[bool, Any]:
    """Returns whether all values are equal, and if so, the first value."""
    if part.null_count() == len(part):
        return True, None
    first = part[0]
    # Floats never count as constant, because 0.0 and -0.0 compare as equal but are different.
    may_be = not part.null_count() and not part.dtype.is_float() and part[-1] == first
    is_one = may_be and bool((part == first).all())
    return is_one, first if is_one else None
