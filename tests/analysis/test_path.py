"""The critical path, and what steps would take, against a search for the longest path in a graph written out."""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path

import polars as pl
import pytest
from hypothesis import strategies as st

import opspan
from analysis.frames import ranges, table
from opspan.analysis import launches, nest
from opspan.analysis.analysed import Analysis
from opspan.analysis.busy import step_times
from opspan.analysis.path_cuts import KINDS
from opspan.analysis.path_events import CLOSE
from opspan.analysis.what_if import what_if
from opspan.errors import UsageError
from opspan.tables import Metadata, Tables
from properties import property_of
from real_files import in_parts, traces_of

WHERE = {"rank": 0, "pid": 1}
LAUNCH, SYNC = "cudaLaunchKernel", "cudaDeviceSynchronize"
factors = st.dictionaries(
    st.sampled_from(["computing", "launch", "queued", "host", "call", "wait", "unknown", "aten::mm"]),
    st.sampled_from([0.0, 1.0, 2.0, 3.0]),
    max_size=3,
)


def trace_of(calls: list[dict], work: list[dict], marked: list[dict]) -> Tables:
    nested = nest(ranges(*marked))
    every = [{"api": "cuda_runtime", "tid": 1, **one} for one in calls]
    ran = [{"kind": "kernel", "device_id": 0, "stream_id": 7, "name": "k", **one} for one in work]
    found = launches(nested, table("calls", every, **WHERE), table("work", ran, **WHERE))
    return Tables((Metadata(source="test", paths=()),), ranges=nested, calls=found.calls, work=found.work)


@st.composite
def programs(draw: st.DrawFn, threads: int = 1) -> tuple[list[dict], list[dict], list[dict]]:
    """Calls one after the other on each thread, work that begins after its call does, and ops beside each other."""
    calls, work, marked = [], [], []
    for tid in range(1, threads + 1):
        now = draw(st.integers(0, 3))
        for _ in range(draw(st.integers(0, 6))):
            begin = now + draw(st.integers(0, 3))
            now = begin + draw(st.integers(1, 4))
            name = draw(st.sampled_from([LAUNCH, LAUNCH, SYNC]))
            number = len(calls) + 1
            calls.append({"name": name, "tid": tid, "start_ns": begin, "end_ns": now, "correlation_id": number})
            if name == LAUNCH:
                start = begin + draw(st.integers(0, 8))
                ran = {
                    "start_ns": start,
                    "end_ns": start + draw(st.integers(0, 6)),
                    "stream_id": draw(st.integers(1, 2)),
                }
                work.append(ran | {"correlation_id": draw(st.sampled_from([number, number, number, None]))})
        now = draw(st.integers(0, 3))
        for _ in range(draw(st.integers(0, 4))):
            begin = now + draw(st.integers(0, 4))
            now = begin + draw(st.integers(1, 6))
            kind = draw(st.sampled_from(["op", "backward"]))
            name = draw(st.sampled_from(["aten::mm", "aten::add"]))
            marked.append({"name": name, "tid": tid, "start_ns": begin, "end_ns": now, "kind": kind})
    return calls, work, marked


