"""Frees are matched with their allocations: the rules by hand, everything else against plain loops."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import strategies as st

from analysis.frames import maybe_times, places, table
from opspan.analysis.allocations import allocations
from properties import property_of

BLOCK = {
    **dict.fromkeys(("rank", "pid", "device_id", "address", "bytes", "alloc_row", "free_row")),
    **dict.fromkeys(("alloc_ns", "free_ns", "tid", "replaced_row")),
}

event_rows = st.lists(
    st.fixed_dictionaries(
        {
            **places,
            "device_id": st.sampled_from([None, None, None, 0]),
            "time_ns": maybe_times,
            "event": st.sampled_from(["alloc", "alloc", "free", "free", "out_of_memory"]),
            "address": st.sampled_from([1, 1, 1, 2, 0, 2**64 - 1, None]),
            "bytes": st.sampled_from([0, 1, 8, 100, 2**40, None, -5]),
        }
    ),
    max_size=14,
)


def is_apart(event: dict) -> bool:
    return event["address"] is None or event["time_ns"] is None


def ordered(events: list[dict]) -> list[int]:
    rows = [row for row, one in enumerate(events) if one["event"] in ("alloc", "free")]
    return sorted(rows, key=lambda row: (events[row]["time_ns"] is None, events[row]["time_ns"] or 0))


def size(event: dict) -> int | None:
    return None if event["bytes"] is None else max(0, event["bytes"])


def by_loops(events: list[dict]) -> list[dict]:
    blocks: list[dict] = []
    open_at: dict[tuple, dict] = {}
    for row in ordered(events):
        one = events[row]
        place = tuple(one[name] for name in ("rank", "pid", "device_id", "address"))
        taken = None if is_apart(one) else open_at.pop(place, None)
        if one["event"] == "free" and taken:
            taken |= {"free_row": row, "free_ns": one["time_ns"]}
            taken["bytes"] = size(one) if taken["bytes"] is None else taken["bytes"]
            continue
        block = BLOCK | {name: one[name] for name in ("rank", "pid", "device_id", "address")} | {"bytes": size(one)}
        if one["event"] == "free":
            block |= {"free_row": row, "free_ns": one["time_ns"]}
        else:
            block |= {"alloc_row": row, "alloc_ns": one["time_ns"], "tid": one["tid"]}
            if taken:
                taken["replaced_row"] = row
            if not is_apart(one):
                open_at[place] = block
        blocks.append(block)
    return blocks


def pairs(*events: tuple[str, int | None, int | None], **more: int) -> list[tuple]:
    """The rows of allocation, free and of what took its place, for (event, time, address) each."""
    names = ("event", "time_ns", "address")
    rows = [dict(zip(names, event, strict=True)) for event in events]
    found = allocations(table("memory", rows, rank=0, pid=1, tid=1, **{"bytes": 8} | more))
    return found.select("alloc_row", "free_row", "replaced_row").rows()


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([("alloc", 1, 7), ("free", 2, 7)], [(0, 1, None)]),
        ([("alloc", 1, 7), ("free", 1, 7)], [(0, 1, None)]),  # at the same time, the first row was first
        ([("free", 2, 7), ("alloc", 1, 7)], [(1, 0, None)]),
        ([("alloc", 1, 7), ("alloc", 2, 8), ("free", 3, 7)], [(0, 2, None), (1, None, None)]),
        ([("free", 1, 7), ("alloc", 2, 7)], [(None, 0, None), (1, None, None)]),  # the block is from before the trace
        ([("alloc", 1, 7), ("free", 2, 7), ("free", 3, 7)], [(0, 1, None), (None, 2, None)]),
        ([("alloc", 1, 7), ("alloc", 2, 7), ("free", 3, 7)], [(0, None, 1), (1, 2, None)]),
        ([("alloc", 1, 7), ("free", 2, 7), ("alloc", 3, 7), ("free", 4, 7)], [(0, 1, None), (2, 3, None)]),
        ([("alloc", 1, None), ("free", 2, None)], [(0, None, None), (None, 1, None)]),
        ([("alloc", None, 7), ("free", 2, 7)], [(None, 1, None), (0, None, None)]),
        ([("alloc", 1, 0), ("out_of_memory", 2, 0), ("usage", 3, 0), ("free", 4, 0)], [(0, 3, None)]),
        ([], []),
    ],
)
def test_a_free_belongs_to_the_last_allocation_of_its_address(events: list[tuple], expected: list[tuple]) -> None:
    assert pairs(*events) == expected


@pytest.mark.parametrize("other", [{"rank": 1}, {"pid": 2}, {"device_id": 0}, {"rank": None}])
def test_an_address_is_one_of_a_process_and_a_device(other: dict) -> None:
    rows = [{"event": "alloc", "time_ns": 1}, {"event": "free", "time_ns": 2} | other]
    found = allocations(table("memory", rows, rank=0, pid=1, address=7))
    assert found.select("alloc_row", "free_row").rows() == [(0, None), (None, 1)]


def test_any_thread_may_free_and_the_block_is_of_the_one_that_allocated() -> None:
    rows = [
        {"event": "alloc", "time_ns": 1, "tid": 5, "bytes": 64},
        {"event": "free", "time_ns": 2, "tid": 6, "bytes": 0},  # as tools write that do not know the size
    ]
    (block,) = allocations(table("memory", rows, rank=0, pid=1, device_id=3, address=7)).to_dicts()
    where = {"rank": 0, "pid": 1, "device_id": 3, "address": 7, "tid": 5}
    assert block == BLOCK | where | {"bytes": 64, "alloc_row": 0, "free_row": 1, "alloc_ns": 1, "free_ns": 2}


@property_of(event_rows, few=80, many=500)
def test_every_pair_by_plain_loops(events: list[dict]) -> None:
    found = allocations(table("memory", events))
    assert found.to_dicts() == by_loops(events)
    assert found.columns == list(BLOCK)
    rows = pl.concat([found["alloc_row"], found["free_row"]]).drop_nulls()
    assert sorted(rows) == sorted(ordered(events)), "each event is in one block"
