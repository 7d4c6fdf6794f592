"""Idle time is never without a finding that says what most of it is for, and where the host was."""

from __future__ import annotations

from pathlib import Path

import pytest

import opspan
from findings.made import Case, Made, check_fires, check_silent, each
from opspan.findings import Finding, findings
from opspan.findings.run import Run
from real_files import in_parts, traces_of

# Rules that speak of idle time.
IDLE = {"idle", "item", "blocking-copies", "synchronise", "launch-bound", "late-host", "queued", "optimizer-loop"}
IDLE |= {"data-loading", "allocation", "module-loading", "cpu-fallback", "recompilation"}


@in_parts
def test_every_recorded_file_with_idle_devices_has_a_finding_of_them(part: int, traces_dir: Path) -> None:
    looked_at, silent = 0, []
    for trace in traces_of(traces_dir, part):
        whole = trace.analysed.whole_devices
        if whole["idle_ns"].sum() > 0.1 * whole["time_ns"].sum():
            looked_at += 1
            found = [one for one in findings(trace.analysed) if one.rule.id in IDLE]
            if not any(one.evidence.ops or "where" in one.evidence.words for one in found):
                silent.append(trace.paths)
    assert looked_at
    assert not silent


@pytest.mark.parametrize("name", ["kineto/vllm_graph_execution.json.gz", "nsys/torch_lm_2025.sqlite"])
def test_a_start_that_takes_most_of_the_idle_time_is_said(name: str, traces_dir: Path) -> None:
    if not (traces_dir / name).exists():
        pytest.skip(f"{name} is not among the recorded traces")
    run = Run(opspan.load(traces_dir / name).analysed)
    found = {one.rule.id: one for one in findings(run.analysis)}["idle"].evidence
    work = run.trace.work.filter(~run.trace.work["is_overhead"].fill_null(value=False))
    begin = min(frame["start_ns"].min() for frame in (run.trace.ranges, run.trace.calls, work))
    first = work.filter(work["kind"] != "sync")["start_ns"].min()
    assert found.figures["cause_ns"] == pytest.approx(first - begin, rel=0.01)
    assert found.at_stake_ns is None


def idle_of(made: Made) -> Finding | None:
    return made.findings().get("idle")


def seldom_late(late: int = 60) -> Made:
    """In 8% of each step, 60 to 140, a launch is late, and in 5% work was queued: less than a tenth each."""
    made = Made().range("log", late - 5, 150 - late, kind="user").launch(130, "first", 140, 700)
    return made.launch(400, "second", 890, 110 + late)


CASES = [
    Case(
        "idle",
        seldom_late,
        9 * 80,  # in the first step it is the time before the first work
        720 / 10060,  # the last step is done 60 after its end
        {"idle_ns": 1360, "idle_share": 1360 / 10060, "cause_ns": 720, "cause_share": 720 / 1360},
        {"idle for 8.4%": lambda: seldom_late(110)},
        ops=("log",),
        steps=("ProfilerStep#1", "ProfilerStep#2", "ProfilerStep#3"),
        ranges=each(60, 80, range(1, 10)),
        words={"cause": "until the host had launched what came next", "where": "log"},
    )
]


def test_it_fires() -> None:
    check_fires(CASES[0])


def test_it_is_silent() -> None:
    check_silent(CASES[0], "idle for 8.4%")


def test_a_rule_that_speaks_of_it_is_enough() -> None:
    made = Made().work("first", 0, 400).call("cudaDeviceSynchronize", 100, 310).launch(500, "second", 520, 480)
    assert "synchronise" in made.findings()
    assert idle_of(made) is None


def test_the_time_before_the_first_work_is_no_time_that_a_change_of_the_loop_saves() -> None:
    made = Made(steps=0).range("import", 0, 500, [0], kind="user").launch(480, "first", 500, 500, [0])
    found = idle_of(made)
    assert found is not None
    assert found.evidence.words == {"cause": "before the first work of a device", "where": "import"}
    assert found.evidence.at_stake_ns is None
    assert found.evidence.figures["cause_share"] == 1
