"""Gaps of a device: their reasons, and who the host was busy with, against a count of moments."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from hypothesis import strategies as st

import opspan
import twins
from analysis.frames import nested_rows, ranges, table
from opspan.analysis import launches, nest
from opspan.analysis.busy import devices
from opspan.analysis.functions import functions
from opspan.analysis.idle import WHY, gaps, gaps_of_streams, in_functions, meanwhile, parts
from opspan.analysis.iterations import iterations
from opspan.tables import Metadata, Tables
from properties import property_of

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
            "stream_id": one.get("stream_id"),
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


@pytest.mark.parametrize(("devices", "why"), [(256, "host"), (257, "unknown")])
def test_gaps_of_more_devices_than_machines_have_are_not_explained(devices: int, why: str) -> None:
    rows = [(10 * number + 5, 10 * number + 6, 10 * number + 8) for number in range(devices)]
    launched = [row | {"device_id": number} for number, row in enumerate(launched_by_hand(*rows))]
    found = gaps(trace_of([], launched)).drop_nulls("next").filter(pl.col("device_id") > 0)
    assert found.height == devices - 1
    assert found["why"].unique().to_list() == [why]


def test_who_the_host_was_busy_with() -> None:
    marked = [("step", 0, 29), ("aten::add", 4, 7), ("inner", 5, 6), ("aten::mm", 8, 12)]
    trace = trace_of(marked, launched_by_hand((1, 2, 5), (10, 10, 14)))
    found = meanwhile(trace.ranges, gaps(trace))
    names = trace.ranges["name"].cast(pl.String).gather(found["range"])
    times = dict(zip(names, found["ns"], strict=True)) | {}
    late = found.with_columns(name=names).filter(pl.col("gap") == 1)
    assert dict(late.select("name", "ns").rows()) == {"inner": 1, "aten::add": 1, "step": 1, "aten::mm": 2}
    assert sum(times.values()) <= found["ns"].sum()


@property_of(nested_rows(), calls_and_work, few=40, many=300)
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


@property_of(nested_rows(), calls_and_work, few=40, many=300)
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


@property_of(nested_rows(), nested_rows(), calls_and_work, few=40, many=300)
def test_functions_are_those_that_the_host_was_in_at_each_moment(
    marked: list[dict], called: list[dict], launched: list[dict]
) -> None:
    trace = trace_of(marked, launched)
    columns = ("rank", "pid", "tid", "start_ns", "end_ns")
    calls = table("functions", [{name: row[name] for name in columns} for row in called])
    of_ranges = functions(trace.ranges.with_columns(forward=pl.lit(None, dtype=pl.UInt32)), calls)
    trace = Tables(trace.ranks, **{**trace.frames, "ranges": of_ranges, "functions": calls})
    found = gaps(trace)
    pieces = in_functions(trace, found)
    assert (
        pieces.group_by("gap", "why")
        .agg(pl.col("ns").sum())
        .sort("gap", "why")
        .equals(parts(trace, found).group_by("gap", "why").agg(pl.col("ns").sum()).sort("gap", "why"))
    )
    rows, last = trace.ranges.to_dicts(), max([0, *(row["end_ns"] or 0 for row in [*marked, *called])])
    begins = [row["start_ns"] for row in [*marked, *called] if row["start_ns"] is not None]
    last = max([last, *begins])
    opened = [row | {"is_async": False, "end_ns": last if row["end_ns"] is None else row["end_ns"]} for row in called]
    got: Counter = Counter()
    for row in pieces.filter(pl.col("why") == "host").to_dicts():
        got[row["gap"], row["function"]] += row["ns"]
    expected: Counter = Counter()
    for number, gap in enumerate(found.to_dicts()):
        for moment in range(gap["start_ns"], gap["start_ns"] + gap["host_ns"]):
            point = {"rank": 0, "pid": 1, "tid": gap["tid"], "time_ns": moment}
            around, function = twins.innermost(rows, [point])[0], twins.innermost(opened, [point])[0]
            if around is not None and (function is None or opened[function]["start_ns"] <= rows[around]["start_ns"]):
                function = rows[around]["function"]
            expected[number, function] += 1
    assert got == expected
    # The rest of a gap belongs to the function that launched what came next.
    gap_rows, work, launches = found.to_dicts(), trace.work.to_dicts(), trace.calls.to_dicts()
    for row in pieces.filter(pl.col("why").is_in(["launch", "queued"])).to_dicts():
        ended_by = work[gap_rows[row["gap"]]["next"]]
        function = None if ended_by["range"] is None else rows[ended_by["range"]]["function"]
        if function is None:
            call = launches[ended_by["call"]]
            point = {"rank": 0, "pid": 1, "tid": call["tid"], "time_ns": call["start_ns"]}
            function = twins.innermost(opened, [point])[0]
        assert row["function"] == function


@pytest.mark.parametrize("name", ["b200_eager", "vllm_graph_execution"])
def test_real_files_name_functions_outside_of_ranges_too(name: str, traces_dir: Path) -> None:
    """Functions were open on the launching thread during all of the host's time outside of ops."""
    trace = opspan.load(traces_dir / "kineto" / f"{name}.json.gz")
    by_op, by_function = trace.idle("op"), trace.idle("function")
    assert by_op["time_ns"].sum() == by_function["time_ns"].sum()
    # The gaps at the end, of which nobody knows anything, and what no function was around.
    nobodys = by_function.filter(pl.col("function").is_null())
    assert int(nobodys["host_ns"].sum()) < 0.03 * int(by_function["host_ns"].sum())


@property_of(nested_rows(), calls_and_work, few=40, many=300)
def test_gaps_of_streams_are_those_of_devices_of_one_stream_each(marked: list[dict], launched: list[dict]) -> None:
    trace = trace_of(marked, launched)
    number = pl.col("device_id") * 10 + pl.col("stream_id").cast(pl.Int32)
    alone = gaps(trace.replace(work=trace.work.with_columns(device_id=number)))
    times = ["start_ns", "end_ns", "next", "tid", "why", *(f"{why}_ns" for why in WHY)]
    found = gaps_of_streams(trace)
    assert found.select(number, *times).sort("device_id", "start_ns").rows() == alone.select("device_id", *times).rows()
    # While one is idle, whatever keeps the device busy is another.
    busy = [(row["device_id"], row["start_ns"], row["end_ns"]) for row in trace.work.iter_rows(named=True)]
    for device, start, end, ns in found.select("device_id", "start_ns", "end_ns", "elsewhere_ns").iter_rows():
        assert ns == sum(any(d == device and s <= at < e for d, s, e in busy) for at in range(start, end))
