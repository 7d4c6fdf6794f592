"""Time shifts that were applied to ranks. The options of a trace's metadata hold them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import polars as pl

from opspan.tables import schema
from opspan.tables.metadata import Metadata

# Keys of a rank's options. Their values say how far the times of the rank were moved to align them with other ranks: by
# UTC, or by matching collectives.
BY_UTC, BY_COLLECTIVES = "shifted_ns", "aligned"


class Shift(NamedTuple):
    """How a time is shifted: by `ns`, and by `drift` for each ns since `since_ns`."""

    ns: int = 0
    drift: float = 0.0
    since_ns: int = 0

    def of(self, time: int) -> int:
        """Returns the time after the shift."""
        return time + self.ns + round((time - self.since_ns) * self.drift)


def shift_of(rank: Metadata) -> Shift:
    """Returns the shift that aligned the rank's collectives with those of other ranks."""
    options: Any = rank.options.get(BY_COLLECTIVES)
    options = options if isinstance(options, Mapping) else {}
    return Shift(options.get("shift_ns", 0), options.get("drift", 0.0), options.get("since_ns", 0))


def times(columns: pl.Expr, shifts: Mapping[int, Shift], rank: pl.Expr | None = None) -> pl.Expr:
    """Shifts the times in these columns. `shifts` has the shift for each rank, and `rank` is the rank of a row (by
    default the column `rank`). Times of ranks without a shift stay the same."""
    rank = pl.col("rank") if rank is None else rank

    def of_rank(values: Mapping[int, float], dtype: schema.Dtype) -> pl.Expr:
        return rank.replace_strict(values, default=0, return_dtype=dtype)

    moved = columns + of_rank({rank: shift.ns for rank, shift in shifts.items()}, pl.Int64)
    if not any(shift.drift for shift in shifts.values()):
        return moved
    since = of_rank({rank: shift.since_ns for rank, shift in shifts.items()}, pl.Int64)
    drift = of_rank({rank: shift.drift for rank, shift in shifts.items()}, pl.Float64)
    return moved + ((columns - since) * drift).round().cast(pl.Int64)


def shifted(table: str, frame: pl.DataFrame, shifts: Mapping[int, Shift]) -> pl.DataFrame:
    named = schema.TABLES[table].times
    return frame.with_columns(times(pl.col(named), shifts)) if named and shifts else frame
