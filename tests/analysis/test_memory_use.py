"""Memory in use: the curve, the ops that took it and the peak. By hand, and against plain loops."""

from __future__ import annotations

from collections import defaultdict
from itertools import accumulate
from typing import Any

import polars as pl
import pytest
from hypothesis import strategies as st

import twins
from analysis.frames import nested_rows, range_rows, ranges, table
from analysis.test_allocations import by_loops as blocks_by_loops
from analysis.test_allocations import event_rows, ordered, size
from opspan.analysis.memory_use import SUMS, at_peak, curve, operators, peaks
from opspan.analysis.nest import ADDED, nest
from properties import property_of

WHERE = ("rank", "pid", "device_id")
HERE = {"rank": 0, "pid": 1, "tid": 1}
FIGURES = ("calls", *SUMS, *(f"self_{name}" for name in SUMS))


def events(*rows: tuple[str, int | None, int | None, int | None], **more: Any) -> pl.DataFrame:
    """The table memory of (event, time, address, bytes) each."""
    names = ("event", "time_ns", "address", "bytes")
    return table("memory", [dict(zip(names, row, strict=True)) for row in rows], **HERE | more)


def in_use(frame: pl.DataFrame) -> list[tuple]:
    return curve(frame).select("time_ns", "row", "allocated_bytes").rows()


# --- the curve


def test_the_curve_is_what_there_was_after_each_event() -> None:
    found = in_use(events(("alloc", 5, 1, 100), ("alloc", 6, 2, 10), ("free", 8, 1, 100), ("alloc", 7, 3, 0)))
    assert found == [(5, None, 0), (5, 0, 100), (6, 1, 110), (7, 3, 110), (8, 2, 10)]


def test_what_is_freed_without_an_allocation_was_there_from_the_beginning() -> None:
    assert in_use(events(("alloc", 5, 1, 100), ("free", 6, 2, 30))) == [(5, None, 30), (5, 0, 130), (6, 1, 100)]
    (top,) = peaks(events(("free", 6, 2, 30), ("alloc", 7, 1, 10))).to_dicts()
    assert (top["time_ns"], top["row"], top["allocated_bytes"]) == (6, None, 30)


def test_a_block_whose_free_was_lost_is_gone_when_its_address_is_allocated_again() -> None:
    assert in_use(events(("alloc", 5, 1, 100), ("alloc", 6, 1, 30))) == [(5, None, 0), (5, 0, 100), (6, 1, 30)]


def test_a_block_leaves_with_the_bytes_that_it_came_with() -> None:
    assert in_use(events(("alloc", 5, 1, 100), ("free", 6, 1, 0)))[-1] == (6, 1, 0)
    assert in_use(events(("alloc", 5, 1, None), ("free", 6, 1, 40))) == [(5, None, 0), (5, 0, 40), (6, 1, 0)]


def test_without_addresses_there_was_as_much_before_as_keeps_it_from_being_less_than_nothing() -> None:
    frame = events(("alloc", 5, None, 10), ("free", 6, None, 30), ("alloc", 7, None, 5))
    assert in_use(frame) == [(5, None, 20), (5, 0, 30), (6, 1, 0), (7, 2, 5)]
    assert peaks(frame)["allocated_bytes"].to_list() == [30]
    assert at_peak(nest(ranges()), frame).is_empty(), "nobody knows which of them were there"


def test_events_without_a_time_are_not_in_the_curve() -> None:
    assert in_use(events(("alloc", None, 1, 10), ("alloc", 5, 2, 1))) == [(5, None, 0), (5, 1, 1)]
    nothing = events(("alloc", None, 1, 10))
    assert curve(nothing).is_empty()
    assert peaks(nothing).is_empty()
    assert at_peak(nest(ranges(("a", 0, 9))), nothing).is_empty()


def test_devices_and_processes_have_curves_of_their_own() -> None:
    rows = [
        {"event": "alloc", "time_ns": 1, "address": 1, "bytes": 5} | where
        for where in ({}, {"device_id": 0}, {"device_id": 1}, {"pid": 2}, {"rank": 1})
    ]
    found = curve(table("memory", rows, **HERE))
    assert found.filter(pl.col("row").is_not_null())["allocated_bytes"].to_list() == [5] * 5
    assert peaks(table("memory", rows, **HERE)).select(WHERE).rows() == [
        (0, 1, None),
        (0, 1, 0),
        (0, 1, 1),
        (0, 2, None),
        (1, 1, None),
    ]


