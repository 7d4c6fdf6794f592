"""Rows by the numbers that they have, against plain lists: numbers close together, far apart, in order or not."""

from __future__ import annotations

from unittest.mock import patch

import polars as pl
from hypothesis import strategies as st

from opspan.formats import keys
from opspan.tables.same import rows_once
from properties import property_of

LEAST, MOST = -(1 << 63), (1 << 63) - 1
numbers = st.one_of(
    st.integers(-3, 12), st.integers(0, 12).map(lambda at: 10_000_000_000 + at), st.integers(LEAST, MOST)
)
distinct = st.lists(numbers, unique=True, max_size=12)


@property_of(distinct, st.lists(st.one_of(st.none(), numbers), max_size=8), st.booleans(), few=300, many=5000)
def test_places_are_those_of_a_list(rows: list[int], wanted: list[int | None], in_order: bool) -> None:
    rows = sorted(rows) if in_order else rows
    wanted += rows[::2]

    expected = [rows.index(one) if one is not None and one in rows else None for one in wanted]
    for few in (0, 64):  # in either way, as if that many were few
        with patch.object(keys, "_FEW", few):
            assert keys.places(_frame(wanted), _frame(rows)).to_list() == expected


def test_stretches_without_a_gap_are_not_searched() -> None:
    rows = [*range(5, 60), *range(1000, 1060), *range(10**10, 10**10 + 60)]
    wanted = [*rows[::-1], 4, 60, 999, 1060, 10**10 - 1, 10**10 + 60, None, LEAST, MOST]
    with patch.object(pl.Series, "search_sorted", side_effect=AssertionError("it was searched")):
        found = keys.places(_frame(wanted), _frame(rows))
    assert found.to_list() == [*range(len(rows))][::-1] + [None] * 9


@property_of(
    st.lists(st.tuples(st.sampled_from([None, 1, 2]), st.sampled_from([None, 1])), max_size=9), few=100, many=1000
)
def test_rows_are_there_once(rows: list[tuple[int | None, int | None]]) -> None:
    frame = pl.DataFrame(rows, schema={"one": pl.Int64, "other": pl.Int64}, orient="row")
    found = rows_once(frame, "one", "other").rows()
    assert len(found) == len(set(found))
    assert set(found) == set(rows)


@property_of(st.lists(st.one_of(st.none(), st.integers(0, 6)), max_size=8), few=100, many=1000)
def test_each_key_is_there_once(rows: list[int | None]) -> None:
    found = keys.once(_frame(rows).with_row_index("row"), "key")
    assert found["row"].to_list() == [rows.index(one) for one in dict.fromkeys(rows)]


def _frame(values: list[int | None] | list[int]) -> pl.DataFrame:
    return pl.DataFrame({"key": pl.Series(values, dtype=pl.Int64)})
