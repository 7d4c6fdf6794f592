"""Traces that were analysed, put together: row numbers, sums and ends are of the whole, as if analysed after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import opspan
from analysis.frames import nested_rows, range_rows, ranges, table
from opspan.analysis import analyse, attribute, memory, side_by_side
from opspan.tables import Metadata, schema
from opspan.trace import Trace

UTC = 1_700_000_000_000_000_000
# Both tools saw these: enough for the ranges to align the clocks.
SHARED = [{"name": f"shared {number}", "start_ns": 100 * number, "end_ns": 100 * number + 60} for number in range(10)]


def trace(rows: list[dict[str, Any]], origin: int = UTC, source: str = "one", launches: bool = True) -> Trace:
    """A range for each row, each with a call inside, functions around, and work that the calls launched."""
    starts = [row["start_ns"] for row in rows if isinstance(row.get("start_ns"), int) and abs(row["start_ns"]) < 10**6]
    where = {"rank": 0, "pid": 1, "tid": 1}
    calls = [{**where, "start_ns": at, "end_ns": at + 1, "correlation_id": n} for n, at in enumerate(starts)]
    work = [{**call, "start_ns": call["end_ns"], "end_ns": call["end_ns"] + 5, "kind": "kernel"} for call in calls]
    functions = [
        {**where, "name": name, "start_ns": -1, "end_ns": 2000} for name in ("nn.Module: Net_0", "train.py(1): step")
    ]
    functions[1]["parent_id"] = 0
    found = ranges(*({"name": "mm", "seq": n % 3, **row} for n, row in enumerate(rows)))
    metadata = Metadata(source, (f"{source}.file",), host="box", origin_utc_ns=origin)
    return Trace(
        (metadata,),
        ranges=found,
        calls=table("calls", calls),
        work=table("work", work if launches else []),
        functions=table("functions", functions if launches else []),
    )


def kinds() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "name": st.sampled_from(["mm", "t", "MmBackward0", "ProfilerStep#1", "epoch 1", "shared 3"]),
            "kind": st.sampled_from(["op", "backward", "engine", "module", "user"]),
        }
    )


@st.composite
def rows(draw: st.DrawFn) -> list[dict[str, Any]]:
    drawn = [{**row, **draw(kinds())} for row in draw(st.one_of(range_rows(8), nested_rows()))]
    for row in drawn:
        row["start_ns"], row["end_ns"] = (
            None if is_extreme(row[name]) else row[name] for name in ("start_ns", "end_ns")
        )
        if row["is_mark"]:
            row["end_ns"] = None
    return drawn


def is_extreme(time: int | None) -> bool:
    """No other clock has such a time."""
    return time is not None and abs(time) > 10**15


def same(one: Trace, other: Trace) -> None:
    assert one.ranks == other.ranks
    for name, frame in one.frames.items():
        assert_frame_equal(other.frames[name], frame, check_column_order=False, check_exact=True)


@pytest.mark.slow
@settings(max_examples=15)
@given(rows(), rows(), st.sampled_from([None, "epoch"]))
def test_side_by_side_and_analysing_may_change_places(a: list[dict], b: list[dict], pattern: str | None) -> None:
    one, other = trace(a), trace(b, UTC + 10**12, "other")

    whole = side_by_side([analyse(one, pattern), analyse(other, pattern)])

    same(whole, analyse(side_by_side([one, other]), pattern))


@pytest.mark.slow
@settings(max_examples=15)
@given(rows(), rows())
def test_merging_and_analysing_may_change_places(a: list[dict], b: list[dict]) -> None:
    a, b = ([{**row, "rank": 0} for row in rows] for rows in (a, b))
    one = trace([*SHARED, *a])
    other = trace([*b, *SHARED], source="other", launches=False)

    same(opspan.merge(analyse(one), analyse(other)), analyse(opspan.merge(one, other)))
    same(opspan.merge(attribute(other), one), attribute(opspan.merge(other, one)))


def outer_and_inner(**more: Any) -> list[dict[str, Any]]:
    return [
        {"name": "outer", "start_ns": 0, "end_ns": 100},
        {"name": "mm", "start_ns": 10, "end_ns": 50, "seq": 7},
        {"name": "MmBackward0", "kind": "backward", "start_ns": 60, "end_ns": 90, "seq": 7, **more},
    ]


def test_every_row_number_is_of_the_whole() -> None:
    whole = side_by_side([analyse(trace(outer_and_inner())), analyse(trace(outer_and_inner(), source="other"))])

    assert whole.ranges["parent"].to_list() == [None, 0, 0, None, 3, 3]
    assert whole.ranges["forward"].to_list() == [None, None, 1, None, None, 4]
    assert whole.ranges["function"].to_list() == [1, 1, 1, 3, 3, 3]
    assert whole.calls["range"].to_list() == [0, 1, 2, 3, 4, 5]
    assert whole.work["call"].to_list() == [0, 1, 2, 3, 4, 5]
    assert whole.work["launch_range"].to_list() == whole.work["range"].to_list() == [0, 1, 2, 3, 4, 5]


def test_one_that_was_analysed_beside_one_that_was_not_is_no_half_table() -> None:
    one, other = trace(outer_and_inner()), trace(outer_and_inner(), source="other")
    same(side_by_side([analyse(one), other]), analyse(side_by_side([one, other])))
    same(side_by_side([one, attribute(other)]), attribute(side_by_side([one, other])))
    assert not side_by_side([one, other]).is_analysed


def test_traces_that_were_saved_analysed_are_loaded_side_by_side(tmp_path: Path) -> None:
    one, other = trace(outer_and_inner()), trace(outer_and_inner(), source="other")
    analyse(one).save(tmp_path / "one")
    analyse(other).save(tmp_path / "other")
    same(opspan.load(tmp_path / "one", tmp_path / "other"), analyse(side_by_side([one, other])))


def test_the_rows_that_are_left_of_an_analysed_trace_are_analysed_again() -> None:
    analysed = analyse(trace(outer_and_inner()))
    left = analysed.replace(ranges=analysed.ranges.filter(pl.col("name") != "outer"))

    # Neither a call of a range that is gone, nor one of a range that is now another row's.
    assert "range" not in left.calls.columns
    kernels = {event.name: len(event.kernels) for event in left.events()}
    assert (kernels["mm"], kernels["MmBackward0"]) == (1, 1)
    assert left.coverage.calls_in_range.count == 2

    kept = analysed.replace(ranges=analysed.ranges.with_columns(mine=pl.lit(1)))
    assert kept.calls["range"].to_list() == [0, 1, 2]


def test_analysis_can_be_taken_back() -> None:
    rows = [{**row, "is_async": False} for row in outer_and_inner()]
    rows += [{"name": "over", "start_ns": 95, "end_ns": 120}, {"name": "open", "start_ns": 110, "end_ns": None}]
    one = trace(rows)
    analysed = analyse(one)
    assert analysed.ranges["overlaps"].to_list() == [False, False, False, True, False]
    assert analysed.ranges["end_ns"].null_count() == 0
    same(analysed.without_analysis(), one)
    assert one.without_analysis() is one


@pytest.mark.parametrize("name", schema.TABLES)
def test_the_schema_knows_every_column_that_an_analysis_adds(name: str) -> None:
    analysed = analyse(trace(outer_and_inner()))
    analysed = analysed.replace(ranges=memory(analysed.ranges, analysed.memory))
    added = set(analysed.frames[name].columns) - set(schema.TABLES[name].schema)
    assert added == set(schema.ADDED.get(name, ()))
