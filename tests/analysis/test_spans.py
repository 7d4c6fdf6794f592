"""Stretches of time as sets, against a look at each single moment."""

from __future__ import annotations

from itertools import pairwise

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from opspan.analysis.spans import layers, union

KEYS = [None, 1, 2]
MOMENTS = range(-2, 14)
times = st.one_of(st.integers(-2, 13), st.none())
rows = st.lists(st.fixed_dictionaries({"key": st.sampled_from(KEYS), "start_ns": times, "end_ns": times}), max_size=8)
SCHEMA = {"key": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64}


def frame(given_rows: list[dict]) -> pl.DataFrame:
    return pl.DataFrame(given_rows, schema=SCHEMA)


def is_on(given_rows: list[dict], key: int | None, moment: int) -> bool:
    return any(
        row["key"] == key and None not in (row["start_ns"], row["end_ns"]) and row["start_ns"] <= moment < row["end_ns"]
        for row in given_rows
    )


@given(rows)
def test_a_union_covers_the_same_moments_in_stretches_that_do_not_touch(given_rows: list[dict]) -> None:
    found = union(frame(given_rows), ["key"]).rows()
    for key in KEYS:
        stretches = [row[1:] for row in found if row[0] == key]
        assert all(before[1] < after[0] for before, after in pairwise(stretches))
        assert all(start < end for start, end in stretches)
        for moment in MOMENTS:
            assert any(start <= moment < end for start, end in stretches) == is_on(given_rows, key, moment)


@given(rows, rows, st.lists(st.tuples(st.sampled_from(KEYS), times), max_size=4))
def test_layers_say_what_is_on_at_each_moment(one: list[dict], other: list[dict], cuts: list[tuple]) -> None:
    cut = pl.DataFrame(cuts, schema={"key": pl.Int64, "time_ns": pl.Int64}, orient="row")
    found = layers({"one": frame(one), "other": frame(other)}, ["key"], cut)
    assert found.columns == ["key", "start_ns", "end_ns", "one", "other"]
    for key in KEYS:
        for moment in MOMENTS:
            at = [row[3:] for row in found.rows() if row[0] == key and row[1] <= moment < row[2]]
            expected = (is_on(one, key, moment), is_on(other, key, moment))
            assert at == ([expected] if any(expected) else [])
    for key, time in cuts:
        assert not any(row[0] == key and time is not None and row[1] < time < row[2] for row in found.rows())


def test_without_columns_to_tell_rows_apart_all_time_is_one() -> None:
    one = frame([{"key": 1, "start_ns": 0, "end_ns": 4}, {"key": 2, "start_ns": 3, "end_ns": 6}])
    assert union(one, []).rows() == [(0, 6)]
    assert layers({"one": one}, []).rows() == [(0, 6, True)]
