"""The order of begins and ends: a viewer that keeps a stack for each lane closes every slice at its own end."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import polars as pl
import pytest
from hypothesis import strategies as st

from opspan import native
from opspan.errors import OpspanError
from properties import property_of

SCHEMA = {"track": pl.UInt32, "start_ns": pl.Int64, "end_ns": pl.Int64, "is_mark": pl.Boolean, "is_apart": pl.Boolean}
TIMES = st.integers(0, 12) | st.sampled_from([-(1 << 62), 1 << 62])
SLICES = st.tuples(st.integers(0, 2), TIMES, TIMES, st.sampled_from([False, False, True]), st.booleans())


def of(rows: list[tuple[Any, ...]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def shown(slices: pl.DataFrame) -> list[tuple[int, int, int, int]]:
    """Returns slices as a viewer shows them: row, lane, begin, end."""
    rows = slices.rows(named=True)
    found, last = [], -(1 << 63)
    open_slices: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for row, lane, is_end in native.timeline(slices).select("row", "lane", "is_end").iter_rows():
        slice_ = rows[row]
        at = max(slice_["start_ns"], slice_["end_ns"]) if is_end else slice_["start_ns"]
        assert at >= last
        last = at
        stack = open_slices[slice_["track"], lane]
        if is_end:
            begun, start = stack.pop()
            found.append((begun, lane, start, at))
        elif slice_["is_mark"]:
            found.append((row, lane, at, at))
        else:
            stack.append((row, at))
    assert not any(open_slices.values())
    return sorted(found)


@property_of(st.lists(SLICES, max_size=40), few=60, many=2000)
def test_each_slice_is_closed_at_its_end(rows: list[tuple[Any, ...]]) -> None:
    slices = of(rows)
    expected = [
        (row, start, start if is_mark else max(start, end)) for row, (_, start, end, is_mark, _) in enumerate(rows)
    ]
    # Slices of one track with equal begins and ends may stand for each other.
    key = [(rows[row][0], start, end) for row, start, end in expected]
    found = [(rows[row][0], start, end) for row, _, start, end in shown(slices)]
    assert sorted(found) == sorted(key)


@property_of(st.lists(SLICES, max_size=40), few=60, many=2000)
def test_what_lies_in_each_other_and_is_not_apart_is_on_the_track(rows: list[tuple[Any, ...]]) -> None:
    nested = [(track, 0, start, False, False) for track, start, *_ in rows if start >= 0]
    assert all(lane == 0 for _, lane, _, _ in shown(of(nested)))


@property_of(st.lists(SLICES, max_size=40), few=60, many=2000)
def test_there_are_as_many_lanes_as_there_are_slices_at_once(rows: list[tuple[Any, ...]]) -> None:
    apart = [(0, start, max(start, end), False, True) for _, start, end, *_ in rows]
    lanes = [lane for _, lane, _, _ in shown(of(apart))]
    most = max((sum(a[1] <= b[1] < a[2] or a == b for a in apart) for b in apart), default=0)
    assert max(lanes, default=0) <= most
    assert all(lane > 0 for lane in lanes)


def test_slices_that_overlap_are_on_lanes_of_their_own() -> None:
    slices = of([(1, 0, 10, False, False), (1, 2, 5, False, False), (1, 4, 12, False, False), (1, 6, 8, False, True)])
    assert shown(slices) == [(0, 0, 0, 10), (1, 0, 2, 5), (2, 1, 4, 12), (3, 2, 6, 8)]


def test_a_slice_without_a_time_is_refused() -> None:
    with pytest.raises(OpspanError, match="no time"):
        native.timeline(of([(0, None, 5, False, False)]))
