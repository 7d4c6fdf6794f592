"""Stretches of time: against looking at each moment between two ends, with the times that are hardest to subtract."""

from __future__ import annotations

import itertools

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from analysis.frames import EXTREMES, maybe_times, times
from opspan.analysis.spans import difference, length, time_in, union

LEAST, MOST = -(2**63), 2**63 - 1
pairs = st.lists(st.tuples(maybe_times, maybe_times), max_size=8)
SCHEMA = {"start_ns": pl.Int64, "end_ns": pl.Int64}


def frame(rows: list[tuple]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def known(rows: list[tuple]) -> list[tuple[int, int]]:
    return [row for row in rows if None not in row]


@given(pairs)
def test_from_one_time_to_another(rows: list[tuple]) -> None:
    start, end = pl.col("start_ns"), pl.col("end_ns")

    found = frame(rows).select(apart=difference(start, end), long=length(start, end))

    apart = [None if None in row else max(LEAST, min(MOST, row[1] - row[0])) for row in rows]
    assert found["apart"].to_list() == apart
    assert found["long"].to_list() == [None if ns is None else max(ns, 0) for ns in apart]


@given(pairs, pairs)
def test_how_much_is_covered(rows: list[tuple], asked: list[tuple]) -> None:
    found = time_in(frame(rows), frame(asked), ())

    assert found.to_list() == [None if None in one else covered_by(known(rows), *one) for one in asked]


def covered_by(rows: list[tuple[int, int]], start: int, end: int) -> int:
    edges = sorted({start, end, *(time for row in rows for time in row)})
    parts = [(one, other) for one, other in itertools.pairwise(edges) if start <= one and other <= end]
    inside = [other - one for one, other in parts if any(row[0] <= one and other <= row[1] for row in rows)]
    return min(sum(inside), MOST)


def test_by_hand() -> None:
    spans = union(frame([(90, 200), (95, 100), (110, 130), (200, 210), (212, 211), (213, 213), (300, 301)]), ())

    assert spans.rows() == [(90, 210), (300, 301)]
    asked = frame([(0, 400), (100, 205), (210, 300), (300, 301), (205, 100), (None, 400), (0, None)])
    assert time_in(spans, asked, ()).to_list() == [121, 105, 0, 1, 0, None, None]
    assert time_in(spans.clear(), asked, ()).to_list() == [0, 0, 0, 0, 0, None, None]


@given(times, times)
def test_all_of_time_is_covered_by_all_of_time(start: int, end: int) -> None:
    whole = frame([(min(EXTREMES), max(EXTREMES))])

    found = time_in(whole, frame([(start, end)]), ())

    assert found.to_list() == [max(0, min(MOST, end - start))]
