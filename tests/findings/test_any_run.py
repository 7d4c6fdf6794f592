"""The findings of any run are an answer, and its idle time is divided among causes that add up to it."""

from __future__ import annotations

import polars as pl
from hypothesis import strategies as st

from analysis.frames import nested_rows, places, table
from opspan.analysis import Analysis
from opspan.findings import RULES, findings
from opspan.findings.run import CAUSES, Run
from opspan.questions import Options, question
from opspan.tables import Metadata, Tables
from properties import property_of

IDLE = ("item", "blocking-copies", "synchronise", "launch-bound", "late-host", "queued", "optimizer-loop")
moments = st.integers(0, 30)
NAMES = st.none() | st.sampled_from(
    "ProfilerStep#1,ProfilerStep#2,turn,aten::mm,aten::item,Optimizer.step#SGD.step,gloo:all_reduce,"
    "enumerate(DataLoader)#x,aten::_to_cpu,entire_frame_compile,Torch-Compiled Region: 0/0".split(",")
)
KINDS = st.sampled_from(["op", "op", "user", "step", "backward", None])
CALLS = st.sampled_from(["cudaLaunchKernel", "cudaStreamSynchronize", "cudaMalloc", "cudaMemcpy", "cuModuleLoadData"])
WORK = st.sampled_from(["gemm", "ncclDevKernel", "ampere_sgemm", None])
MEMORY = st.sampled_from(["device", "pageable", None])
ODD = st.sampled_from([None, -(2**63), 2**63 - 1])


def ranges(is_odd: bool) -> st.SearchStrategy[list[dict]]:
    labels = st.lists(st.tuples(NAMES, KINDS), min_size=30, max_size=30)
    times = st.one_of(moments, ODD) if is_odd else st.none()
    return st.tuples(nested_rows(), labels, st.lists(times, min_size=30, max_size=30)).map(
        lambda made: [
            row | {"name": name, "kind": kind} | ({"start_ns": time} if is_odd and number % 5 == 4 else {})
            for number, (row, (name, kind), time) in enumerate(zip(*made, strict=False))
        ]
    )


def rows(is_odd: bool, **more: st.SearchStrategy) -> st.SearchStrategy[list[dict]]:
    """With begin and end; odd ones with any times, and of any process."""
    if is_odd:
        row = st.fixed_dictionaries(places | {"start_ns": moments | ODD, "end_ns": moments | ODD} | more)
        return st.lists(row, max_size=7)
    length = st.integers(0, 6)
    row = st.fixed_dictionaries({"start_ns": moments, "length": length, "tid": st.integers(1, 2)} | more)
    return st.lists(
        row.map(lambda one: {"rank": 0, "pid": 1} | one | {"end_ns": one["start_ns"] + one["length"]}), max_size=7
    )


def runs(is_odd: bool = False) -> st.SearchStrategy[Analysis]:
    number = st.integers(1, 5)
    kind = st.sampled_from(["kernel", "kernel", "memcpy", "graph", "sync"])
    work = {"correlation_id": number, "kind": kind, "name": WORK, "device_id": st.sampled_from([0, 0, 1])}
    work |= {
        "copy_from": MEMORY,
        "copy_to": MEMORY,
        "bytes": st.sampled_from([None, 4096]),
        "grid_x": number,
        "grid_y": st.just(1),
        "grid_z": st.just(1),
    }
    work |= {"is_overhead": st.sampled_from([False, False, True])}
    return st.tuples(ranges(is_odd), rows(is_odd, correlation_id=number, name=CALLS), rows(is_odd, **work)).map(
        lambda made: analysed(*made)
    )


def analysed(marked: list[dict], calls: list[dict], work: list[dict]) -> Analysis:
    frames = {"ranges": table("ranges", marked), "calls": table("calls", calls), "work": table("work", work)}
    frames["devices"] = table("devices", [{"rank": 0, "device_id": 0, "multiprocessors": 3, "memory_bytes": 10}])
    return Analysis(Tables((Metadata(source="kineto", paths=()),), **frames))


@property_of(runs(is_odd=True), few=15, many=300)
def test_of_any_run_there_is_an_answer(analysis: Analysis) -> None:
    for row in question("findings").answer_of(analysis, Options()).rows.to_dicts():
        assert row["share"] is None or 0 <= row["share"] <= 1
        assert not set("{}") & set(row["sentence"])


@property_of(runs(), few=20, many=400)
def test_idle_time_has_one_cause_each_and_is_no_more_than_all_time(analysis: Analysis) -> None:
    run = Run(analysis)
    for rule in RULES:
        for evidence in rule.look(run, rule.threshold) if run.total_ns else ():
            assert rule.id not in IDLE or 0 < (evidence.at_stake_ns or 0) <= run.total_ns
            assert (evidence.at_stake_ns or 0) >= 0
    costs = [finding.evidence.at_stake_ns or 0 for finding in findings(analysis)]
    assert costs == sorted(costs, reverse=True)
    check_causes(analysis)


def test_work_of_steps_that_overlap_is_counted_once() -> None:
    row = {"rank": 0, "pid": 1}
    steps = [row | {"tid": tid, "name": "ProfilerStep#1", "kind": "step", "start_ns": 0, "end_ns": 9} for tid in (1, 2)]
    launch = row | {"tid": 1, "name": "cudaLaunchKernel", "correlation_id": 1, "start_ns": 1, "end_ns": 2}
    kernel = row | {"name": "gemm", "kind": "kernel", "device_id": 0, "correlation_id": 1, "start_ns": 3, "end_ns": 43}
    kernel |= {"grid_x": 1, "grid_y": 1, "grid_z": 1}  # it keeps one of three multiprocessors busy

    (found,) = (one for one in findings(analysed(steps, [launch], [kernel])) if one.rule.id == "few-blocks")

    assert found.evidence.at_stake_ns == round(40 * 2 / 3)


def check_causes(analysis: Analysis) -> None:
    """They add up to the idle time of usual steps, moment by moment."""
    run = Run(analysis)
    pieces = run.idle
    assert set(pieces["cause"]) <= set(CAUSES)
    got = dict(pieces.group_by("device_id").agg(pl.col("ns").sum()).rows())
    usual = run.usual_steps.select("start_ns", "end_ns").rows()
    first = min((row["start_ns"] for row in every(analysis)), default=0)
    expected: dict[int, int] = {}
    for gap in analysis.gaps.to_dicts():
        here = range(gap["start_ns"], gap["end_ns"])
        if run.steps.height:
            ns = sum(sum(begin <= moment < end for begin, end in usual) for moment in here)
        else:
            ns = len(here) if gap["start_ns"] > first else 0
        expected[gap["device_id"]] = expected.get(gap["device_id"], 0) + ns
    assert got == {device: ns for device, ns in expected.items() if ns}


def every(analysis: Analysis) -> list[dict]:
    """Returns the rows that a run lasts from and to, without the profiler's own."""
    tables = analysis.attributed
    rows = (row for frame in (tables.ranges, tables.calls, tables.work) for row in frame.to_dicts())
    return [row for row in rows if not row.get("is_overhead")]