def test_what_was_reserved_holds_until_something_else_is_said() -> None:
    frame = events(("alloc", 5, 1, 10), ("alloc", 6, 2, 10), ("free", 7, 1, 10), device_id=0, total_bytes=900)
    said = {"name": "reserved bytes", "domain": "torch allocator", "device_id": 0}
    counters = table(
        "counters",
        [
            said | {"time_ns": 5, "value": 2048.0},
            said | {"time_ns": 7, "value": 4096.0},
            said | {"time_ns": 6, "value": 1.0, "device_id": 1},
            said | {"time_ns": 6, "value": 1.0, "domain": "mine"},
            said | {"time_ns": 6, "value": 1.0, "name": "other"},
            said | {"time_ns": None, "value": 1.0},
        ],
        **HERE,
    )
    found = curve(frame, counters)
    assert found["reserved_bytes"].to_list() == [2048, 2048, 2048, 4096]
    assert found["total_bytes"].to_list() == [None, 900, 900, 900]
    assert curve(frame)["reserved_bytes"].to_list() == [None] * 4
    assert peaks(frame, counters)["reserved_bytes"].to_list() == [2048]
    assert curve(frame, counters.clear()).equals(curve(frame))


# --- ops


def of_ops(frame: pl.DataFrame) -> dict[tuple, tuple]:
    rows = frame.select("name", "device_id", *FIGURES).rows()
    return {(name, device): tuple(figures) for name, device, *figures in rows}


def test_memory_is_of_the_innermost_range_and_of_all_around_it() -> None:
    frame = nest(ranges(("model", 0, 100), ("aten::ones", 10, 20), ("aten::empty", 11, 15), ("aten::empty", 30, 40)))
    happened = events(
        ("alloc", 12, 1, 100), ("alloc", 17, 2, 7), ("free", 18, 2, 7), ("alloc", 31, 3, 50), ("free", 50, 1, 100)
    )
    assert of_ops(operators(frame, happened)) == {
        ("aten::empty", None): (2, 150, 2, 150, 150, 2, 150),
        ("aten::ones", None): (1, 100, 2, 107, 0, 1, 7),
        ("model", None): (1, 50, 3, 157, -100, 0, 0),
    }


def test_a_range_inside_another_of_its_name_counts_once() -> None:
    frame = nest(ranges(("block", 0, 50), ("block", 1, 40), ("aten::add", 2, 10)))
    found = of_ops(operators(frame, events(("alloc", 3, 1, 8), ("alloc", 20, 2, 4))))
    assert found == {("aten::add", None): (1, 8, 1, 8, 8, 1, 8), ("block", None): (2, 12, 2, 12, 4, 1, 4)}


LATER = {"name": "block", "start_ns": 5, "end_ns": 15}
APART = {"is_async": True}


@pytest.mark.parametrize(
    ("rows", "calls", "size"),
    [
        ([("block", 0, 10), LATER], 2, 112),  # it ends after the other: neither is in the other
        ([{**LATER, **APART, "start_ns": 0, "end_ns": 20}, LATER], 2, 112),  # an async range contains nothing
        ([("block", 0, 20), {**LATER, **APART, "start_ns": 2, "end_ns": 4}, LATER], 3, 112),
        ([("block", 5, 10), ("block", 5, 15)], 2, 12),
    ],
)
def test_memory_counts_once_for_a_name_however_its_ranges_lie(rows: list, calls: int, size: int) -> None:
    frame = nest(ranges(*rows))
    found = of_ops(operators(frame, events(("alloc", 3, 1, 100), ("alloc", 7, 2, 8), ("alloc", 12, 3, 4))))
    assert found["block", None][:2] == (calls, size)


def test_memory_outside_of_all_ranges_has_no_name_and_threads_and_devices_are_apart() -> None:
    frame = nest(ranges(("aten::add", 0, 10), {"name": "aten::add", "start_ns": 5, "is_mark": True}))
    rows = [
        {"tid": 2, "time_ns": 3},  # another thread
        {"time_ns": 10},  # the range has ended
        {"time_ns": None},
        {"time_ns": 4, "device_id": 0},
        {"time_ns": 4, "device_id": 0, "event": "usage"},
    ]
    happened = table("memory", rows, **HERE | {"event": "alloc", "bytes": 8, "address": 1})
    assert of_ops(operators(frame, happened)) == {
        (None, None): (0, 24, 3, 24, 24, 3, 24),
        ("aten::add", 0): (1, 8, 1, 8, 8, 1, 8),
    }


