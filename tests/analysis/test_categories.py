"""Categories of memory: one case of each by hand, everything else against plain loops."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import strategies as st

import twins
from analysis.frames import nested_rows, table
from opspan.analysis.autograd import autograd
from opspan.analysis.categories import categories
from opspan.analysis.nest import ADDED, nest
from properties import property_of

ACCUMULATE = "torch::autograd::AccumulateGrad"


def of_each_address(ranges: list[tuple], *lives: tuple[int, int | None]) -> list[str | None]:
    """The category of memory that was taken and given back at these times; ranges are name, kind, start, end, seq."""
    names = ("name", "kind", "start_ns", "end_ns", "seq")
    here = {"rank": 0, "pid": 1, "tid": 1}
    rows = [
        here | {"is_async": False, "is_mark": False, "forward_tid": 1} | dict(zip(names, row, strict=True))
        for row in ranges
    ]
    events = [
        here | {"event": event, "time_ns": time, "address": address, "bytes": 8}
        for address, life in enumerate(lives)
        for event, time in zip(("alloc", "free"), life, strict=True)
        if time is not None
    ]
    frame = table("memory", events)
    found = frame.with_columns(categories(autograd(nest(table("ranges", rows))), frame))
    assert found.group_by("address").agg(pl.col("category").n_unique())["category"].to_list() == [1] * len(lives)
    return found.filter(event="alloc")["category"].to_list()


TRAINING = [
    ("aten::linear", "op", 10, 20, None),
    ("aten::addmm", "op", 11, 19, 7),
    ("autograd::engine::evaluate_function: AddmmBackward0", "engine", 30, 40, None),
    ("AddmmBackward0", "backward", 31, 38, 7),
    (f"autograd::engine::evaluate_function: {ACCUMULATE}", "engine", 41, 50, None),
    (ACCUMULATE, "backward", 42, 48, None),
    ("Optimizer.step#Adam.step", "user", 60, 70, None),
    ("aten::sqrt", "op", 61, 64, None),
    ("aten::zeros_like", "op", 65, 66, None),
]


@pytest.mark.parametrize(
    ("life", "category"),
    [
        ((12, 18), "temporary"),
        ((12, 20), "temporary"),  # to the very end of the outermost op
        ((12, 39), "activation"),
        ((12, None), "activation"),
        ((32, 36), "temporary"),
        ((32, 39), "autograd_detail"),  # the engine's own range is no op
        ((32, 80), "gradient"),
        ((32, None), "gradient"),
        ((32, 45), None),  # AccumulateGrad has added it, or a hook has let go of it
        ((44, None), None),  # AccumulateGrad's copy
        ((44, 49), None),  # and one that the engine lets go of after it
        ((65, None), "optimizer_state"),
        ((65, 75), "optimizer_state"),
        ((62, 68), None),
        ((5, 39), None),  # in no op: parameters, inputs
    ],
)
def test_memory_of_a_step_of_training(life: tuple[int, int | None], category: str | None) -> None:
    assert of_each_address(TRAINING, life) == [category]


def test_a_backward_that_is_differentiated_and_what_is_resized_say_nothing() -> None:
    twice = [
        ("aten::pow", "op", 0, 5, 1),
        ("PowBackward0", "backward", 10, 20, 1),
        ("aten::mul", "op", 11, 15, 2),
        ("MulBackward0", "backward", 30, 40, 2),
    ]
    assert of_each_address(twice, (12, 50), (16, 50)) == [None, "gradient"]
    resized = [("aten::cat", "op", 0, 9, None), ("aten::resize_", "op", 1, 5, None)]
    assert of_each_address(resized, (2, 8), (6, 8)) == [None, "temporary"]


def test_without_addresses_nobody_can_say_when_it_was_given_back() -> None:
    here = {"rank": 0, "pid": 1, "tid": 1, "is_async": False, "is_mark": False}
    ranges = table("ranges", [here | {"name": "aten::mm", "kind": "op", "start_ns": 0, "end_ns": 9}])
    events = [here | {"event": event, "time_ns": time, "bytes": 8} for event, time in (("alloc", 1), ("free", 2))]
    for address, category in ((7, "temporary"), (None, None)):
        frame = table("memory", events, address=address)
        assert categories(autograd(nest(ranges)), frame).to_list() == [category, category]


NAMES = (
    ("op", "aten::mul"),
    ("op", "Function"),
    ("op", "aten::resize_"),
    ("backward", "MulBackward0"),
    ("backward", ACCUMULATE),
    ("engine", "evaluate"),
    ("user", "Optimizer.step#SGD.step"),
    ("user", "block"),
)
event_rows = st.lists(
    st.fixed_dictionaries(
        {
            "rank": st.just(0),
            "pid": st.sampled_from([1, 1, 1, 2]),
            "tid": st.sampled_from([1, 1, 2]),
            "time_ns": st.none() | st.integers(0, 14) | st.integers(0, 14),
            "event": st.sampled_from(["alloc", "alloc", "free", "free", "out_of_memory"]),
            "address": st.integers(0, 2),
            "bytes": st.just(8),
        }
    ),
    max_size=10,
)


@property_of(nested_rows(), event_rows, st.data(), few=60, many=400)
def test_every_category_by_plain_loops(rows: list[dict], events: list[dict], data: st.DataObject) -> None:
    for row in rows:
        row["kind"], row["name"] = data.draw(st.sampled_from(NAMES))
    forward = [data.draw(st.sampled_from([None, None, *range(len(rows))])) for _ in rows]
    frame = nest(table("ranges", rows)).with_columns(forward=pl.Series(forward, dtype=pl.UInt32))
    found = [row | {"forward": link} for row, link in zip(rows, forward, strict=True)]
    found = [row | more for row, more in zip(found, frame.select(ADDED).to_dicts(), strict=True)]

    assert categories(frame, table("memory", events)).to_list() == by_loops(found, events)


def by_loops(ranges: list[dict], events: list[dict]) -> list[str | None]:
    inside = twins.innermost(ranges, events)
    said: list[str | None] = [None] * len(events)
    order = [row for row, one in enumerate(events) if one["time_ns"] is not None and one["event"] != "out_of_memory"]
    order.sort(key=lambda row: events[row]["time_ns"])
    for place, row in enumerate(order):
        one = events[row]
        if one["event"] != "alloc":
            continue
        same = [later for later in order[place + 1 :] if all(events[later][k] == one[k] for k in ("pid", "address"))]
        gone = same[0] if same and events[same[0]]["event"] == "free" else None
        time = None if gone is None else events[gone]["time_ns"]
        around_gone = [] if gone is None else around(ranges, inside[gone])
        category = category_of(around(ranges, inside[row]), time, around_gone)
        for said_of in (row, gone):
            if said_of is not None:
                said[said_of] = category
    return said


def around(ranges: list[dict], row: int | None) -> list[dict]:
    """From the innermost out."""
    found = []
    while row is not None:
        found.append(ranges[row] | {"is_forward": any(one["forward"] == row for one in ranges)})
        row = ranges[row]["parent"]
    return found


def category_of(taken: list[dict], gone: int | None, given_back: list[dict]) -> str | None:
    ops = [one for one in taken if one["kind"] == "backward" or (one["kind"] == "op" and "::" in one["name"])]
    steps = [one for one in taken if one["name"].startswith("Optimizer.step#")]
    if taken and taken[0]["name"] == "aten::resize_":
        return None
    if ops and gone is not None and gone <= ops[-1]["end_ns"]:
        return "temporary"
    is_forward = any(one["is_forward"] for one in taken)
    if any(one["kind"] in ("backward", "engine") for one in taken):
        if is_forward or any(one["name"] == ACCUMULATE for one in [*taken, *given_back]):
            return None
        in_backward = any(one["kind"] in ("backward", "engine") for one in given_back)
        return "autograd_detail" if in_backward else "gradient"
    if is_forward:
        return "activation"
    return "optimizer_state" if steps and (gone is None or gone > steps[0]["end_ns"]) else None
