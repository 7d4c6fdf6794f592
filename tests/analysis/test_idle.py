"""Gaps of a device: their reasons, and who the host was busy with, against a count of moments."""

from __future__ import annotations

from collections import Counter

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

import twins
from analysis.frames import nested_rows, ranges, table
from opspan.analysis import launches, nest
from opspan.analysis.busy import devices
from opspan.analysis.idle import WHY, gaps, meanwhile
from opspan.analysis.iterations import iterations
from opspan.tables import Metadata, Tables

LAST = 30
moments = st.integers(0, LAST)
calls_and_work = st.lists(
    st.fixed_dictionaries(
        {
            "call": moments,
            "tid": st.integers(1, 2),
            "begin": moments,
            "length": st.integers(0, 4),
            "device_id": st.sampled_from([0, 0, 1]),
            "stream_id": st.integers(1, 2),
            "has_call": st.sampled_from([True, True, True, False]),
        }
    ),
    max_size=7,
)


def trace_of(marked: list[dict], launched: list[dict]) -> Tables:
    where = {"rank": 0, "pid": 1}
    nested = nest(ranges(*marked))
    calls = [
        {"start_ns": one["call"], "end_ns": one["call"] + 1, "tid": one["tid"], "correlation_id": number}
        for number, one in enumerate(launched)
        if one["has_call"]
    ]
    work = [
        {
            "start_ns": one["begin"],
            "end_ns": one["begin"] + one["length"],
            "device_id": one["device_id"],
            "kind": "kernel",
            "correlation_id": number,
        }
        for number, one in enumerate(launched)
    ]
    found = launches(nested, table("calls", calls, **where), table("work", work, **where))
    return Tables((Metadata(source="test", paths=()),), ranges=nested, calls=found.calls, work=found.work)


def launched_by_hand(*rows: tuple[int, int, int]) -> list[dict]:
    """(call, begin, end) each."""
    return [
        {"call": call, "tid": 1, "begin": begin, "length": end - begin, "device_id": 0, "has_call": True}
        for call, begin, end in rows
    ]


def of(trace: Tables) -> list[tuple]:
    return gaps(trace).select("start_ns", "end_ns", "why", *(f"{name}_ns" for name in WHY)).rows()


def test_a_late_launch_a_queue_and_the_end() -> None:
    trace = trace_of([("aten::mm", 0, 29)], launched_by_hand((1, 2, 5), (8, 10, 14), (9, 16, 20)))
    assert of(trace) == [
        (0, 2, "host", 1, 1, 0, 0),
        (5, 10, "host", 3, 2, 0, 0),
        (14, 16, "queued", 0, 0, 2, 0),
        (20, 29, "unknown", 0, 0, 0, 9),
    ]


def test_who_the_host_was_busy_with() -> None:
    marked = [("step", 0, 29), ("aten::add", 4, 7), ("inner", 5, 6), ("aten::mm", 8, 12)]
    trace = trace_of(marked, launched_by_hand((1, 2, 5), (10, 10, 14)))
    found = meanwhile(trace.ranges, gaps(trace))
    names = trace.ranges["name"].cast(pl.String).gather(found["range"])
    times = dict(zip(names, found["ns"], strict=True)) | {}
    late = found.with_columns(name=names).filter(pl.col("gap") == 1)
    assert dict(late.select("name", "ns").rows()) == {"inner": 1, "aten::add": 1, "step": 1, "aten::mm": 2}
    assert sum(times.values()) <= found["ns"].sum()


@given(nested_rows(), calls_and_work)
def test_gaps_are_the_idle_time_moment_by_moment(marked: list[dict], launched: list[dict]) -> None:
    trace = trace_of(marked, launched)
    found = gaps(trace)
    idle = devices(
        trace.replace(ranges=trace.ranges.with_columns(phase=pl.lit(None))), iterations(trace.ranges).clear()
    )
    sums = found.group_by("device_id").agg((pl.col("end_ns") - pl.col("start_ns")).sum().alias("ns"))
    expected = {row["device_id"]: row["idle_ns"] for row in idle.to_dicts() if row["idle_ns"]}
    assert dict(sums.rows()) == expected
    for row in found.to_dicts():
        assert sum(row[f"{name}_ns"] for name in WHY) == row["end_ns"] - row["start_ns"]
        assert row[f"{row['why']}_ns"] == max(row[f"{name}_ns"] for name in WHY)
        check_reason(row, launched)


def check_reason(row: dict, launched: list[dict]) -> None:
    ended_by = [
        one
        for one in launched
        if one["device_id"] == row["device_id"] and one["begin"] == row["end_ns"] and one["length"]
    ]
    calls = [one["call"] for one in ended_by if one["has_call"]]
    if not calls or min(calls) > row["end_ns"]:
        assert row["unknown_ns"] == row["end_ns"] - row["start_ns"]
    elif min(calls) < row["start_ns"]:
        assert row["queued_ns"] == row["end_ns"] - row["start_ns"]
    else:
        assert row["host_ns"] == min(calls) - row["start_ns"]


@given(nested_rows(), calls_and_work)
def test_the_hosts_part_goes_to_the_innermost_range_of_each_moment(marked: list[dict], launched: list[dict]) -> None:
    trace = trace_of(marked, launched)
    found = gaps(trace)
    got = Counter({(row["gap"], row["range"]): row["ns"] for row in meanwhile(trace.ranges, found).to_dicts()})
    rows = trace.ranges.to_dicts()
    expected: Counter = Counter()
    for number, gap in enumerate(found.to_dicts()):
        for moment in range(gap["start_ns"], gap["start_ns"] + gap["host_ns"]):
            point = {"rank": 0, "pid": 1, "tid": gap["tid"], "time_ns": moment}
            expected[number, twins.innermost(rows, [point])[0]] += 1
    assert got == expected