# --- the peak


def test_the_peak_has_the_blocks_of_then_the_largest_first() -> None:
    frame = nest(ranges(("model", 0, 100), ("aten::mm", 10, 20), ("aten::add", 30, 40)))
    frame = frame.with_columns(module=pl.Series(["Net", "Net.fc", None]), phase=pl.lit("forward"))
    happened = events(
        ("alloc", 11, 1, 100),
        ("alloc", 12, 2, 500),
        ("free", 15, 2, 500),
        ("alloc", 31, 3, 450),
        ("alloc", 31, 4, 50),
        ("free", 31, 1, 100),
        ("free", 60, 9, 70),
        ("alloc", 61, 5, 30),
    )
    found = at_peak(frame, happened)
    assert found.columns[-4:] == ["range", "name", "module", "phase"]
    assert found.select("peak_ns", "peak_bytes").unique().rows() == [(12, 670)]
    happened = happened.with_columns(bytes=pl.when(pl.col("address") == 4).then(51).otherwise("bytes"))
    found = at_peak(frame, happened)
    assert found.select("peak_ns", "peak_bytes").unique().rows() == [(31, 671)], "the free of that time came later"
    assert found.select("bytes", "alloc_row", "alloc_ns", "name", "module", "phase").rows() == [
        (450, 3, 31, "aten::add", None, "forward"),
        (100, 0, 11, "aten::mm", "Net.fc", "forward"),
        (70, None, None, None, None, None),
        (51, 4, 31, "aten::add", None, "forward"),
    ]


def test_a_block_whose_address_is_allocated_again_is_not_among_those_of_the_peak() -> None:
    found = at_peak(nest(ranges()), events(("alloc", 5, 1, 100), ("alloc", 6, 1, 300)))
    assert found.select("peak_bytes", "bytes").rows() == [(300, 300)]


# --- plain loops


on_one_thread = st.lists(
    st.fixed_dictionaries(
        {
            **{name: st.just(value) for name, value in HERE.items()},
            **dict.fromkeys(("end_tid", "domain"), st.none()),
            **dict.fromkeys(("start_ns", "end_ns"), st.integers(0, 12)),
            "is_async": st.sampled_from([False] * 4 + [True]),
            "is_mark": st.just(False),
        }
    ),
    min_size=2,
    max_size=8,
)
here = st.lists(
    st.fixed_dictionaries(
        {
            **{name: st.just(value) for name, value in HERE.items()},
            "device_id": st.sampled_from([None, 0]),
            "time_ns": st.integers(0, 12),
            "event": st.sampled_from(["alloc", "free"]),
            "address": st.integers(0, 2),
            "bytes": st.sampled_from([1, 10, 100]),
        }
    ),
    min_size=1,
    max_size=8,
)


def curve_by_loops(rows: list[dict]) -> dict[tuple, list[tuple]]:
    """For each place (time, row, bytes) before the first event and after each."""
    order = [row for row in ordered(rows) if rows[row]["time_ns"] is not None]
    blocks = [one for one in blocks_by_loops(rows) if one["address"] is not None]
    found = {}
    for place in {tuple(rows[row][name] for name in WHERE) for row in order}:
        here = [row for row in order if tuple(rows[row][name] for name in WHERE) == place]
        mine = [one for one in blocks if tuple(one[name] for name in WHERE) == place]
        signs = [
            (size(rows[row]) or 0) * (-1 if rows[row]["event"] == "free" else 1) * (rows[row]["address"] is None)
            for row in here
        ]
        least = min(0, *accumulate(signs))
        states = [(None, 0), *zip(here, accumulate(signs), strict=True)]
        found[place] = [
            (
                rows[here[0] if row is None else row]["time_ns"],
                row,
                unpaired - least + sum(one["bytes"] or 0 for one in alive_by_loops(mine, order, row)),
            )
            for row, unpaired in states
        ]
    return found


