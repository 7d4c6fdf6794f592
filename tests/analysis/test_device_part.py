"""The device's part of a recording: put to the host's, and doubted where its times cannot be."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import opspan
from builders import kineto
from builders.capture import Capture
from emit.running import opspan as command
from opspan.analysis.device_part import TOLERANCE_NS, causal
from opspan.loading import load_recording
from opspan.tables import Issues
from opspan.trace import Trace

Event = dict[str, Any]
HOSTS = {"cpu_op", "user_annotation", "python_function", "cpu_instant_event", "fwdbwd", "Trace"}
TORCHS = (
    "b200_eager.json.gz",
    "bert_h100_foreign_thread_functions.json.gz",
    "mi300_ddp_resnet18.json.gz",
    "norm_layers.json.gz",
    "ns_resolution.pt.trace.json.gz",
)
MONOTONIC = 7_000_000_000_000  # the host's clock at the begin of the trace


def halves(events: list[Event], members: dict[str, Any], folder: Path, of: Sequence[str] = ("cpu_op",)) -> Path:
    """The capture of what ran on the host, with the device's part beside it and without what torch knew of both."""
    whole = [event for event in events if event.get("ph") == "X"]
    first = min(Decimal(event["ts"]) for event in whole)
    base = members.get("baseTimeNanoseconds", 0)

    def ns(time: Any) -> int:
        return round((Decimal(time) - first) * 1000) + MONOTONIC

    utc = base + round(first * 1000)
    hosts = [event for event in whole if event["cat"] in of]
    (pid, _), *_ = Counter(event["pid"] for event in hosts).most_common()
    made = Capture(pid=pid, open_ns=(MONOTONIC, utc), close_ns=(MONOTONIC + 10**12, utc + 10**12))
    threads: dict[int, list[Event]] = {}
    for event in hosts:
        if event["pid"] == pid:
            threads.setdefault(event["tid"], []).append(event)
    for tid, ranges in threads.items():
        thread = made.thread(tid)
        for event in sorted(ranges, key=lambda event: (Decimal(event["ts"]), -Decimal(event["dur"]))):
            start = ns(event["ts"])
            thread.torch(event["name"], start, start + round(Decimal(event["dur"]) * 1000))
    kept = []
    for event in events:
        if event.get("cat") in HOSTS:
            continue
        arguments = {key: value for key, value in event.get("args", {}).items() if key != "External id"}
        kept.append({**event, "args": arguments} if "args" in event else event)
    session = {"monotonic_ns": [MONOTONIC, MONOTONIC + 10**12], "utc_ns": [utc, utc + 10**12]}
    capture = made.write(folder / f"{pid}-1.opspan")
    document = {**members, "opspan": session, "traceEvents": kept}
    (folder / f"{pid}-1.1.device.json").write_text(json.dumps(document, default=float))
    return capture


def launched_by(trace: Trace) -> Counter[tuple[str, str | None]]:
    """Each kernel with the op that launched it."""
    found = trace.analysed.attributed
    names = found.ranges["name"].cast(pl.String)
    work = found.work.filter(pl.col("kind") == "kernel", ~pl.col("is_overhead"))
    return Counter(zip(work["full_name"].cast(pl.String), names.gather(work["launch_range"]), strict=True))


@pytest.mark.parametrize("name", TORCHS)
def test_halves_of_a_trace_are_the_whole_of_it(name: str, traces_dir: Path, tmp_path: Path) -> None:
    """By the ids with which torch itself tied kernels to ops; the halves have none of them."""
    path = traces_dir / "kineto" / name
    if not path.is_file():
        pytest.skip(f"{name} is not among the recorded traces")
    document = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
    members = {key: value for key, value in document.items() if key != "traceEvents"}
    events = document["traceEvents"]
    ops = {event["args"]["External id"]: event for event in events if event.get("cat") == "cpu_op"}
    kernels = [event for event in events if event.get("cat") == "kernel"]
    expected = Counter(
        (event["name"], ops[event["args"]["External id"]]["name"])
        for event in kernels
        if event["args"].get("External id") in ops
    )
    assert expected

    capture = halves(events, members, tmp_path)
    found = opspan.load(tmp_path)

    assert not found.issues.filter(code="impossible_device_times").height
    assert found.work.filter(pl.col("kind") == "kernel").height == len(kernels)
    assert found.work["end_ns"].max() < MONOTONIC + 10**12
    missing = expected - launched_by(found)
    assert not missing, missing
    for same in (opspan.load(capture), load_recording(capture)):
        assert same.work.equals(found.work)
        assert same.calls.equals(found.calls)


def two_halves(tmp_path: Path, change: Callable[[list[Event]], None] = lambda _: None) -> Path:
    events = json.loads(json.dumps(kineto.events()))
    change(events)
    members = {"baseTimeNanoseconds": kineto.BASE_NS, **kineto.HEAD}
    return halves(events, members, tmp_path, of=("cpu_op", "user_annotation"))


