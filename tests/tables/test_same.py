"""Columns that hold one value, and the values of a column, against Python's view of the rows."""

from __future__ import annotations

from unittest.mock import patch

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opspan.tables import same as module
from opspan.tables.same import each_once, is_one, rows_once, same

NUMBERS = st.none() | st.integers(-3, 3)
TEXTS = st.none() | st.sampled_from("ab")
COLUMNS = st.integers(0, 6).flatmap(
    lambda height: st.tuples(*(st.lists(values, min_size=height, max_size=height) for values in (NUMBERS, TEXTS)))
)


def frame_of(columns: tuple[list[int | None], list[str | None]], texts: pl.DataType) -> pl.DataFrame:
    numbers, names = columns
    return pl.DataFrame({"number": numbers, "text": names}, schema={"number": pl.Int64, "text": texts})


@pytest.mark.parametrize("texts", [pl.String, pl.Categorical, pl.Enum(["b", "a"])], ids=str)
@pytest.mark.parametrize("few", [0, 3])
@given(some=st.lists(COLUMNS, min_size=1, max_size=3))
def test_columns_of_one_value(
    texts: pl.DataType, few: int, some: list[tuple[list[int | None], list[str | None]]]
) -> None:
    frames = [frame_of(columns, texts) for columns in some]
    expected = []
    for at, name in enumerate(("number", "text")):
        values = {value for columns in some for value in columns[at]}
        if len(values) == 1 and None not in values and all(columns[at] for columns in some):
            expected.append(name)
    with patch.object(module, "FEW", few):  # more rows are asked in another way
        assert same(("number", "text"), *frames) == expected
        assert same((), *frames) == []


@given(columns=COLUMNS)
def test_each_value_once(columns: tuple[list[int | None], list[str | None]]) -> None:
    frame = frame_of(columns, pl.Categorical())
    for name, values in zip(("number", "text"), columns, strict=True):
        found = each_once(frame, name).to_list()
        assert len(found) == len(set(found))
        assert set(found) == set(values)


@given(columns=COLUMNS)
def test_each_row_once(columns: tuple[list[int | None], list[str | None]]) -> None:
    found = rows_once(frame_of(columns, pl.Categorical()), "number", "text").rows()
    assert len(found) == len(set(found))
    assert set(found) == set(zip(*columns, strict=True))


def test_what_is_a_literal_takes_no_memory_afterwards() -> None:
    frame = pl.DataFrame({"a": range(100_000)}).with_columns(rank=pl.lit(0), pid=pl.lit(7))
    before = frame.estimated_size()
    assert is_one(frame, "rank", "pid")
    assert each_once(frame, "pid").to_list() == [7]
    assert frame.estimated_size() == before


def test_a_column_that_may_hold_more_is_not_one_value() -> None:
    assert is_one(pl.DataFrame({"a": [1, 1], "b": ["x", "x"]}), "a", "b")
    assert not is_one(pl.DataFrame({"a": [1, 1], "b": ["x", "y"]}), "a", "b")
    assert not is_one(pl.DataFrame({"a": []}, schema={"a": pl.Int64}), "a")
