"""JSON of whole columns against Python's own reading of it."""

from __future__ import annotations

import json
import re
from decimal import Decimal

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from opspan.json_columns import EXACT_NS, members, microseconds, number, text
from properties import property_of

times = st.one_of(st.integers(0, EXACT_NS - 1), st.integers(EXACT_NS - 5000, EXACT_NS - 1), st.integers(0, 5000))


@property_of(st.lists(times, min_size=1, max_size=50), few=100, many=2000)
def test_microseconds_are_exact_both_ways(values: list[int]) -> None:
    frame = pl.DataFrame({"ns": values})
    for most_ns in (None, max(values)):
        written = frame.select(microseconds(pl.col("ns"), most_ns)).to_series().to_list()
        assert [Decimal(one) * 1000 for one in written] == values
        assert all(re.fullmatch(r"[0-9]+\.[0-9]{1,3}", one) for one in written)


def test_times_too_large_for_that_are_still_exact() -> None:
    frame = pl.DataFrame({"ns": [2**62 + 1, -1]})
    written = frame.select(microseconds(pl.col("ns"), 2**62 + 1)).to_series()
    assert written.to_list() == ["4611686018427387.905", "-0.001"]


cells = st.lists(st.tuples(*[st.none() | st.integers(-9, 9)] * 5), min_size=1, max_size=20)


@property_of(cells, st.sets(st.sampled_from("abcde")), few=100, many=1000)
def test_members_are_those_that_are_not_null(rows: list[tuple[int | None, ...]], sure: set[str]) -> None:
    rows = [tuple(0 if "abcde"[at] in sure and cell is None else cell for at, cell in enumerate(row)) for row in rows]
    frame = pl.DataFrame(rows, schema=dict.fromkeys("abcde", pl.Int64), orient="row")
    values = {name: number(pl.col(name)) for name in "abcde"}
    written = frame.select(members(values, sure)).to_series().to_list()
    expected = [{"abcde"[at]: cell for at, cell in enumerate(row) if cell is not None} for row in rows]
    assert [json.loads(one) for one in written] == expected
    assert [list(json.loads(one)) for one in written] == [list(one) for one in expected]


@given(st.text())
def test_texts_are_read_back(value: str) -> None:
    frame = pl.DataFrame({"a": [value]})
    assert json.loads(frame.select(text(pl.col("a"))).item()) == value