def test_what_a_user_sees(tmp_path: Path) -> None:
    trace = opspan.load(two_halves(tmp_path))
    whole = opspan.load(kineto.write(tmp_path / "whole.json"))
    assert launched_by(trace) == launched_by(whole)
    assert trace.devices["name"].to_list() == ["Some GPU"]
    assert trace.metadata.source == "capture"
    assert "Self CUDA" in trace.events().table() or "Self Device" in trace.events().table()
    steps = opspan.load(two_halves(tmp_path), step=7)
    assert steps.work.height == trace.work.height


def test_the_command_line_sees_it_too(tmp_path: Path) -> None:
    capture = two_halves(tmp_path)
    done = command("table", capture, "--by", "kernel", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert sum(row["count"] for row in json.loads(done.stdout)["rows"]) == opspan.load(capture).work.height > 0


def test_a_broken_device_part_leaves_the_hosts(tmp_path: Path) -> None:
    capture = two_halves(tmp_path)
    (part,) = tmp_path.glob("*.device.json")
    part.write_text("no trace")
    trace = opspan.load(capture)
    assert trace.ranges.height
    assert trace.work.is_empty()
    assert trace.issues["code"].to_list() == ["unreadable_file"]


@pytest.mark.parametrize("said", [None, {}, {"monotonic_ns": [1], "utc_ns": "x"}, {"monotonic_ns": [1, 2**70]}, 7])
def test_without_the_two_clocks_those_of_the_files_align(tmp_path: Path, said: Any) -> None:
    capture = two_halves(tmp_path)
    exact = opspan.load(capture).work["start_ns"].to_list()
    (part,) = tmp_path.glob("*.device.json")
    document = json.loads(part.read_text())
    document["opspan"] = said
    part.write_text(json.dumps(document))
    trace = opspan.load(capture)
    assert trace.work["start_ns"].to_list() == exact
    assert "aligned_by_clocks" in trace.issues["code"].to_list()


def test_a_clock_that_was_set_meanwhile_is_said(tmp_path: Path) -> None:
    capture = two_halves(tmp_path)
    (part,) = tmp_path.glob("*.device.json")
    document = json.loads(part.read_text())
    document["opspan"]["utc_ns"][1] += 5_000_000
    part.write_text(json.dumps(document))
    assert "clock_stepped" in opspan.load(capture).issues["code"].to_list()


def kernels(events: list[Event]) -> list[Event]:
    return [event for event in events if event.get("cat") == "kernel"]


@pytest.mark.parametrize(
    ("at_us", "why"),
    [(1001.0, "before the call"), (2e9, "outside")],
)
def test_times_that_cannot_be_are_no_times(tmp_path: Path, at_us: float, why: str) -> None:
    def change(events: list[Event]) -> None:
        kernels(events)[0]["ts"] = at_us

    trace = opspan.load(two_halves(tmp_path, change))
    issue = trace.issues.filter(code="impossible_device_times")
    assert why in issue["message"][0], issue.rows()
    assert issue["severity"].to_list() == ["error"]
    assert trace.work["start_ns"].null_count() == trace.work["end_ns"].null_count() == 1
    everything = opspan.load(kineto.write(tmp_path / "whole.json"))
    assert trace.work.height == everything.work.height, "it counts all the same"
    assert sum(launched_by(trace).values()) == sum(launched_by(everything).values())
    trace.events().table()
    trace.export(tmp_path / "out.json")
    trace.export(tmp_path / "out.sqlite")


CALLS = {"id": pl.UInt32, "pid": pl.Int64, "correlation_id": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64}
times = st.integers(0, 60).map(lambda time: time * TOLERANCE_NS // 2)
launch = st.tuples(times, times, st.integers(0, 1), times, times)


@settings(max_examples=300, deadline=None)
@given(st.lists(launch, max_size=12), st.none() | st.tuples(times, times).map(sorted))
def test_against_every_pair(launches: list[tuple[int, ...]], session: list[int] | None) -> None:
    calls = pl.DataFrame(
        [(i, 1, i, called, called + took) for i, (called, took, *_) in enumerate(launches)], schema=CALLS, orient="row"
    )
    work = pl.DataFrame(
        [
            (i, 1, i, start, start + took, stream, "kernel", False)
            for i, (_, _, stream, start, took) in enumerate(launches)
        ],
        schema={**CALLS, "stream_id": pl.Int64, "kind": pl.String, "is_overhead": pl.Boolean},
        orient="row",
    ).with_columns(device_id=pl.lit(0), context_id=pl.lit(None, dtype=pl.Int64))

    def impossible(called: int, start: int, end: int) -> bool:
        outside = session and (start + TOLERANCE_NS < session[0] or end - TOLERANCE_NS > session[1])
        return start + TOLERANCE_NS < called or bool(outside)

    wrong = set()
    for i, (called, _, stream, start, took) in enumerate(launches):
        overtakes = any(
            start + TOLERANCE_NS < other
            for before, its_call, its_stream, other, its_time in launches
            if before + its_call <= called and its_stream == stream and not impossible(before, other, other + its_time)
        )
        if overtakes or impossible(called, start, start + took):
            wrong.add(i)
    issues = Issues("made up")
    found = causal(calls, work, (session[0], session[1]) if session else None, issues)
    assert set(found.filter(pl.col("start_ns").is_null())["id"]) == wrong
    assert bool(issues.frame().height) == bool(wrong)
