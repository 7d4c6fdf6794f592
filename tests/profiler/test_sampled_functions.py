"""Python tracks of a Chrome trace, made from the stacks of ops: against a twin that goes through the ops one by one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import opspan
from opspan.emit import python_frames
from opspan.profiler.sampled_functions import functions
from opspan.tables import Metadata, Tables, schema
from opspan.trace import Trace

FRAMES = st.builds(lambda name, line: f"{name}.py({line}): {name}", st.sampled_from("abc"), st.integers(1, 3))
STACKS = st.lists(FRAMES, min_size=1, max_size=4).map("\n".join)
OPS = st.lists(st.tuples(st.integers(1, 2), st.none() | STACKS, st.integers(1, 5)), max_size=20)


def trace_of(ops: list[tuple[int, str | None, int]]) -> Trace:
    rows = [
        {"rank": 0, "pid": 1, "tid": tid, "start_ns": 10 * at, "end_ns": 10 * at + length, "stack": stack}
        for at, (tid, stack, length) in enumerate(ops)
    ]
    ranges = pl.DataFrame(rows, schema_overrides={"stack": schema.NAME})
    dtypes = schema.TABLES["ranges"].schema
    frame = (
        pl.DataFrame(schema=dtypes)
        if not rows
        else ranges.select(
            (pl.col(name) if name in ranges.columns else pl.lit(None)).cast(dtype).alias(name)
            for name, dtype in dtypes.items()
        )
    )
    return Trace.of(Tables((Metadata("capture"),), ranges=frame))


def by_hand(ops: list[tuple[int, str | None, int]]) -> list[tuple[Any, ...]]:
    """Returns (thread, begin, end, depth, function) of each call."""
    calls: list[list[Any]] = []
    open_calls: dict[int, list[tuple[Any, list[Any]]]] = {1: [], 2: []}
    for at, (tid, stack, length) in enumerate(ops):
        if stack is None:
            continue
        frames = stack.split("\n")
        wanted = [(tuple(frames[:depth]), frame.partition("(")[0]) for depth, frame in enumerate(frames)]
        stay = 0
        while stay < min(len(wanted), len(open_calls[tid])) and open_calls[tid][stay][0] == wanted[stay]:
            stay += 1
        del open_calls[tid][stay:]
        for depth in range(stay, len(wanted)):
            call = [tid, 10 * at, 0, depth, wanted[depth][1].partition(".")[0]]
            calls.append(call)
            open_calls[tid].append((wanted[depth], call))
        for _, call in open_calls[tid]:
            call[2] = max(call[2], 10 * at + length)
    return sorted(map(tuple, calls))


@settings(deadline=None, max_examples=60)
@given(OPS)
def test_calls_are_those_of_the_twin(ops: list[tuple[int, str | None, int]]) -> None:
    rows = functions(trace_of(ops))
    parents = dict(zip(rows["id"], rows["parent_id"], strict=True))

    def depth(row: int) -> int:
        return 0 if parents[row] is None else 1 + depth(parents[row])

    found = [
        (row["tid"], row["start_ns"], row["end_ns"], depth(row["id"]), row["name"].rpartition(" ")[2])
        for row in rows.iter_rows(named=True)
    ]
    assert sorted(found) == by_hand(ops)
    for row in rows.iter_rows(named=True):
        if row["parent_id"] is not None:
            parent = rows.row(row["parent_id"], named=True)
            assert parent["tid"] == row["tid"]
            assert parent["start_ns"] <= row["start_ns"] <= row["end_ns"] <= parent["end_ns"]


def test_a_function_has_one_name_the_first_of_its_lines_that_were_seen() -> None:
    rows = functions(trace_of([(1, "f.py(7): f", 1), (1, "g.py(1): g", 1), (1, "f.py(5): f", 1)]))
    assert rows["name"].to_list() == ["f.py(5): f", "g.py(1): g", "f.py(5): f"]


def test_names_in_another_form_are_kept() -> None:
    rows = functions(trace_of([(1, "<built-in>\nodd (name)", 1)]))
    assert rows["name"].to_list() == ["<built-in>", "odd (name)"]


@pytest.mark.skipif(bool(python_frames.why_not()), reason=python_frames.why_not())
def test_a_chrome_trace_with_stacks_has_python_tracks(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    file = tmp_path / "trace.json"
    with opspan.profiler.profile(with_stack=True) as profile:
        torch.ones(2)
    profile.export_chrome_trace(file)

    events = [event for event in json.loads(file.read_text())["traceEvents"] if event.get("cat") == "python_function"]
    name = "test_a_chrome_trace_with_stacks_has_python_tracks"
    (test,) = [event for event in events if event["name"].endswith(name)]
    ids = {event["args"]["Python id"]: event for event in events}
    assert ids[test["args"]["Python parent id"]]["ts"] <= test["ts"]
    # opspan reads its own file back as it was recorded: these calls are not recorded.
    again = opspan.load(file)
    assert again.functions.is_empty()
    assert again.ranges["stack"].to_list() == profile.trace.ranges["stack"].to_list()
