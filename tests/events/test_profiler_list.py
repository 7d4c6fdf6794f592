"""The list that torch.profiler would have made of a trace, against its own way over objects: link, then fold."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opspan.events import EventList, FunctionEvent, profiler_events_of, tree
from opspan.tables import Metadata
from opspan.trace import Trace
from properties import property_of

# Tables in the order in which what begins and ends together is nested.
TABLES = ("functions", "ranges", "calls")
spans = st.tuples(
    st.sampled_from(TABLES), st.sampled_from("ab"), st.integers(1, 2), st.integers(0, 12), st.integers(0, 8)
)


Row = tuple[str, str, int, int, int]


def on_threads_of_their_own(several: list[list[Row]]) -> list[Row]:
    return [(of, name, 10 * number + tid, *when) for number, one in enumerate(several) for of, name, tid, *when in one]


# A trace takes as long to make for many rows as for few: several examples at once, which share no thread.
several = st.lists(st.lists(spans, max_size=12), min_size=1, max_size=6).map(on_threads_of_their_own)


def trace_of(rows: list[Row]) -> Trace:
    frames = {}
    for table in TABLES:
        found = [
            (0, 1, tid, 1000 * start, 1000 * (start + length), name)
            for of, name, tid, start, length in rows
            if of == table
        ]
        schema = {
            "rank": pl.Int32,
            **dict.fromkeys(("pid", "tid", "start_ns", "end_ns"), pl.Int64),
            "name": pl.Categorical,
        }
        frame = pl.DataFrame(found, schema=schema, orient="row")
        frames[table] = frame.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("id"))
    return Trace((Metadata("test"),), **frames)


def twin(rows: list[Row]) -> list[FunctionEvent]:
    ordered = [row for table in TABLES for row in rows if row[0] == table]
    events = [
        FunctionEvent(n, name, tid, start, start + length) for n, (_, name, tid, start, length) in enumerate(ordered)
    ]
    events.sort(key=lambda event: (event.time_range.start, -event.time_range.end))
    tree.link(events)
    return tree.without_duplicates(events)


@pytest.mark.slow
@settings(max_examples=75)
@given(rows=several)
def test_events_parents_and_own_times_are_those_of_torchs_way(rows: list[Row]) -> None:
    def said(event: FunctionEvent) -> tuple[object, ...]:
        parent = event.cpu_parent
        own = round(event.self_cpu_time_total)
        around = None if parent is None else (parent.name, round(parent.time_range.start), round(parent.time_range.end))
        return event.name, event.thread, round(event.time_range.start), round(event.time_range.end), own, around

    ours = profiler_events_of(trace_of(rows).analysed)
    assert sorted(map(said, ours), key=repr) == sorted(map(said, twin(rows)), key=repr)


@pytest.mark.slow
@settings(max_examples=25)
@given(rows=several)
def test_averages_leave_pythons_functions_out_unless_asked_for(rows: list[Row]) -> None:
    """In columns as over objects."""
    columns = profiler_events_of(trace_of(rows).analysed)
    objects = EventList(profiler_events_of(trace_of(rows).analysed))
    objects._tree_built = True

    def said(events: EventList, python: bool) -> list[tuple[object, ...]]:
        averages = events.key_averages(include_python_functions=python)
        return [(one.key, one.count, one.cpu_time_total, one.self_cpu_time_total) for one in averages]

    assert said(columns, python=False) == said(objects, python=False)
    assert said(columns, python=True) == said(objects, python=True)
    counted = sum(average.count for average in columns.key_averages())
    assert counted == sum(not event.is_python_function for event in columns)
    assert sum(average.count for average in columns.key_averages(include_python_functions=True)) == len(columns)


def test_work_of_a_folded_op_is_its_parents() -> None:
    trace = trace_of([("ranges", "a", 1, 0, 10), ("ranges", "a", 1, 1, 5), ("calls", "launch", 1, 2, 1)])
    work = {"rank": [0], "pid": [1], "device_id": [0], "stream_id": [7], "start_ns": [3000], "end_ns": [7000]}
    trace = trace.replace(
        calls=trace.calls.with_columns(correlation_id=pl.lit(5, pl.Int64)),
        work=pl.DataFrame({**work, "kind": ["kernel"], "name": ["k"], "correlation_id": [5]}),
    )
    op, call, kernel = profiler_events_of(trace.analysed)
    assert (op.name, call.name, kernel.name) == ("a", "launch", "k")
    assert call.cpu_parent is op
    assert [kernel.name for kernel in op.kernels] == ["k"]
    assert (op.self_device_time_total, op.device_time_total, op.self_cpu_time_total) == (4, 4, 9)


records = st.tuples(st.integers(0, 22), st.integers(-9, 9), st.booleans(), st.integers(1, 2))


@pytest.mark.slow
@property_of(st.lists(spans, max_size=8), st.lists(records, min_size=1, max_size=6), few=50, many=200)
def test_memory_is_that_of_torchs_way(rows: list[Row], taken: list[Any]) -> None:
    memory = pl.DataFrame(
        [
            (0, 1, tid, 0 if on_device else None, 1000 * at, "free" if count < 0 else "alloc", abs(count))
            for at, count, on_device, tid in taken
        ],
        schema={"rank": pl.Int32, "pid": pl.Int64, "tid": pl.Int64, "device_id": pl.Int32, "time_ns": pl.Int64}
        | {"event": pl.String, "bytes": pl.Int64},
        orient="row",
    )
    ours = profiler_events_of(trace_of(rows).replace(memory=memory).analysed)

    expected = twin(rows)
    for event in expected:
        inside = [record for record in taken if event.time_range.start <= record[0] <= event.time_range.end]
        event.cpu_memory_usage = sum(count for _, count, on_device, _ in inside if not on_device)
        event.device_memory_usage = sum(count for _, count, on_device, _ in inside if on_device)
    every = [(row[3], row[3] + row[4]) for row in rows]
    alone = [record for record in taken if not any(start <= record[0] <= end for start, end in every)]

    def said(event: FunctionEvent) -> tuple[object, ...]:
        usage = (event.cpu_memory_usage, event.device_memory_usage)
        own = (event.self_cpu_memory_usage, event.self_device_memory_usage)
        return event.name, event.thread, round(event.time_range.start), round(event.time_range.end), usage, own

    made = []
    for at, count, on_device, tid in alone:
        usage = (0, count) if on_device else (count, 0)
        made.append(("[memory]", tid, at, at, usage, usage))
    assert sorted(map(said, ours), key=repr) == sorted([*map(said, expected), *made], key=repr)
