"""Calls are moved until no range of their thread begins or ends inside of them."""

from __future__ import annotations

from itertools import accumulate

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opspan.analysis.clock_fit import nesting_shift

MOST = 5_000


def frame(rows: list[tuple[int, int, int]]) -> pl.DataFrame:
    schema = {"pid": pl.Int64, "tid": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64}
    return pl.DataFrame([(1, *row) for row in rows], schema=schema, orient="row")


def crossed(calls: list[tuple[int, int, int]], ranges: list[tuple[int, int, int]], move: int) -> int:
    """The slow way: how many begins and ends of ranges lie inside of calls, with the other end outside."""
    count = 0
    for tid, called, returned in calls:
        called, returned = called + move, returned + move
        for other, start, end in ranges:
            if other == tid:
                count += called < start < returned < end
                count += start < called < end < returned
    return count


# an op each 40 us, 20 us long, which launches 300 ns after its begin, for 8 us
OPS = [(1, at, at + 20_000) for at in range(0, 400_000, 40_000)]


@pytest.mark.parametrize("wrong", [-2_000, -700, 0, 250, 11_000])
def test_calls_lie_in_their_ops_again(wrong: int) -> None:
    calls = [(1, at + 300 + wrong, at + 8_300 + wrong) for _, at, _ in OPS]
    move = nesting_shift(frame(calls), frame(OPS), MOST)

    assert crossed(calls, OPS, move) == 0
    assert move == (max(-wrong - 300, 0) if wrong < 11_000 else 0)


def test_what_ends_too_late_is_moved_to_the_front() -> None:
    calls = [(1, at + 13_000, at + 21_000) for _, at, _ in OPS]
    assert nesting_shift(frame(calls), frame(OPS), MOST) == -1_000


@pytest.mark.parametrize("wrong", [-23_000, 18_000, 70_000])
def test_calls_of_a_busy_machine_are_moved_by_more_than_an_op_is_long(wrong: int) -> None:
    gaps = (7_000, 31_000, 12_000, 55_000, 9_000, 23_000, 16_000, 41_000, 27_000)
    ops = [(1, at, at + 20_000) for at in accumulate(20_000 + gap for gap in gaps)]
    calls = [(1, at + 300 + wrong, at + 19_300 + wrong) for _, at, _ in ops]

    assert -wrong - 300 <= nesting_shift(frame(calls), frame(ops), 100_000) <= -wrong + 700


def test_where_no_move_helps_nothing_is_moved() -> None:
    calls = [
        (1, at + wrong, at + wrong + 19_000) for (_, at, _), wrong in zip(OPS, range(0, 50_000, 5_000), strict=True)
    ]
    assert crossed(calls, OPS, 0) > 0
    assert nesting_shift(frame(calls), frame(OPS), 100_000) == 0


def test_another_threads_ranges_tell_nothing() -> None:
    calls = [(2, at - 500, at + 7_500) for _, at, _ in OPS]
    assert nesting_shift(frame(calls), frame(OPS), MOST) == 0


numbers = st.integers(0, 60_000)
stretches = st.lists(st.tuples(st.integers(1, 2), numbers, st.integers(1_000, 15_000)), max_size=6)


@given(stretches, stretches)
def test_against_every_move(some: list[tuple[int, int, int]], others: list[tuple[int, int, int]]) -> None:
    ranges = [(tid, at, at + ns) for tid, at, ns in others]
    calls: list[tuple[int, int, int]] = []
    for tid, at, ns in sorted(some):
        if all(tid != other or at >= end for other, _, end in calls):
            calls.append((tid, at, at + ns))
    move = nesting_shift(frame(calls), frame(ranges), MOST)

    assert -MOST <= move <= MOST
    ends = {time for rows in (calls, ranges) for _, start, end in rows for time in (start, end)}
    moves = {0, *(one - other for one in ends for other in ends if abs(one - other) <= MOST)}
    fewest = min(crossed(calls, ranges, one) for one in moves)
    before = crossed(calls, ranges, 0)
    assert crossed(calls, ranges, move) == (fewest if fewest <= before / 10 else before)


def test_nothing_is_nothing() -> None:
    assert nesting_shift(frame([]), frame(OPS), MOST) == 0
    assert nesting_shift(frame([(1, 0, 8_000)]), frame([]), MOST) == 0
