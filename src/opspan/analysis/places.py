"""Finds places in a step, such as the third aten::mm of a module, and the same places in the steps of another run.

    number_values(rows, keys) -> the distinct values of these columns, and for each row the number of its value.
    placed(parts, steps, ranks) -> parts with:
        place (Int64): position of the range, in order of time and from 1, among ranges of the same name and module in
            the step; null outside of steps. Without steps it is the position in the process.
        position (Int64): position in the typical step, thread after thread; null if the row is not in the typical step.
    partners(one, other) -> Int64, for each row of `other` the place of its partner in `one`; null if it has no partner.
    is_too_long(one, other) -> whether the steps are too long to be aligned by `partners`.

The typical step belongs to the first process that has steps (`ranks` gives the order). It is the first step with as
many ranges as the median step. The typical steps of two runs are aligned by the longest sequence of names and modules
that both have. So if a run has a new range, the ranges after it keep their partners. Ranges outside of this sequence
are partners if their names, modules and places are equal. If steps are too long to be aligned, this rule is used for
all ranges.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from opspan.analysis.spans import PROCESS, within
from opspan.row_numbers import ROW_NUMBER

_col = pl.col
_NAME = ("name", "module")
_PLACE = (*_NAME, "place")
MOST = 25_000_000  # maximum number of pairs of ranges that are compared to align steps; each pair takes two bytes

ROW = pl.int_range(pl.len(), dtype=ROW_NUMBER)
Numbers = npt.NDArray[np.int64]


def number_values(rows: pl.DataFrame, keys: Sequence[str]) -> tuple[pl.DataFrame, pl.Series]:
    """Returns the distinct values of several columns, and for each row, which of them it has, as a row number. Later
    groupings need to hash only this number."""
    groups = rows.select(keys).with_columns(ROW.alias("row")).group_by(keys).agg("row")
    which = groups.select(number=ROW, row="row").explode("row").drop_nulls("row")
    return groups.select(keys), _put(which["row"], which["number"], rows.height)


def placed(parts: pl.DataFrame, steps: pl.DataFrame, ranks: Sequence[int]) -> pl.DataFrame:
    if steps.height:
        stretch = _steps_of(parts, steps)
    elif parts.height:
        stretch = parts.select(pl.struct(PROCESS).rank("dense").cast(ROW_NUMBER)).to_series()
    else:
        stretch = pl.Series([], dtype=ROW_NUMBER)
    rows = parts.select(*PROCESS, "tid", "start_ns", stretch=stretch, name=number_values(parts, _NAME)[1], row=ROW)
    inside = rows.drop_nulls("stretch")
    # Both sorts are stable: rows of the same time keep their order.
    order = inside if inside["start_ns"].is_sorted() else inside.sort("start_ns", maintain_order=True)
    order = order.select("row", key=_col("stretch").cast(pl.UInt64) * 2**32 + _col("name"))
    order = order.sort("key", maintain_order=True).with_columns(at=pl.int_range(pl.len(), dtype=pl.Int64))
    is_first = _col("key").ne_missing(_col("key").shift(1))
    number = order.select("row", place=1 + _col("at") - pl.when(is_first).then("at").forward_fill())
    typical = _typical(inside, ranks)
    return parts.with_columns(
        place=_put(number["row"], number["place"], parts.height),
        position=_put(typical["row"], typical["position"], parts.height),
    )


def _steps_of(parts: pl.DataFrame, steps: pl.DataFrame) -> pl.Series:
    """Returns, for each row, its step's row in `steps`. If several steps contain the row, the one that began last
    counts."""
    pairs = within(parts, "start_ns", steps, PROCESS)
    order = steps.sort(*PROCESS, "start_ns")
    if order.select((_col("start_ns") < _col("end_ns").shift(1).over(PROCESS)).any()).item():
        begins = steps.select("start_ns", stretch=ROW)
        pairs = pairs.join(begins, on="stretch", maintain_order="left").sort("start_ns", "stretch")
        pairs = pairs.unique("row", keep="last")
    return _put(pairs["row"], pairs["stretch"], parts.height)


def _put(rows: pl.Series, values: pl.Series, height: int) -> pl.Series:
    """Returns a column with `height` rows: `values` in the given rows, null in all others. Each row may be given only
    once."""
    column = pl.Series([None], dtype=values.dtype).new_from_index(0, height)
    return column.scatter(rows, values) if len(rows) else column


def _typical(inside: pl.DataFrame, ranks: Sequence[int]) -> pl.DataFrame:
    """Returns the rows of the typical step (row), and their positions in it (position)."""
    nth = _col("rank").replace_strict(ranks, list(range(len(ranks))), default=len(ranks), return_dtype=pl.Int64)
    first = inside.select(PROCESS).unique().sort(nth, "rank", "pid", nulls_last=True).head(1)
    inside = inside.join(first, on=PROCESS, how="semi", nulls_equal=True)
    counts = inside.group_by("stretch").len().sort("len", "stretch")
    if not counts.height:
        return inside.select("row", position=pl.lit(None, dtype=pl.Int64))
    middle = counts["len"][(counts.height - 1) // 2]
    step = counts.filter(_col("len") == middle)["stretch"][0]
    rows = inside.filter(_col("stretch") == step).with_columns(begin=_col("start_ns").min().over("tid"))
    rows = rows.sort("begin", "tid", "start_ns", "row")
    return rows.select("row", position=pl.int_range(pl.len(), dtype=pl.Int64))


def partners(one: pl.DataFrame, other: pl.DataFrame) -> pl.Series:
    other = other.select(*_PLACE, "position").with_row_index("row")
    before, after, common = _align(one, other)
    pairs = pl.DataFrame({"row": after["row"].gather(common[1]), "partner": before["place"].gather(common[0])})
    rows = other.join(pairs, on="row", how="left", maintain_order="left")
    taken = rows.drop_nulls("partner").select(*_NAME, place="partner")
    free = one.select(_PLACE).join(taken, on=_PLACE, how="anti", nulls_equal=True)
    same = rows.filter(_col("partner").is_null()).join(free, on=_PLACE, how="semi", nulls_equal=True)
    rows = rows.join(same.select("row", alike="place"), on="row", how="left", maintain_order="left")
    return rows.select(partner=pl.coalesce("partner", "alike"))["partner"]


def is_too_long(one: pl.DataFrame, other: pl.DataFrame) -> bool:
    before, after = _sequences(one, other)
    start, end = _alike(before["token"].to_numpy(), after["token"].to_numpy())
    return _pairs(before.height - start - end, after.height - start - end) > MOST


def _align(one: pl.DataFrame, other: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, tuple[Numbers, Numbers]]:
    """Returns the typical steps of both runs, and the row numbers of the ranges that both have, as two equally long
    arrays."""
    before, after = _sequences(one, other)
    a, b = before["token"].to_numpy(), after["token"].to_numpy()
    start, end = _alike(a, b)
    height, width = len(a) - start - end, len(b) - start - end
    nothing = np.array([], dtype=np.int64)
    if _pairs(height, width) > MOST:
        return before, after, (nothing, nothing)
    of_a, of_b = _longest(a[start : start + height], b[start : start + width])
    first, last = np.arange(start), np.arange(end)
    rows = (
        np.concatenate([first, of_a + start, last + start + height]),
        np.concatenate([first, of_b + start, last + start + width]),
    )
    return before, after, rows


def _sequences(one: pl.DataFrame, other: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns the typical steps of both runs, in order. `token` is a number that is equal for equal names and
    modules."""
    sides = [frame.drop_nulls("position").sort("position") for frame in (one, other)]
    names = pl.concat([side.select(_NAME) for side in sides]).unique(maintain_order=True).with_row_index("token")
    before, after = (side.join(names, on=_NAME, how="left", nulls_equal=True, maintain_order="left") for side in sides)
    return before, after


