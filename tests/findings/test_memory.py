"""Memory that grows from step to step, and memory in pieces that do not fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import opspan
from findings.made import MAIN, STEP, Case, Made, case_tests
from opspan.findings import findings

MB = 1 << 20


class Memory(Made):
    def event(self, at: int, event: str, address: int, size: int, **more: int) -> Memory:
        row = {"rank": 0, "pid": 1, "tid": MAIN, "device_id": 0, "time_ns": at, "event": event, "address": address}
        self.rows.setdefault("memory", []).append(row | {"bytes": size} | more)
        return self


def keeping(kept: Callable[[int], int], steps: int = 8, given_back: bool = False, size: int | None = 10_000) -> Memory:
    """5000 for weights, 1000 of activations in each step, and what aten::add takes and keeps, for good or for a
    step."""
    made = Memory(steps)
    made.device(memory_bytes=size).range("aten::add", 150, 100).event(5, "alloc", 1, 5000)
    for step in range(steps):
        begin = STEP * step
        made.event(begin + 100, "alloc", 2, 1000)
        if kept(step):
            made.event(begin + 200, "alloc", 10 + step, kept(step))
        made.event(begin + 900, "free", 2, 1000)
        if given_back and kept(step):
            made.event(begin + 950, "free", 10 + step, kept(step))
    return made


def reserving(before: int, block: int, reserved: int = 20 * MB, then: int = 40 * MB) -> Memory:
    """So much was in use of what was reserved, and then a block was taken, and more reserved."""
    made = Memory(steps=3)
    made.range("aten::empty", 1400, 200)
    for at, size, total, held in ((10, before, before, reserved), (1500, block, before + block, then)):
        made.event(at, "alloc", at, size, total_bytes=total)
        counter = {"rank": 0, "pid": 1, "device_id": 0, "time_ns": at, "name": "reserved bytes", "value": float(held)}
        made.rows.setdefault("counters", []).append(counter | {"domain": "torch allocator"})
    return made


CASES = [
    Case(
        "growing-memory",
        lambda: keeping(lambda step: 10),
        None,
        None,
        {"each_bytes": 10, "first_bytes": 5030, "last_bytes": 5080, "steps": 6, "steps_left": 492},
        {
            "less than a thousandth": lambda: keeping(lambda step: 6),
            "given back in each step": lambda: keeping(lambda step: 10, given_back=True),
            "in the first steps": lambda: keeping(lambda step: 100 if step < 3 else 0),
            "in one step": lambda: keeping(lambda step: 100 if step == 5 else 0),
            "one step keeps less": lambda: keeping(lambda step: 4 if step == 5 else 10),
            "six steps": lambda: keeping(lambda step: 10, 6),
        },
        ops=("aten::add",),
        words={"where": "device 0", "op": "aten::add"},
    ),
    Case(
        "fragmentation",
        lambda: reserving(10 * MB, 8 * MB),
        None,
        None,
        {"more_bytes": 20 * MB, "more_share": 0.5, "reserved_bytes": 40 * MB, "free_bytes": 10 * MB, "times": 1},
        {
            "less was free": lambda: reserving(13 * MB, 8 * MB),
            "a small block": lambda: reserving(10 * MB, MB),
            "9%": lambda: reserving(10 * MB, 8 * MB, then=22 * MB),
            "there was enough": lambda: reserving(10 * MB, 8 * MB, then=20 * MB),
        },
        ops=("aten::empty",),
        words={"device": "0"},
    ),
]


test_it_fires, test_it_is_silent = case_tests(CASES)


@pytest.mark.parametrize("keeps", [True, False])
def test_tensors_that_a_program_keeps(keeps: bool, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    model, kept = torch.nn.Linear(64, 64), []
    activities, schedule = [torch.profiler.ProfilerActivity.CPU], torch.profiler.schedule(wait=0, warmup=1, active=20)
    with torch.profiler.profile(activities=activities, schedule=schedule, profile_memory=True) as profiler:
        for _ in range(11):
            loss = model(torch.randn(64, 64)).square()
            loss.sum().backward()
            if keeps:
                kept.append(loss.detach().clone())
            profiler.step()
    profiler.export_chrome_trace(str(tmp_path / "run.json"))
    found = {one.rule.id: one.evidence for one in findings(opspan.load(tmp_path / "run.json").analysed)}
    assert ("growing-memory" in found) == keeps
    if keeps:
        evidence = found["growing-memory"]
        assert evidence.figures["each_bytes"] == 64 * 64 * 4
        assert evidence.words["where"] == "the host"
        assert evidence.ops[0] in ("aten::empty", "aten::empty_like", "aten::empty_strided", "aten::clone")