def longest(calls: list[dict], work: list[dict], marked: list[dict], by: dict[str, float]) -> tuple[int, int]:
    """How long the run took, and how long it would take, of a program with one thread."""
    ran = [one for one in work if one["end_ns"] > one["start_ns"]]
    every = [*calls, *work, *marked]
    begin, end = min(one["start_ns"] for one in every), max(one["end_ns"] for one in every)
    op = by.get("aten::mm", 1)

    def is_in(moment: int, some: list[dict]) -> bool:
        return any(one["start_ns"] <= moment < one["end_ns"] for one in some)

    def of_host(since: int, until: int) -> float:
        total = 0.0
        for moment in range(since, until):
            is_wait = is_in(moment, [one for one in calls if one["name"] == SYNC])
            kind = "wait" if is_wait else "call" if is_in(moment, calls) else "host"
            is_mm = is_in(moment, [one for one in marked if one["name"] == "aten::mm"])
            total += by.get(kind, 1) * (op if is_mm else 1)
        return total

    def launched(one: dict) -> tuple[int, int] | None:
        """When, and of which call."""
        for number, call in enumerate(calls):
            if call["correlation_id"] == one["correlation_id"]:
                time = call["end_ns"] if call["end_ns"] <= one["start_ns"] else call["start_ns"]
                return (time, number) if time <= one["start_ns"] else None
        return None

    def in_mm(one: dict) -> bool:
        call = launched(one)
        started = None if call is None else calls[call[1]]["start_ns"]
        return started is not None and is_in(started, [one for one in marked if one["name"] == "aten::mm"])

    def last_by(time: int, some: list[dict]) -> dict | None:
        done = [one for one in some if one["end_ns"] <= time]
        return max(done, key=lambda one: (one["end_ns"], one["start_ns"], ran.index(one)), default=None)

    points = sorted({begin, *(one[name] for one in [*calls, *marked] for name in ("start_ns", "end_ns"))})

    @cache
    def host(point: int) -> float:
        if point == begin:
            return begin
        before = max(other for other in points if other < point)
        for call in calls:
            if call["name"] == SYNC and call["end_ns"] == point and (waited := last_by(point, ran)):
                if waited["end_ns"] > call["start_ns"]:
                    tail = of_host(waited["end_ns"], point)
                    return max(host(call["start_ns"]), device(ran.index(waited)) + tail)
                own = host(call["start_ns"]) + of_host(call["start_ns"], point)
                return max(own, device(ran.index(waited)))
        return host(before) + of_host(before, point)

    @cache
    def device(node: int) -> float:
        one = ran[node]
        before, call = (
            last_by(one["start_ns"], [other for other in ran if other["stream_id"] == one["stream_id"]]),
            launched(one),
        )
        measured = []  # when it was, when it would be, what kind of delay comes after
        if before:
            measured.append((before["end_ns"], 1, device(ran.index(before)), "queued" if call else "unknown"))
        if call:
            measured.append((call[0], 0, host(call[0]), "launch"))
        if not measured:
            measured.append((begin, 0, begin, "unknown"))
        was, _, _, kind = max(measured, key=lambda each: each[:2])
        start = max(
            then + (by.get(kind, 1) * (one["start_ns"] - was) if (time, of) == (was, kind) else 0)
            for time, _, then, of in measured
        )
        return start + by.get("computing", 1) * (op if in_mm(one) else 1) * (one["end_ns"] - one["start_ns"])

    last = [point for one in [*calls, *marked] for point in (one["end_ns"],)]
    ends = [(max(last), host(max(last)))] if last else []
    ends += [(one["end_ns"], device(node)) for node, one in enumerate(ran)]
    if not ends:
        return end - begin, end - begin
    tail = by.get("unknown", 1) * (end - max(was for was, _ in ends))
    return end - begin, int(max(then for _, then in ends) + tail - begin)


def would_take(trace: Tables, by: dict[str, float]) -> pl.DataFrame:
    found = Analysis(trace)
    steps = step_times(found.attributed, found.iterations)
    return what_if(found.attributed, steps, found.waits, found.path_graph, by, found.meetings).steps


def usable(calls: list[dict], work: list[dict], marked: list[dict]) -> bool:
    return bool(calls or work or marked)


@property_of(programs().filter(lambda some: usable(*some)), factors, few=30, many=300)
def test_it_would_take_as_long_as_the_longest_path_of_the_graph(program: tuple, by: dict[str, float]) -> None:
    calls, work, marked = program
    got = would_take(trace_of(calls, work, [one | {"name": f"{one['name']}"} for one in marked]), by)
    assert got.select("before_ns", "after_ns").rows() == [longest(calls, work, marked, by)]