def _pairs(height: int, width: int) -> int:
    return (height + 1) * (width + 1) if height and width else 0


def _alike(a: npt.NDArray[np.uint32], b: npt.NDArray[np.uint32]) -> tuple[int, int]:
    """Returns how many elements are equal at the start, and how many of the remaining ones are equal at the end."""
    shorter = min(len(a), len(b))
    differs = np.flatnonzero(a[:shorter] != b[:shorter])
    start = int(differs[0]) if len(differs) else shorter
    differs = np.flatnonzero(a[start:][::-1][: shorter - start] != b[start:][::-1][: shorter - start])
    return start, int(differs[0]) if len(differs) else shorter - start


def _longest(a: npt.NDArray[np.uint32], b: npt.NDArray[np.uint32]) -> tuple[Numbers, Numbers]:
    """Returns the positions of the longest common subsequence in `a` and in `b`. If there are several, takes one whose
    elements come early."""
    # long[i, j] is the length of the longest common subsequence of a[:i] and b[:j].
    long = np.zeros((len(a) + 1, len(b) + 1), dtype=np.uint16)
    for row, token in enumerate(a):
        best = np.maximum(long[row, 1:], long[row, :-1] + (b == token))
        np.maximum.accumulate(best, out=long[row + 1, 1:])
    of_a, of_b = [], []
    row, column = len(a), len(b)
    while row and column:
        if long[row - 1, column] == long[row, column]:
            row -= 1
        elif long[row, column - 1] == long[row, column]:
            column -= 1
        else:
            row, column = row - 1, column - 1
            of_a.append(row)
            of_b.append(column)
    return np.array(of_a[::-1], dtype=np.int64), np.array(of_b[::-1], dtype=np.int64)
