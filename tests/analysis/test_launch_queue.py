"""Launches that wait for room in a full queue: what steps would take, against the same run made anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import opspan
from analysis.test_path import LAUNCH, kernel, trace_of
from builders.job import Job
from builders.job_program import rows_of
from builders.training import FOREACH, KERNELS, run
from builders.training_files import kineto_files, load
from builders.training_plan import Plan, Run
from opspan.analysis.analysed import Analysis
from opspan.analysis.busy import step_times
from opspan.analysis.path_threads import FOR_ROOM
from opspan.analysis.what_if import what_if

OPS = (*KERNELS, *(f"aten::{name}" for name in FOREACH))
DATA = Path(__file__).parents[1] / "data"
SLOW_DEVICE = Plan(steps=12, slower=dict.fromkeys(OPS, 3.0))  # the host is ahead by as much as the queue has room for


def would_change(analysis: Analysis, by: Mapping[str, float]) -> float:
    times = step_times(analysis.attributed, analysis.iterations)
    rows = what_if(analysis.attributed, times, analysis.waits, analysis.path_graph, by, analysis.meetings).steps
    return float(rows["after_ns"].sum() / rows["before_ns"].sum()) - 1


def made_anew(plan: Plan, factor: float) -> float:
    """How much longer or shorter the run is if its kernels take this part of their time."""
    lasted = []
    for one in (plan, replace(plan, slower={op: factor * plan.slower.get(op, 1.0) for op in OPS})):
        rows = run(one)
        begin, end = min(row.start for row in rows.ranges), max(row.end for row in rows.work)
        lasted.append(end - begin)
    return lasted[1] / lasted[0] - 1


@pytest.mark.parametrize("source", ["kineto", "nsys"])
@pytest.mark.parametrize("more", [{}, {"layers": 12}, {"seed": 5, "noise": 0.1}])
def test_a_run_whose_queue_is_full_changes_as_it_does_when_it_is_made_anew(
    more: dict[str, Any], source: str, tmp_path: Path
) -> None:
    plan = replace(SLOW_DEVICE, **more)
    found = load(tmp_path, plan, source).analysed
    assert (found.path_graph.joins["what"] == FOR_ROOM).any()
    for factor in (0.5, 0.8, 2.0):
        assert would_change(found, {"computing": factor}) == pytest.approx(made_anew(plan, factor), abs=0.02)
    assert would_change(found, {"computing": 1.0}) == 0


def test_a_host_that_waits_for_room_gains_nothing_by_being_faster(tmp_path: Path) -> None:
    found = load(tmp_path, SLOW_DEVICE, "kineto").analysed
    assert would_change(found, {"host": 0.5}) == pytest.approx(0, abs=0.02)


def test_a_host_that_waits_for_room_is_not_on_the_critical_path(tmp_path: Path) -> None:
    found = load(tmp_path, SLOW_DEVICE, "kineto").analysed
    rows = found.path.with_columns(ns=pl.col("end_ns") - pl.col("start_ns"))
    assert rows.filter(pl.col("kind") == "call")["ns"].sum() < 0.01 * rows["ns"].sum()


def test_a_queue_that_was_never_full_has_no_limit(tmp_path: Path) -> None:
    # A launch every 10, of a kernel of 30: the host gets further and further ahead. A wait, and all of it once more.
    calls, work = [], []
    for part in range(4):
        for number in range(40):
            at = 2000 * part + 10 * number
            calls.append({"name": LAUNCH, "start_ns": at, "end_ns": at + 2, "correlation_id": 40 * part + number})
            work.append(kernel(2000 * part + 5 + 30 * number, 2000 * part + 35 + 30 * number, 40 * part + number))
    found = Analysis(trace_of(calls, work, [("step", 0, 8000)]))
    assert not (found.path_graph.joins["what"] == FOR_ROOM).any()


def one_queue(streams: int, room: int = 10) -> Analysis:
    """Kernels of 100 in turn on so many streams, one after the other, and a queue for all of them."""
    calls, work, now, free = [], [], 0, 0
    for number in range(200):
        begin, now = now, now + 5
        if number >= room:
            now = max(now, int(work[number - room]["start_ns"]))
        free = max(free, now + 1)
        calls.append({"name": LAUNCH, "start_ns": begin, "end_ns": now, "correlation_id": number})
        work.append(kernel(free, free + 100, number, number % streams))
        free += 101
        now += 5
    return Analysis(trace_of(calls, work, [("step", 0, free)]))


@pytest.mark.parametrize("streams", [1, 3])
def test_streams_may_share_a_queue(streams: int) -> None:
    joins = one_queue(streams).path_graph.joins.filter((pl.col("what") == FOR_ROOM) & pl.col("is_last"))
    # All launches but the first eleven, or so, found the queue full, and returned when a kernel began.
    assert joins.height >= 185
    assert joins["target_ns"].to_list() == joins["time_ns"].to_list()


@pytest.mark.parametrize("name", ["kineto/ns_resolution.pt.trace.json.gz"])
def test_steps_that_compute_nearly_all_the_time_become_shorter_with_it(name: str, traces_dir: Path) -> None:
    if not (traces_dir / name).exists():
        pytest.skip(f"{name} is not among the recorded traces")
    found = opspan.load(traces_dir / name).analysed
    times = step_times(found.attributed, found.iterations)
    rows = what_if(found.attributed, times, found.waits, found.path_graph, {"computing": 0.5}, found.meetings).steps
    # From the third step on the queue, of 1,022, is full; 93.6 ms of each 95.6 are computing.
    for row in rows.to_dicts()[2:]:
        assert row["after_ns"] == pytest.approx(row["before_ns"] - 93.6e6 / 2, rel=0.01)


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_a_queue_that_was_full_before_the_recording_began(share: float, tmp_path: Path) -> None:
    # The loss is fetched every five steps: then the queue is empty, and launches take as long as they do.
    job = Job(steps=24, layers=3, kernel=2.0, host=0.1, depth=100, item_every=5, has_functions=False)
    (path,) = kineto_files(tmp_path, Run(job, *rows_of(job)[:4]))
    whole = opspan.load(path).analysed
    calls = whole.tables.calls
    at_ns = calls["start_ns"].quantile(share)
    # Devices still do what was launched before.
    later = Analysis(replace(whole.tables, calls=calls.filter(pl.col("start_ns") >= at_ns)))
    found, before = (
        one.path_graph.joins.filter(pl.col("what") == FOR_ROOM, pl.col("is_last"), pl.col("time_ns") > at_ns)
        for one in (later, whole)
    )
    assert before.height > 100
    assert found.select("time_ns", "target_ns").equals(before.select("time_ns", "target_ns"))


def test_a_stream_with_a_full_queue_does_not_hold_launches_on_another() -> None:
    """On an H100 each stream has a queue of its own. Kernels of 100 on one, of 1 on the other, launched in turn."""
    calls, work, now = [], [], 0
    free = {1: 0, 2: 0}
    busy: list[int] = []
    for number in range(400):
        stream = 1 + number % 2
        begin, now = now, now + 5
        if stream == 1 and len(busy) >= 10:
            now = max(now, busy[-10])
        start = max(free[stream], now + 1)
        free[stream] = start + (100 if stream == 1 else 1)
        if stream == 1:
            busy.append(start)
        calls.append({"name": LAUNCH, "start_ns": begin, "end_ns": now, "correlation_id": number})
        work.append(kernel(start, free[stream], number, stream))
        now += 5
    found = Analysis(trace_of(calls, work, [("step", 0, max(free.values()))]))

    joins = found.path_graph.joins.filter((pl.col("what") == FOR_ROOM) & pl.col("is_last"))

    assert joins.height >= 180
    waited = {call["end_ns"] for call in calls[::2]}  # the calls on the busy stream
    assert set(joins["time_ns"]) <= waited


def test_the_queue_of_an_h100_has_room_for_1021_launches() -> None:
    """A kernel of 350 ms, and 1,500 short ones launched meanwhile: the launch that waits is the 1,022nd behind it."""
    found = opspan.load(DATA / "h100/full_queue.json.gz").analysed
    launches = found.complete.calls.filter(pl.col("name") == LAUNCH).sort("start_ns")
    begins = found.complete.work.filter(pl.col("kind") == "kernel")["start_ns"].sort()
    joins = found.path_graph.joins.filter((pl.col("what") == FOR_ROOM) & pl.col("is_last")).sort("time_ns")

    first = joins.row(0, named=True)

    (nth,) = launches.with_row_index().filter(pl.col("end_ns") == first["time_ns"])["index"]
    called = launches["start_ns"][nth]
    assert nth - (begins < called).sum() == 1021  # launched before, and not begun
    assert first["time_ns"] - called > 300e6
    assert 0 <= first["time_ns"] - first["target_ns"] < 50_000  # let go by a kernel that began
    assert would_change(found, {"computing": 0.5}) == pytest.approx(-0.5, abs=0.02)
    assert would_change(found, {"host": 0.5}) == pytest.approx(0, abs=0.02)
