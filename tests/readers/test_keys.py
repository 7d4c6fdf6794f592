"""Rows by the numbers that they have, against plain lists: numbers close together, far apart, in order or not."""

from __future__ import annotations

import polars as pl
from hypothesis import strategies as st

from opspan.formats import keys
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

    found = keys.places(_frame(wanted), _frame(rows))

    assert found.to_list() == [rows.index(one) if one is not None and one in rows else None for one in wanted]


@property_of(st.lists(st.one_of(st.none(), st.integers(0, 6)), max_size=8), few=100, many=1000)
def test_each_key_is_there_once(rows: list[int | None]) -> None:
    found = keys.once(_frame(rows).with_row_index("row"), "key")
    assert found["row"].to_list() == [rows.index(one) for one in dict.fromkeys(rows)]


def _frame(values: list[int | None] | list[int]) -> pl.DataFrame:
    return pl.DataFrame({"key": pl.Series(values, dtype=pl.Int64)})