@property_of(programs(threads=3).filter(lambda some: usable(*some)), factors, few=30, many=300)
def test_the_path_is_as_long_as_the_run_and_is_a_path_of_the_graph(program: tuple, by: dict[str, float]) -> None:
    trace = trace_of(*program)
    found = Analysis(trace)
    (before,) = step_times(trace, found.iterations).select(pl.col("end_ns") - pl.col("start_ns")).to_series()
    pieces = found.path.with_columns(ns=pl.col("end_ns") - pl.col("start_ns"))
    assert pieces["ns"].sum() == before
    assert (pieces["ns"] > 0).all()
    assert (pieces["start_ns"][1:] == pieces["end_ns"][:-1]).all()
    assert would_take(trace, dict.fromkeys(by, 1.0))["after_ns"].to_list() == [before]
    # The run can never take less time than its old path takes after the change.
    for kind in set(by) & set(KINDS):
        on_path = pieces.filter(pl.col("kind") == kind)["ns"].sum()
        (after,) = would_take(trace, {kind: by[kind]})["after_ns"]
        assert after >= before + (by[kind] - 1) * on_path


def of_kinds(trace: Tables) -> dict[str, int]:
    sums = Analysis(trace).path.group_by("kind").agg((pl.col("end_ns") - pl.col("start_ns")).sum())
    return dict(sums.rows())


def launch(begin: int, number: int, end: int | None = None) -> dict:
    return {"name": LAUNCH, "start_ns": begin, "end_ns": begin + 2 if end is None else end, "correlation_id": number}


def kernel(begin: int, end: int, number: int, stream: int = 7) -> dict:
    return {"start_ns": begin, "end_ns": end, "correlation_id": number, "stream_id": stream}


def test_a_host_that_is_slower_than_its_device_is_all_of_the_path() -> None:
    calls = [launch(begin, number) for number, begin in enumerate((10, 30, 50))]
    work = [kernel(begin + 3, begin + 8, number) for number, begin in enumerate((10, 30, 50))]
    trace = trace_of(calls, work, [("step", 0, 100)])
    assert of_kinds(trace) == {"host": 94, "call": 6}
    assert would_take(trace, {"computing": 0.0})["after_ns"].to_list() == [100]


def test_a_device_that_is_slower_than_its_host_is_the_path_from_the_first_launch_on() -> None:
    calls = [launch(0, 0), launch(2, 1), launch(4, 2), {"name": SYNC, "start_ns": 6, "end_ns": 103}]
    work = [kernel(5, 40, 0), kernel(40, 70, 1), kernel(71, 100, 2)]
    trace = trace_of(calls, work, [])
    assert of_kinds(trace) == {"call": 2, "launch": 3, "computing": 94, "queued": 1, "wait": 3}
    assert would_take(trace, {"computing": 0.5})["after_ns"].to_list() == [103 - 18 - 15 - 14]  # 14.5 to the even
    assert would_take(trace, {"host": 0.0})["after_ns"].to_list() == [103]


def test_a_stream_that_waits_for_an_event_of_another() -> None:
    said = '{"wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 50}'
    calls = [
        launch(0, 1),
        {"name": "cudaEventRecord", "start_ns": 2, "end_ns": 3, "correlation_id": 50},
        {"name": "cudaStreamWaitEvent", "start_ns": 3, "end_ns": 4, "correlation_id": 51},
        launch(4, 2),
        {"name": SYNC, "start_ns": 6, "end_ns": 62},
    ]
    work = [kernel(3, 30, 1, 7), kernel(31, 60, 2, 9)]
    waits = {"kind": "sync", "name": "Stream Wait Event", "stream_id": 9, "start_ns": 3, "end_ns": 4}
    told = trace_of(calls, [*work, waits | {"correlation_id": 51, "payload_json": said}], [])
    untold = trace_of(calls, [*work, waits | {"correlation_id": 51}], [])
    # Tools say of a wait that it was on device 0: a program that used another one alone used that.
    on_device_1 = [{"device_id": 1, **one} for one in work]
    other = trace_of(calls, [*on_device_1, waits | {"correlation_id": 51, "payload_json": said}], [])
    calls_alone = trace_of(calls, work, [])
    for trace in (told, untold, other, calls_alone):
        assert of_kinds(trace) == {"call": 2, "launch": 1, "computing": 27 + 29, "queued": 1, "wait": 2}
        assert would_take(trace, {"computing": 0.0})["after_ns"].to_list() == [62 - 27 - 29 + 2 - 1 + 1]
    nothing = trace_of([one for one in calls if "Event" not in one["name"]], work, [])
    assert of_kinds(nothing)["launch"] == 31 - 6


