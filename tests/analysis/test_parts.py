"""Parts of ranks, put together: against the sums and medians of all rows at once."""

from __future__ import annotations

import statistics
from collections import defaultdict

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opspan.analysis import parts as module
from opspan.analysis.parts import Part, count_values, medians, move, together

KEYS = st.sampled_from(["a", "b", None])
ROWS = st.lists(st.tuples(KEYS, st.one_of(st.none(), st.integers(-50, 50))), max_size=12)
SCHEMA = {"name": pl.String, "ns": pl.Int64}


def frame(rows: list[tuple[str | None, int | None]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def of_rank(rows: list[tuple[str | None, int | None]]) -> Part:
    sums = (
        frame(rows)
        .group_by("name", maintain_order=True)
        .agg(
            pl.col("ns").drop_nulls().sum().alias("ns"),
            longest=pl.col("ns").max(),
            shortest=pl.col("ns").min(),
            has=pl.col("ns").is_not_null().any(),
            values=pl.col("ns").unique(maintain_order=True).implode().list.first(),
        )
    )
    rules = {"longest": "most", "shortest": "least", "has": "any", "values": "first"}
    return Part(sums, ("name",), rules)


@given(ranks=st.lists(ROWS, min_size=1, max_size=4))
def test_sums_and_bounds_are_those_of_all_rows(ranks: list[list[tuple[str | None, int | None]]]) -> None:
    groups: dict[str | None, list[int]] = defaultdict(list)
    for name, ns in (row for rows in ranks for row in rows):
        groups[name] += [] if ns is None else [ns]

    found = together([of_rank(rows) for rows in ranks]).rows

    assert found["name"].to_list() == list(groups)  # in the order in which they are first there
    for row in found.iter_rows(named=True):
        values = groups[row["name"]]
        assert row["ns"] == sum(values)
        assert row["longest"] == max(values, default=None)
        assert row["shortest"] == min(values, default=None)
        assert row["has"] == bool(values)


@given(ranks=st.lists(ROWS, min_size=2, max_size=5), first=st.integers(1, 4))
def test_it_does_not_matter_which_come_together_first(
    ranks: list[list[tuple[str | None, int | None]]], first: int
) -> None:
    each = [of_rank(rows) for rows in ranks]

    at_once, in_two = together(each), together([together(each[:first]), *each[first:]])

    assert at_once.rows.equals(in_two.rows)


@given(ranks=st.lists(ROWS, min_size=1, max_size=4))
def test_medians_are_those_of_all_values(ranks: list[list[tuple[str | None, int | None]]]) -> None:
    part = together([count_values(frame(rows), ("name",), "ns") for rows in ranks])

    found = dict(medians(part, ("name",), "median").iter_rows())

    every = frame([row for rows in ranks for row in rows]).drop_nulls("ns")
    assert found == {
        name: statistics.median(some["ns"].to_list())
        for (name,), some in every.partition_by("name", as_dict=True).items()
    }


def test_many_values_are_kept_to_three_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_VALUES", 100)
    ranks = [frame([("a", 100_000 + 7 * number + rank) for number in range(1000)]) for rank in range(3)]

    part = together([count_values(rows, ("name",), "ns") for rows in ranks])

    exact = statistics.median(pl.concat(ranks)["ns"].to_list())
    assert part.rows.height <= 100
    assert part.rows["values"].sum() == 3000
    assert medians(part, ("name",), "median")["median"][0] == pytest.approx(exact, rel=0.005)


def test_a_sum_of_what_nobody_knows_is_not_known() -> None:
    nothing = Part(pl.DataFrame({"name": ["a"], "ns": [None]}, schema=SCHEMA), ("name",))
    known = Part(pl.DataFrame({"name": ["a", "b"], "ns": [5, None]}, schema=SCHEMA), ("name",))

    assert together([nothing, nothing]).rows["ns"].to_list() == [None]
    assert together([nothing, known]).rows.rows() == [("a", 5), ("b", None)]


def test_a_sum_that_is_too_large_is_the_largest_number() -> None:
    one = Part(frame([("a", 2**62)]), ("name",))

    assert together([one, one, one]).rows["ns"].to_list() == [2**63 - 1]


def test_a_part_moves_to_its_rank_and_clock() -> None:
    ranges = [[{"rank": 0, "pid": 1, "start_ns": 10, "end_ns": 20}]]
    rows = pl.DataFrame({"rank": [0, 1], "start_ns": [5, None], "time_ns": [7, 7]})
    found = pl.DataFrame({"ranks": [[0]], "ranges": ranges}, schema_overrides={"ranks": pl.List(pl.Int32)})

    one, other = move(Part(rows, times=("start_ns",)), {0: 2, 1: 3}, 100), move(Part(found), {0: 2, 1: 3}, 100)

    assert one.rows.rows() == [(2, 105, 7), (3, None, 7)]
    assert other.rows["ranks"].to_list() == [[2]]
    assert other.rows["ranges"].to_list() == [[{"rank": 2, "pid": 1, "start_ns": 110, "end_ns": 120}]]
