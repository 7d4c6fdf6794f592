"""torch.compile's Triton kernels, with and without CUDA graphs: what a trace and a recording say of them."""

from __future__ import annotations

from collections import Counter

import pytest

import opspan
from gpu.children import differences, fact
from gpu.conftest import Run, Runs
from gpu.work_rows import Row, chrome_events, of_chrome, of_trace

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.usefixtures("gpu")]

MODES = ("default", "reduce-overhead")
RECORDERS = ("record", "profile")


def compiled(runs: Runs, mode: str, watcher: str) -> Run:
    run = runs("compiled", mode, watcher, timeout=110)
    assert run.ended.told["has_gpu"]
    return run


def rows_of(runs: Runs, mode: str, watcher: str) -> list[Row]:
    folder = compiled(runs, mode, watcher).folder
    if watcher == "torch":
        return of_chrome(folder / "torch.json")
    return of_trace(opspan.load(folder / "recorded").analysed)


@pytest.mark.parametrize("watcher", ["torch", *RECORDERS])
@pytest.mark.parametrize("mode", MODES)
def test_results_are_the_same_watched_or_not(runs: Runs, mode: str, watcher: str) -> None:
    told = compiled(runs, mode, watcher).ended.told
    fact("compiled", mode=mode, watcher=watcher, **told)
    assert told["digest"] == told["before"]
    assert told["apart"] < 0.1


@pytest.mark.parametrize("mode", MODES)
def test_what_torchs_trace_says(runs: Runs, mode: str) -> None:
    rows = rows_of(runs, mode, "torch")
    file = compiled(runs, mode, "torch").folder / "torch.json"
    triton = [event for event in chrome_events(file) if "triton_" in str(event.get("name"))]
    fact(
        "compiled, by torch",
        mode=mode,
        rows=[(row.kind, row.name[:80], row.call, row.op) for row in rows],
        events=Counter(f"{event.get('cat')}: {event['name'][:60]}" for event in triton),
        args={event["cat"]: event.get("args") for event in triton if "cat" in event},
        calls=Counter(row.call for row in rows),
    )
    kernels = [row.name for row in rows if row.name.startswith("triton_")]
    assert kernels, Counter(row.name for row in rows)
    assert any("_poi_" in name for name in kernels), kernels
    assert any("_red_" in name or "_per_" in name for name in kernels), kernels
    assert not [row for row in rows if row.call is None]
    ours = of_trace(opspan.load(file).analysed)
    described = [[(row.kind, row.name, row.call, row.correlation) for row in found] for found in (ours, rows)]
    assert described[0] == described[1], differences(*described)


@pytest.mark.parametrize("recorder", RECORDERS)
@pytest.mark.parametrize("mode", MODES)
def test_a_recording_has_the_same_kernels_each_with_its_call(runs: Runs, mode: str, recorder: str) -> None:
    """Whether they have the same ops is a fact: torch names a Triton kernel's launch in a way of its own."""
    ours, theirs = rows_of(runs, mode, recorder), rows_of(runs, mode, "torch")
    trace = opspan.load(compiled(runs, mode, recorder).folder / "recorded")
    by_kernel = trace.table(by="kernel").rows
    fact(
        "compiled, recorded",
        mode=mode,
        recorder=recorder,
        ops=[(row.name[:60], row.op) for row in ours],
        same_ops=[row.op for row in ours] == [row.op for row in theirs],
        without_op=sum(row.op is None for row in ours),
        ranges=Counter(trace.ranges["name"].to_list()),
        kernels=str(by_kernel)[:3000],
        issues=trace.issues.to_dicts(),
    )
    described = [[(row.kind, row.name, row.call) for row in found] for found in (ours, theirs)]
    assert ours
    assert described[0] == described[1], differences(*described)
    assert not [row for row in ours if row.call is None]
