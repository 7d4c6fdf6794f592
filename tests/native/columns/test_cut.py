"""Stretches of time, cut where something begins or ends: against a look at each moment at which it does."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from analysis.frames import EXTREMES
from opspan import native

TYPES = {"tid": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64, "kind": pl.UInt8}
times = st.one_of(st.integers(0, 12), st.integers(0, 12), st.sampled_from(EXTREMES), st.none())
times_and_kind = {"tid": st.sampled_from([1, 1, 1, 2, None]), "start_ns": times, "end_ns": times}
stretches = st.fixed_dictionaries(
    {**times_and_kind, "kind": st.sampled_from([None, 2, 6]), "range": st.sampled_from([None, 77])}
)
spans = st.fixed_dictionaries(
    {**times_and_kind, "kind": st.sampled_from([None, None, None, 7, 8]), "is_async": st.sampled_from([False, True])}
)


def cut(some: list[dict], others: list[dict]) -> list[tuple]:
    found = native.cut(
        pl.DataFrame(some, schema={**TYPES, "range": pl.UInt32}),
        pl.DataFrame(others, schema={**TYPES, "is_async": pl.Boolean}),
    )
    return found.select("stretch", "start_ns", "end_ns", "range", "kind").rows()


def by_hand(some: list[dict], others: list[dict]) -> list[tuple]:
    pieces = []
    for number, one in enumerate(some):
        if None in (one["start_ns"], one["end_ns"]) or one["end_ns"] <= one["start_ns"]:
            continue
        own = native.NO_KIND if one["kind"] is None else one["kind"]
        if one["tid"] is None:
            pieces.append((number, one["start_ns"], one["end_ns"], one["range"], own))
            continue
        mine = [(row, span) for row, span in enumerate(others) if span["tid"] == one["tid"]]
        known = {span[name] for _, span in mine for name in ("start_ns", "end_ns")} - {None}
        cuts = sorted({one["start_ns"], *(time for time in known if one["start_ns"] < time < one["end_ns"])})
        for begin, end in zip(cuts, [*cuts[1:], one["end_ns"]], strict=True):
            is_open = [
                (row, span)
                for row, span in mine
                if None not in (span["start_ns"], span["end_ns"]) and span["start_ns"] <= begin < span["end_ns"]
            ]
            ranges = [(row, span) for row, span in is_open if span["kind"] is None]
            nested = [each for each in ranges if not each[1]["is_async"]] or ranges
            last = max(nested, key=lambda each: (each[1]["start_ns"], -each[1]["end_ns"], each[0]), default=(None,))
            kinds = [span["kind"] for _, span in is_open if span["kind"] is not None]
            pieces.append((number, begin, end, last[0], max(kinds, default=own)))
    return pieces


@given(st.lists(stretches, max_size=4), st.lists(spans, max_size=8))
def test_pieces_are_those_of_each_moment_at_which_something_changes(some: list[dict], others: list[dict]) -> None:
    assert cut(some, others) == by_hand(some, others)


def test_many_spans_that_are_open_at_once_take_linear_time() -> None:
    count = 300_000
    number = pl.int_range(count, dtype=pl.Int64, eager=True)
    others = pl.DataFrame({"start_ns": number, "end_ns": number + count}).with_columns(
        tid=pl.lit(1, dtype=pl.Int64), kind=pl.lit(None, dtype=pl.UInt8), is_async=False
    )
    whole = {"tid": 1, "start_ns": 0, "end_ns": 2 * count, "kind": 6, "range": None}

    pieces = native.cut(pl.DataFrame([whole], schema={**TYPES, "range": pl.UInt32}), others)

    assert pieces["range"].to_list() == [*range(count), *[count - 1] * (count - 1), None]
