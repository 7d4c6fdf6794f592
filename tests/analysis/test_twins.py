"""Native code against nested loops in plain Python, on examples by hypothesis."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import strategies as st

import twins
from analysis.frames import few, maybe_times, nested_rows, places, range_rows, table
from opspan import native
from opspan.analysis.launches import launches
from opspan.analysis.nest import ADDED, innermost, nearest, nest
from properties import property_of

rows_of_ranges = range_rows() | nested_rows()


def nested(rows: list[dict]) -> tuple[pl.DataFrame, list[dict]]:
    frame = nest(table("ranges", rows))
    return frame, [row | found for row, found in zip(rows, frame.select(ADDED).to_dicts(), strict=True)]


@property_of(rows_of_ranges, st.none() | st.integers(0, 20), few=100, many=400)
def test_nest(rows: list[dict], end_ns: int | None) -> None:
    assert nest(table("ranges", rows), end_ns).select(ADDED).to_dicts() == twins.nest(rows, end_ns)


@property_of(rows_of_ranges, few=100, many=400)
def test_nest_again_changes_nothing(rows: list[dict]) -> None:
    once, _ = nested(rows)
    assert nest(once).equals(once)


@property_of(rows_of_ranges, few=100, many=400)
def test_the_tree_holds_together(rows: list[dict]) -> None:
    _, found = nested(rows)
    for row in found:
        if row["parent"] is None:
            assert row["depth"] == 0
            continue
        parent = found[row["parent"]]
        assert not parent["is_async"]
        assert not parent["is_mark"]
        assert row["depth"] == parent["depth"] + 1
        assert parent["start_ns"] <= row["start_ns"] <= (row["end_ns"] or row["start_ns"]) <= parent["end_ns"]
        assert [parent[name] for name in ("rank", "pid", "tid")] == [row[name] for name in ("rank", "pid", "tid")]


points = st.lists(st.fixed_dictionaries({**places, "time_ns": maybe_times}), max_size=10)


@pytest.mark.slow
@property_of(rows_of_ranges, points, few=100, many=400)
def test_innermost(rows: list[dict], asked: list[dict]) -> None:
    frame, found = nested(rows)
    types = {"rank": pl.Int32, "pid": pl.Int64, "tid": pl.Int64, "time_ns": pl.Int64}
    assert innermost(frame, pl.DataFrame(asked, schema=types)).to_list() == twins.innermost(found, asked)


ids = st.sampled_from([1, 1, 2, 3, None, -(2**63), 2**63 - 1])
call_rows = st.lists(st.fixed_dictionaries({**places, "start_ns": maybe_times, "correlation_id": ids}), max_size=10)


@pytest.mark.slow
@property_of(rows_of_ranges, call_rows, call_rows, few=100, many=400)
def test_launches(rows: list[dict], calls: list[dict], work: list[dict]) -> None:
    frame, found = nested(rows)

    launched = launches(frame, table("calls", calls), table("work", work))

    called_in = twins.innermost(found, [call | {"time_ns": call["start_ns"]} for call in calls])
    matched = twins.match(calls, work)
    assert launched.calls["range"].to_list() == called_in
    assert list(launched.work.select("call", "ambiguous").iter_rows()) == matched
    assert launched.work["range"].to_list() == [None if call is None else called_in[call] for call, _ in matched]


link_rows = st.lists(
    st.fixed_dictionaries(
        {
            **places,
            "start_ns": maybe_times,
            "seq": st.sampled_from([0, 1, 1, 2, None, 2**63 - 1]),
            "forward_tid": st.sampled_from([None, None, 0, 1, 2, 77]),
            "role": st.sampled_from([0, 1, 1, 2, 2, 3]),
            "name": st.sampled_from([None, 4, 5]),  # 5 is what the backward itself makes
            "parent": st.none() | st.integers(0, 15),
        }
    ),
    max_size=16,
)
HOW = [None, "linked", "ambiguous: several threads used this seq", "ambiguous: the thread used this seq again"]
HOW += ["no forward in the trace", "no seq", "made by the backward itself", "by nesting"]


@property_of(link_rows, few=100, many=400)
def test_link(rows: list[dict]) -> None:
    types = {"rank": pl.Int32, "pid": pl.Int64, "tid": pl.Int64, "start_ns": pl.Int64, "seq": pl.Int64}
    types |= {"forward_tid": pl.Int64, "role": pl.UInt8, "name": pl.UInt32, "parent": pl.UInt32}
    roles = {"is_forward": 1, "is_backward": 2, "is_engine": 3}
    frame = pl.DataFrame(rows, schema=types).with_columns(**{name: pl.col("role") == of for name, of in roles.items()})
    said = {"name": [5], "op": [None], "makes_node": [True], "is_root": [True]}
    names = pl.DataFrame(
        said, schema={"name": pl.UInt32, "op": pl.UInt32, "makes_node": pl.Boolean, "is_root": pl.Boolean}
    )

    found = native.link(frame, names)

    expected = twins.link(rows, [row["role"] == 1 for row in rows], [row["role"] == 2 for row in rows])
    for at, row in enumerate(rows):
        if row["role"] == 2 and row["name"] == 5:
            expected[at] = (None, "made by the backward itself")
        elif row["role"] == 2 and expected[at][1] is None:
            expected[at] = (None, "no seq")
    for engine, row in enumerate(rows):
        if row["role"] == 3:
            inner = (at for at, one in enumerate(rows) if one["parent"] == engine and one["role"] != 3)
            forward = next((expected[at][0] for at in inner if expected[at][0] is not None), None)
            expected[engine] = (None, "no seq") if forward is None else (forward, "by nesting")
    assert [(forward, HOW[how]) for forward, how in found.iter_rows()] == expected


@st.composite
def trees(draw: st.DrawFn) -> list[int | None]:
    """Parents in any order of rows, without a ring."""
    above = [draw(st.none() | st.integers(0, row - 1)) if row else None for row in range(draw(st.integers(0, 14)))]
    to = draw(st.permutations(range(len(above))))
    parents: list[int | None] = [None] * len(above)
    for row, parent in enumerate(above):
        parents[to[row]] = None if parent is None else to[parent]
    return parents


pieces = st.lists(
    st.fixed_dictionaries(
        {"range": st.none() | st.integers(0, 16), "start_ns": maybe_times, "end_ns": maybe_times, "kind": few}
    ),
    max_size=12,
)


@property_of(trees(), pieces, few=100, many=400)
def test_rollup(parents: list[int | None], work: list[dict]) -> None:
    frame = pl.DataFrame({"parent": parents}, schema={"parent": pl.UInt32})
    types = {"range": pl.UInt32, "start_ns": pl.Int64, "end_ns": pl.Int64}
    found = native.rollup(frame, pl.DataFrame([{name: row[name] for name in types} for row in work], schema=types))
    assert list(found.iter_rows()) == twins.rollup(parents, work)


@property_of(trees(), st.data(), few=100, many=400)
def test_nearest(parents: list[int | None], data: st.DataObject) -> None:
    marked = data.draw(st.lists(st.booleans(), min_size=len(parents), max_size=len(parents)))
    frame = pl.DataFrame({"parent": parents}, schema={"parent": pl.UInt32})
    assert nearest(frame, pl.Series(marked, dtype=pl.Boolean)).to_list() == twins.nearest(parents, marked)
