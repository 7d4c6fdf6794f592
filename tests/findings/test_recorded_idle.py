"""Idle time that findings state of recorded files without steps: computed again from the files' own rows, to the
nanosecond. Each gap, each wait and each launch is looked at by itself (recorded_rows.py)."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from statistics import mean

import pytest

from findings.recorded_rows import (
    ASYNC_COPY,
    COPY,
    ON_DEVICE,
    PAGEABLE,
    SYNCHRONISE,
    Call,
    Gap,
    Rows,
    after_waits,
    gaps_of,
    held,
    pace_of,
    rows_of,
)
from findings.test_recorded import DEVICE, Spans, events_of, said, time_in
from tiers import RELEASE

_PACES = 10
# For each rule the least share of the run that it reports: late time below that is left to other rules.
LEAST = {"late-host": 0.1, "launch-bound": 0.1, "queued": 0.1}
WAITS = ("synchronise", "blocking-copies")
FILES = (
    "kineto/alexnet_sync_events.json.gz",
    "kineto/event_sync_multi_stream.json.gz",
    "kineto/norm_layers.json.gz",
    "kineto/vllm_graph_capture.json.gz",
    "nsys/cudf_2020.sqlite",
    "nsys/dlprof_2022.sqlite",
    "nsys/mpi_saxpy_2022.sqlite",
    "nsys/nvfuser_2024.sqlite",
    "nsys/nvfuser_2025.sqlite",
    "nsys/profiler_overhead_ends.sqlite",
    "nsys/pyprof_2024.sqlite",
    "nsys/torch_lm_2025.sqlite",
    "nsys/train_fsdp_2gpu.sqlite",
    "nvprof/cpu_faults.prof",
    "nvprof/lm_emit_nvtx.sql",
    "nvprof/nccl_4gpu.nvvp",
    "rocpd/matmul_result_large.rpd",
    "rocpd/torch_autograd.rpd",
)


def waits_of(rows: Rows, gaps: Iterable[Gap]) -> dict[str, list[Call]]:
    """The waits of threads that launch, from the first work on; copies wait whose call says so, or that have pageable
    memory at one end."""
    launching = {(one.pid, one.tid) for one in gaps}
    first = {pid: min(one.begin for one in rows.work if one.pid == pid) for pid in {one.pid for one in rows.work}}
    pageable = {one.call for one in rows.work if PAGEABLE in one.sides}
    on_device = {one.call for one in rows.work if set(one.sides) == {ON_DEVICE}}
    found: dict[str, list[Call]] = {"synchronise": [], "blocking-copies": []}
    for one in rows.calls:
        if (one.pid, one.tid) in launching and one.end > first[one.pid]:
            own = one._replace(begin=max(one.begin, first[one.pid]))
            if re.search(SYNCHRONISE, one.name):
                found["synchronise"].append(own)
            elif (re.search(COPY, one.name) and one.id not in on_device) or (
                re.search(ASYNC_COPY, one.name) and one.id in pageable
            ):
                found["blocking-copies"].append(own)
    return found


def expected(path: Path) -> dict[str, float]:
    """The idle time of each rule: for the process that has most of it, the mean of its devices."""
    rows = rows_of(path)
    gaps = held(gaps_of(rows), rows)
    waits = waits_of(rows, gaps)
    for rule in sorted(waits, key=lambda rule: -sum(one.end - one.begin for one in waits[rule])):
        gaps = after_waits(gaps, waits[rule], rule)
    paces = {pid: pace_of(rows, pid) for pid in {one.pid for one in gaps}}
    sums: dict[tuple[str, int, int], int] = {}
    for one in gaps:
        rule = one.why
        if rule == "late":
            apart, work = paces[one.pid]
            is_bound = apart > work and one.end - one.begin <= _PACES * apart
            rule = "launch-bound" if is_bound else "late-host"
        sums[rule, one.pid, one.device] = sums.get((rule, one.pid, one.device), 0) + one.ns
    places = {(one.pid, one.device) for one in rows.work}
    return {
        rule: max(
            mean(sums.get((rule, *place), 0) for place in places if place[0] == pid)
            for pid in {pid for pid, _ in places}
        )
        for rule in (*LEAST, *WAITS)
    }


@pytest.mark.parametrize("name", FILES)
def test_idle_time_of_each_cause(name: str, traces_dir: Path) -> None:
    found = said(traces_dir, name)
    ns = {rule: int(sum_ns) for rule, sum_ns in expected(traces_dir / name).items()}
    stated = {rule: found[rule].evidence.figures["idle_ns"] for rule in (*LEAST, *WAITS) if rule in found}
    assert stated == {rule: ns[rule] for rule in stated}
    # And what no finding speaks of is less than its threshold.
    whole = max(
        one.evidence.at_stake_ns / one.share for one in found.values() if one.evidence.at_stake_ns and one.share
    )
    assert "idle" in found or all(ns[rule] < least * whole for rule, least in LEAST.items() if rule not in stated)


@pytest.mark.parametrize("name", [pytest.param("compiled_flux_step", marks=RELEASE)])
def test_idle_time_that_no_rule_of_its_own_speaks_of(name: str, traces_dir: Path) -> None:
    found = said(traces_dir, f"kineto/{name}.json.gz")["idle"].evidence
    ns = expected(traces_dir / f"kineto/{name}.json.gz")
    # Until launches, whatever the pace. Of what is neither that nor queued there is less.
    assert found.at_stake_ns == ns["late-host"] + ns["launch-bound"]
    assert found.words["cause"] == "until the host had launched what came next"


def test_a_report_of_nsys(traces_dir: Path, tmp_path: Path) -> None:
    name = "nsys/conductor.nsys-rep"
    found = said(traces_dir, name)["late-host"].evidence
    ns = expected(exported(traces_dir / name, tmp_path))
    assert found.figures["idle_ns"] == int(ns["late-host"])


def exported(report: Path, folder: Path) -> Path:
    to = folder / "report.sqlite"
    subprocess.run(["nsys", "export", "--type=sqlite", f"--output={to}", report], check=True, capture_output=True)
    return to


@pytest.mark.parametrize(("name", "odd"), [("resnet50_torch1.8", 5), ("resnet50_memory_without_category", None)])
def test_idle_time_of_the_optimizer(name: str, odd: int | None, traces_dir: Path) -> None:
    path = traces_dir / f"kineto/{name}.pt.trace.json.gz"
    found = said(traces_dir, f"kineto/{name}.pt.trace.json.gz")["optimizer-loop"].evidence
    optimizers = [one for one in events_of(path) if one["name"].startswith("Optimizer.")]
    steps = usual(path, odd)
    idle_ns = 0
    for gap in gaps_of(rows_of(path)):
        if gap.launched is None or gap.why != "late":
            continue
        own = [one for one in optimizers if one["tid"] == gap.tid]
        inside = [(max(one["begin"], gap.begin), min(one["end"], gap.launched)) for one in own]
        if any(one["begin"] <= gap.launched < one["end"] for one in own):
            inside.append((gap.launched, gap.end))
        idle_ns += time_in(inside, steps)
    assert found.figures["idle_ns"] == idle_ns


def usual(path: Path, odd: int | None) -> Spans:
    """The profiler's steps without one."""
    steps = [one for one in events_of(path) if "ProfilerStep#" in one["name"] and not one["cat"].startswith("gpu")]
    names = {one["name"]: (one["begin"], one["end"]) for one in steps}
    return sorted(span for name, span in names.items() if name != f"ProfilerStep#{odd}")