@pytest.mark.parametrize(("waited_ns", "launch_ns"), [(CLOSE + 1, 1), (CLOSE, CLOSE)])
def test_work_that_begins_as_that_of_another_stream_ends_waited_for_it(waited_ns: int, launch_ns: int) -> None:
    """Unless it had been launched just before: then that is why it began."""
    calls = [launch(0, 1), launch(1, 2)]
    begun = 3 + waited_ns  # after the second launch returned
    trace = trace_of(calls, [kernel(1, begun - 1, 1, 7), kernel(begun, begun + 100, 2, 9)], [])
    assert of_kinds(trace).get("launch", 0) == launch_ns


def test_the_thread_that_does_the_backward_is_on_the_path_while_the_main_one_waits_for_it() -> None:
    marked = [
        {"name": "step", "tid": 1, "start_ns": 0, "end_ns": 100, "kind": "user"},
        {"name": "forward", "tid": 1, "start_ns": 5, "end_ns": 20},
        {"name": "MmBackward0", "tid": 2, "start_ns": 30, "end_ns": 60, "kind": "backward"},
        {"name": "AddBackward0", "tid": 2, "start_ns": 62, "end_ns": 80, "kind": "backward"},
        {"name": "optimizer", "tid": 1, "start_ns": 85, "end_ns": 95},
    ]
    trace = trace_of([], [], marked)
    found = Analysis(trace)
    names = found.attributed.ranges["name"].cast(pl.String).gather(found.path["range"])
    times = zip(names, found.path["start_ns"], found.path["end_ns"], strict=True)
    assert list(times) == [
        ("step", 0, 5),
        ("forward", 5, 20),
        ("step", 20, 30),
        ("MmBackward0", 30, 60),
        (None, 60, 62),
        ("AddBackward0", 62, 80),
        ("step", 80, 85),
        ("optimizer", 85, 95),
        ("step", 95, 100),
    ]
    assert would_take(trace, {"MmBackward0": 0.0})["after_ns"].to_list() == [70]


def ns_of(trace: Tables, *by: str) -> dict[tuple, int]:
    """How much of the path each has."""
    sums = Analysis(trace).path.group_by(by).agg((pl.col("end_ns") - pl.col("start_ns")).sum().alias("ns"))
    return {row[:-1]: row[-1] for row in sums.rows()}


def test_each_process_has_a_path_of_its_own() -> None:
    # Process 1 has two threads, process 2 none, process 3 one.
    marked = [
        {"name": "forward", "start_ns": 0, "end_ns": 10},
        {"name": "MulBackward0", "start_ns": 2, "end_ns": 6, "tid": 2, "kind": "backward"},
        {"name": "forward", "start_ns": 5, "end_ns": 25, "pid": 3},
    ]
    trace = trace_of([], [{"start_ns": 0, "end_ns": 30, "pid": 2}], marked)
    assert ns_of(trace, "pid", "kind") == {(1, "host"): 10, (2, "computing"): 30, (3, "host"): 20}


def test_a_thread_is_not_done_before_what_has_no_length() -> None:
    assert of_kinds(trace_of([], [], [("aten::mm", 0, 10), ("aten::detach", 20, 20)])) == {"host": 20}


