"""The steps of two runs one by one, by hand."""

from __future__ import annotations

import polars as pl

from opspan.analysis.compare_steps import compare_steps


def took(*ns: int, pid: int = 1, first: int = 0) -> pl.DataFrame:
    rows = [(0, pid, f"step {first + at}", 1000 * at, one) for at, one in enumerate(ns)]
    schema = {"rank": pl.Int32, "pid": pl.Int64, "step": pl.String, "start_ns": pl.Int64, "took_ns": pl.Int64}
    return pl.DataFrame(rows, schema, orient="row")


def test_the_nth_is_compared_with_the_nth_whatever_they_are_called() -> None:
    rows = compare_steps(took(100, 100, 50), took(110, 90, 60, 70, first=7))
    assert rows["number"].to_list() == [1, 2, 3]
    assert rows["step_before"].to_list() == ["step 0", "step 1", "step 2"]
    assert rows["step_after"].to_list() == ["step 7", "step 8", "step 9"]
    assert rows["change_ns"].to_list() == [10, -10, 10]
    assert rows["change"].to_list() == [0.1, -0.1, 0.2]
    assert rows["accumulated_ns"].to_list() == [10, 0, 10]


def test_of_several_processes_it_is_their_mean() -> None:
    before = pl.concat([took(100, 100), took(200, 300, pid=2)])
    rows = compare_steps(before, took(160, 160))
    assert rows["before_ns"].to_list() == [150, 200]
    assert rows["change_ns"].to_list() == [10, -40]


def test_what_took_no_time_before_has_no_share_and_no_steps_are_no_rows() -> None:
    assert compare_steps(took(0), took(5))["change"].to_list() == [None]
    assert compare_steps(took(), took(5)).height == 0