def test_copies_that_the_host_waits_for_in_steps(traces_dir: Path) -> None:
    name = "kineto/resnet50_torch1.8.pt.trace.json.gz"
    found = said(traces_dir, name)["blocking-copies"].evidence
    rows, steps = rows_of(traces_dir / name), usual(traces_dir / name, 5)
    gaps = gaps_of(rows)
    waits = waits_of(rows, gaps)["blocking-copies"]
    assert (found.figures["waits"], found.figures["wait_ns"]) == (len(waits), sum(one.end - one.begin for one in waits))
    of_steps = [[one for one in waits if begin <= one.begin < end] for begin, end in usual(traces_dir / name, None)]
    firsts = {min(own).begin for own in of_steps if own}
    # The first wait of the next step ends the effect of a wait.
    rows_in_order = [(one.end, 0, one.end - one.begin, one.begin in firsts) for one in waits]
    rows_in_order += [
        (gap.launched or 0, 1, time_in([(gap.begin, gap.end)], [step]), False)
        for gap in gaps
        if gap.why == "late"
        for step in steps
    ]
    left = after = 0
    for _, is_gap, ns, is_first in sorted(rows_in_order):
        part = min(left, ns) if is_gap else 0
        left = left - part if is_gap else ns + (0 if is_first else left)
        after += part
    assert found.figures["idle_ns"] == after
    # With the outlier, whose copies wait as well; had none of them waited, no more than that is gained.
    assert after < (found.at_stake_ns or 0) <= found.figures["wait_ns"]


