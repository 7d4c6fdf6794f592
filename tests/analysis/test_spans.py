"""Stretches of time as sets, against a look at each single moment."""

from __future__ import annotations

from itertools import pairwise

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from opspan.analysis.spans import time_in, union, within

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


@given(rows, rows)
def test_the_time_in_a_stretch_is_that_of_its_moments(given_rows: list[dict], spans: list[dict]) -> None:
    known = [row for row in spans if None not in (row["start_ns"], row["end_ns"])]
    found = time_in(frame(given_rows), frame(known), ["key"]).to_list()
    assert found == [
        sum(is_on(given_rows, row["key"], moment) for moment in range(row["start_ns"], row["end_ns"])) for row in known
    ]


@given(rows, rows)
def test_rows_lie_in_the_stretches_of_their_own_key(points: list[dict], spans: list[dict]) -> None:
    found = within(frame(points), "start_ns", frame(spans), ["key"]).rows()

    expected = [
        (number, stretch)
        for number, point in enumerate(points)
        for stretch, span in enumerate(spans)
        if point["key"] == span["key"]
        and None not in (point["start_ns"], span["start_ns"], span["end_ns"])
        and span["start_ns"] <= point["start_ns"] < span["end_ns"]
    ]
    assert sorted(found) == expected


@given(rows, rows)
def test_a_union_of_two_frames_is_that_of_all_their_rows(some: list[dict], others: list[dict]) -> None:
    found = union(frame(some), ["key"], frame(others))

    assert sorted(found.rows(), key=str) == sorted(union(frame([*some, *others]), ["key"]).rows(), key=str)


def test_without_columns_to_tell_rows_apart_all_time_is_one() -> None:
    one = frame([{"key": 1, "start_ns": 0, "end_ns": 4}, {"key": 2, "start_ns": 3, "end_ns": 6}])
    assert union(one, []).rows() == [(0, 6)]