def alive_by_loops(blocks: list[dict], order: list[int], at: int | None) -> list[dict]:
    """After the event in row `at`; None: before all."""
    happened = order[: 0 if at is None else order.index(at) + 1]
    return [
        one
        for one in blocks
        if one["alloc_ns"] is not None or one["free_ns"] is not None
        if one["alloc_row"] is None or one["alloc_row"] in happened
        if one["free_row"] not in happened and one["replaced_row"] not in happened
    ]


@property_of(event_rows | here, few=60, many=400)
def test_the_curve_by_plain_loops(rows: list[dict]) -> None:
    frame = table("memory", rows)
    found: dict[tuple, list[tuple]] = defaultdict(list)
    for one in curve(frame).to_dicts():
        found[tuple(one[name] for name in WHERE)].append((one["time_ns"], one["row"], one["allocated_bytes"]))
    expected = curve_by_loops(rows)
    assert found == expected
    assert all(used >= 0 for states in expected.values() for _, _, used in states)


def nested(rows: list[dict], data: st.DataObject) -> tuple[pl.DataFrame, list[dict]]:
    for row in rows:
        row["name"] = data.draw(st.sampled_from(["aten::mm", "aten::mm", "model", "step", None]))
    frame = nest(table("ranges", rows))
    return frame, [row | more for row, more in zip(rows, frame.select(ADDED).to_dicts(), strict=True)]


@property_of(nested_rows() | range_rows() | on_one_thread, event_rows | here, st.data(), few=60, many=400)
def test_the_ops_by_plain_loops(rows: list[dict], happened: list[dict], data: st.DataObject) -> None:
    frame, found = nested(rows, data)
    expected: dict[tuple, list[int]] = {}
    for one, inner in zip(happened, twins.innermost(found, happened), strict=True):
        if one["event"] not in ("alloc", "free"):
            continue
        names, at = set(), inner
        while at is not None:
            names.add(found[at]["name"])
            at = found[at]["parent"]
        taken = size(one) or 0
        change = [taken, 1, taken] if one["event"] == "alloc" else [-taken, 0, 0]
        own = None if inner is None else found[inner]["name"]
        for name in names or {None}:
            calls = sum(row["name"] == name and row["rank"] == one["rank"] and not row["is_mark"] for row in rows)
            sums = expected.setdefault((one["rank"], one["device_id"], name), [calls, *[0] * 6])
            for place, by in enumerate(change):
                sums[1 + place] += by
                sums[4 + place] += by * (name == own)
    table_of_ops = operators(frame, table("memory", happened))
    assert {row[:3]: list(row[3:]) for row in table_of_ops.rows()} == expected
    assert table_of_ops.columns == ["rank", "device_id", "name", *FIGURES]
    keys = [(-row[9], -row[6], -row[3]) for row in table_of_ops.rows()]
    assert keys == sorted(keys)


@property_of(nested_rows() | range_rows() | on_one_thread, event_rows | here, st.data(), few=60, many=400)
def test_the_peak_by_plain_loops(rows: list[dict], happened: list[dict], data: st.DataObject) -> None:
    frame, found = nested(rows, data)
    inside = twins.innermost(found, happened)
    order = [row for row in ordered(happened) if happened[row]["time_ns"] is not None]
    known = [one for one in blocks_by_loops(happened) if one["address"] is not None]
    expected = {}
    for place, states in curve_by_loops(happened).items():
        time, row, used = max(states, key=lambda state: state[2])  # max returns the first of equal states
        mine = [one for one in known if tuple(one[name] for name in WHERE) == place]
        alive = alive_by_loops(mine, order, row)
        alive.sort(key=lambda one: (one["bytes"] is None, -(one["bytes"] or 0)))
        expected[place] = [
            (time, used, one["address"], one["bytes"], one["alloc_row"], at, None if at is None else rows[at]["name"])
            for one in alive
            for at in [None if one["alloc_row"] is None else inside[one["alloc_row"]]]
        ]
    listed: dict[tuple, list[tuple]] = defaultdict(list)
    columns = ("peak_ns", "peak_bytes", "address", "bytes", "alloc_row", "range", "name")
    for one in at_peak(frame, table("memory", happened)).to_dicts():
        listed[tuple(one[name] for name in WHERE)].append(tuple(one[name] for name in columns))
    assert listed == {place: alive for place, alive in expected.items() if alive}
