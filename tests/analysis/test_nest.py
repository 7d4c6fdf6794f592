"""Nesting by example; test_twins.py has the rest."""

from __future__ import annotations

import polars as pl

from analysis.frames import ranges
from opspan.analysis import nest


def tree(frame: pl.DataFrame) -> dict[str, tuple]:
    """name -> (name of the parent, depth, self time)"""
    found = nest(frame)
    names = found["name"].cast(pl.String)
    return {
        name: (None if parent is None else names[parent], depth, own)
        for name, parent, depth, own in zip(names, found["parent"], found["depth"], found["self_ns"], strict=True)
    }


def test_children_take_their_time_from_the_parent_alone() -> None:
    frame = ranges(("child", 10, 40), ("root", 0, 100), ("grandchild", 20, 30), ("second", 40, 60))

    assert tree(frame) == {
        "root": (None, 0, 50),
        "child": ("root", 1, 20),
        "grandchild": ("child", 2, 10),
        "second": ("root", 1, 20),
    }


def test_threads_processes_and_ranks_do_not_mix() -> None:
    where = {"start_ns": 10, "end_ns": 20}
    others = [{"tid": 2}, {"pid": 2}, {"rank": 1}]
    frame = ranges(("root", 0, 100), *({"name": str(row), **where, **other} for row, other in enumerate(others)))

    assert [parent for parent, _, _ in tree(frame).values()] == [None] * 4


def test_domains_share_the_tree_of_their_thread() -> None:
    frame = ranges(
        ("aten::all_reduce", 0, 100), {"name": "ncclAllReduce", "start_ns": 10, "end_ns": 50, "domain": "NCCL"}
    )

    assert tree(frame) == {"aten::all_reduce": (None, 0, 60), "ncclAllReduce": ("aten::all_reduce", 1, 40)}


def test_a_range_that_crosses_the_end_of_another_stands_outside() -> None:
    frame = ranges(("phase", 0, 50), ("op", 40, 90), ("in both", 42, 48), ("in op", 60, 70))

    found = nest(frame)

    assert tree(frame)["op"] == (None, 0, None)
    assert tree(frame)["in both"] == ("phase", 1, 6)
    assert tree(frame)["in op"] == (None, 0, 10)
    assert found["overlaps"].to_list() == [False, True, False, False]
    assert found["is_async"].to_list() == [False, True, False, False]


def test_a_start_end_range_is_in_nobodys_way() -> None:
    frame = ranges({"name": "epoch", "start_ns": 0, "end_ns": 50, "is_async": True}, ("op", 40, 90), ("inner", 60, 70))

    assert tree(frame) == {"epoch": (None, 0, None), "op": (None, 0, 40), "inner": ("op", 1, 10)}


def test_a_range_that_another_thread_ended_is_async() -> None:
    frame = ranges(
        {"name": "a", "start_ns": 0, "end_ns": 9, "end_tid": 2}, {"name": "b", "start_ns": 1, "end_ns": 9, "end_tid": 1}
    )

    assert nest(frame)["is_async"].to_list() == [True, False]


def test_a_mark_has_a_parent_and_no_time() -> None:
    frame = ranges(
        ("op", 0, 10),
        {"name": "mark", "start_ns": 0, "is_mark": True},
        {"name": "after", "start_ns": 10, "is_mark": True},
    )

    assert tree(frame) == {"op": (None, 0, 10), "mark": ("op", 1, 0), "after": (None, 0, 0)}
    assert nest(frame)["end_ns"].to_list() == [10, None, None]


def test_open_ranges_end_with_the_trace() -> None:
    frame = ranges(("step", 0, None), ("op", 10, 20))

    found = nest(frame, end_ns=500)

    assert found["end_ns"].to_list() == [500, 20]
    assert found["is_open"].to_list() == [True, False]
    assert found["parent"].to_list() == [None, 0]


def test_an_open_range_inside_one_of_its_stack_ended_with_it() -> None:
    # Else one lost pop would take every launch to the end of the trace.
    frame = ranges(
        ("step", 0, 100), ("lost", 10, None), {"name": "ncclSend", "domain": "NCCL", "start_ns": 20}, ("next", 200, 300)
    )

    found = nest(frame)

    assert found["end_ns"].to_list() == [100, 100, 300, 300]
    assert found["overlaps"].to_list() == [False, False, True, False]


def test_what_an_open_range_really_lasted_decides_what_is_inside_what() -> None:
    frame = ranges(
        {"name": "phase", "domain": "a", "start_ns": 0, "end_ns": 6},
        ("overlapping", 4, 10),
        ("lost", 7, None),  # with "overlapping", at 10
        {"name": "longer", "domain": "b", "start_ns": 7, "end_ns": 20},
    )
    assert nest(frame)["parent"].to_list() == [None, None, 3, None]


def test_rows_of_no_known_thread_are_kept_apart() -> None:
    frame = ranges(("root", 0, 100), {"name": "a", "start_ns": 10, "end_ns": 20, "tid": None})

    assert tree(frame) == {"root": (None, 0, 100), "a": (None, 0, None)}
    assert nest(frame)["is_async"].to_list() == [False, True]