def test_launches_that_are_too_slow_in_steps(traces_dir: Path) -> None:
    name = "kineto/resnet50_torch1.8.pt.trace.json.gz"
    found = said(traces_dir, name)
    rows, steps = rows_of(traces_dir / name), usual(traces_dir / name, 5)
    late = [(one.begin, one.end) for one in gaps_of(rows) if one.why == "late"]
    apart, work = pace_of(rows, 0)
    assert apart > work
    quick = [(begin, end) for begin, end in late if end - begin <= _PACES * apart]
    names = ("launch-bound", "optimizer-loop", "blocking-copies")
    ns = sum(found[name].evidence.figures["idle_ns"] for name in names)
    assert time_in(quick, steps) <= ns <= time_in(late, steps)


def test_a_step_whose_device_waits_for_nearly_all_launches(traces_dir: Path) -> None:
    name = "kineto/bert_h100_foreign_thread_functions.json.gz"
    found = said(traces_dir, name)["launch-bound"].evidence
    rows = rows_of(traces_dir / name)
    (step,) = usual(traces_dir / name, None)
    late = [(one.begin, one.end) for one in gaps_of(rows) if one.why == "late"]
    # With what comes before the step's first kernel.
    ns = time_in([*late, (step[0], rows.work[0].begin)], [step])
    assert found.figures["idle_ns"] == pytest.approx(ns, rel=0.005)


@pytest.mark.parametrize("name", ["kineto/vllm_graph_capture.json.gz", "kineto/mtia_inference.json.gz"])
def test_waits_that_are_not_why_devices_are_idle(name: str, traces_dir: Path) -> None:
    assert "synchronise" not in said(traces_dir, name)
    events = events_of(traces_dir / name)
    waits = [one for one in events if re.search(r"^(hip(Device|Event)S|s)ynchronize", one["name"])]
    calls = [one for one in events if one["cat"] == "cuda_runtime" or one["name"].startswith("enqueueCommand")]
    waits = [one for one in waits if one["tid"] in {call["tid"] for call in calls}]
    first = min(one["begin"] for one in events if one["cat"] in (*DEVICE, "mtia_ccp_events"))
    before = sum(one["end"] - one["begin"] for one in waits if one["begin"] < first)
    beside = [
        any(one["tid"] != call["tid"] and one["begin"] < call["begin"] < one["end"] for call in calls) for one in waits
    ]
    # They waited before there was anything to wait for, or while other threads went on.
    assert before > 0.9 * sum(one["end"] - one["begin"] for one in waits) or sum(beside) > len(waits) / 2
