"""Columns of a frame that comes in pieces, with no more memory than the rows need.

A column that is the same in every row, or null, is kept as that one value, and takes none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import polars as pl

FEW = 8


@dataclass
class _Column:
    dtype: pl.DataType
    value: Any  # of all rows so far, as long as it does not vary
    rows: int = 0
    parts: list[pl.Series] = field(default_factory=list)
    small: list[pl.Series] = field(default_factory=list)  # those that came last

    def add(self, part: pl.Series) -> None:
        constant, value = _constant(part)
        if self.rows == 0:
            self.value = value
        if self.varies or not (constant and value == self.value):
            if self.rows and not self.varies:
                self.small.append(pl.Series(part.name, [self.value], dtype=self.dtype).new_from_index(0, self.rows))
            self.small.append(part)
            if len(self.small) >= FEW:
                # Copied, as a part lies among what was allocated to work it out and would keep that from the system.
                self.parts.append(pl.concat(self.small, rechunk=True))
                self.small.clear()
        self.rows += len(part)

    @property
    def varies(self) -> bool:
        return bool(self.parts or self.small)

    def taken(self) -> pl.Series:
        """All of it; nothing is left here."""
        parts, self.parts, self.small = [*self.parts, *self.small], [], []
        return pl.concat(parts, rechunk=True)


class Columns:
    """Pieces go in, all with the same columns; the frame comes out, once."""

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
        """`empty`: what it is without rows."""
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
    """Whether all values are the same, and the first."""
    if part.null_count() == len(part):
        return True, None
    first = part[0]
    # 0.0 and -0.0 are equal, and are not the same.
    is_one = not part.null_count() and not part.dtype.is_float() and bool((part == first).all())
    return is_one, first if is_one else None