def test_calls_whose_time_is_not_known_are_no_part_of_it() -> None:
    calls = [launch(10, 1), {"name": SYNC, "start_ns": 14, "end_ns": 60}]
    unknown = {"name": LAUNCH, "start_ns": None, "end_ns": None, "correlation_id": 9}
    work = [kernel(15, 55, 1)]
    assert ns_of(trace_of([unknown, *calls], work, [("step", 0, 70)]), "kind", "start_ns") == ns_of(
        trace_of(calls, work, [("step", 0, 70)]), "kind", "start_ns"
    )


def test_what_a_thread_did_before_the_main_one_did_anything_was_not_waited_for() -> None:
    marked = [("forward", 20, 30), {"name": "MulBackward0", "start_ns": 0, "end_ns": 10, "tid": 2, "kind": "backward"}]
    trace = trace_of([], [], marked)
    found = Analysis(trace)
    names = found.attributed.ranges["name"].cast(pl.String).gather(found.path["range"])
    assert list(zip(names, found.path["start_ns"], strict=True)) == [(None, 0), ("forward", 20)]


@in_parts
def test_in_real_files_the_path_of_each_step_is_as_long_as_the_step(part: int, traces_dir: Path) -> None:
    for trace in traces_of(traces_dir, part):
        path = trace.paths
        found = trace.analysed
        steps = step_times(found.attributed, found.iterations).with_row_index("number")
        sums = found.path.group_by("number").agg(got=(pl.col("end_ns") - pl.col("start_ns")).sum())
        both = steps.join(sums, on="number", how="left")
        assert both["got"].fill_null(0).to_list() == (both["end_ns"] - both["start_ns"]).to_list(), path
        found_again = trace.path(what_if={"computing": 1.0, "host": 1.0, "launch": 1.0})
        assert found_again["change_ns"].to_list() == [0] * steps.height, path


odd = st.sampled_from([None, 0, 1, 2, 3, 5, 8, -(2**62), 2**62])


@property_of(st.lists(st.tuples(odd, odd, odd, odd, st.sampled_from([1, 2, None])), max_size=5), few=30, many=300)
def test_odd_times_are_no_trouble(rows: list[tuple]) -> None:
    calls = [
        {"name": (LAUNCH, SYNC)[at % 2], "tid": tid, "start_ns": begin, "end_ns": end, "correlation_id": at}
        for at, (begin, end, _, _, tid) in enumerate(rows)
    ]
    work = [{"start_ns": begin, "end_ns": end, "correlation_id": at} for at, (_, _, begin, end, _) in enumerate(rows)]
    found = Analysis(trace_of(calls, work, []))
    assert (found.path["end_ns"] > found.path["start_ns"]).all()
    steps = step_times(found.attributed, found.iterations)
    assert would_take(found.tables, {"host": 1.0}).height == steps.height


def test_a_name_that_is_not_there_and_a_factor_that_is_none() -> None:
    trace = opspan.Trace.of(trace_of([launch(0, 1)], [kernel(3, 5, 1)], [("aten::mm", 0, 9)]))
    with pytest.raises(UsageError, match="did you mean 'aten::mm'"):
        trace.path(what_if={"aten::m": 0.5})
    with pytest.raises(UsageError, match="0 or more"):
        trace.path(what_if={"aten::mm": -1.0})
    with pytest.raises(UsageError, match="no answer by"):
        trace.path("shape")


def test_it_is_the_same_time_whatever_it_is_by() -> None:
    trace = opspan.Trace.of(trace_of([launch(0, 1)], [kernel(3, 5, 1)], [("aten::mm", 0, 9)]))
    for by in ("op", "kind", "module", "phase", "step"):
        assert trace.path(by)["time_ns"].sum() == 9
    assert list(itertools.chain(*trace.path("kind").select("kind").rows())) == ["host", "call"]
