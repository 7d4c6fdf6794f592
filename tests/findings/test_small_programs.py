"""Real programs on a CPU that torch.profiler recorded: small ops with Python between them, against sums over the
events of the file, and large ops."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import opspan
from opspan.findings import RULES, Evidence, Run
from opspan.findings.rules.host import _LEAST_NS, _SMALL_NS

STEPS = 8


def recorded(step: Callable[[], Any], path: Path, **options: bool) -> Run:
    schedule = torch.profiler.schedule(wait=0, warmup=2, active=STEPS, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=schedule, **options) as profiler:
        for _ in range(2 + STEPS):
            step()
            profiler.step()
    profiler.export_chrome_trace(str(path))
    return Run(opspan.load(path).analysed)


def evidence(run: Run, rule_id: str, threshold: float | None = None) -> list[Evidence]:
    rule = next(rule for rule in RULES if rule.id == rule_id)
    return list(rule.look(run, rule.threshold if threshold is None else threshold))


def spans(events: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """The begin and end of each event in ns, in order of time, the outer of two first."""
    ns = [(round(one["ts"] * 1000), round((one["ts"] + one["dur"]) * 1000)) for one in events]
    return sorted(ns, key=lambda span: (span[0], -span[1]))


def self_times(ops: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The begin and the self time of each op."""
    found: list[list[int]] = []
    around: list[int] = []
    for begin, end in ops:
        while around and ops[around[-1]][1] <= begin:
            around.pop()
        if around:
            found[around[-1]][1] -= end - begin
        around.append(len(found))
        found.append([begin, end - begin])
    return [(begin, ns) for begin, ns in found]


def test_small_ops_and_pauses_are_those_of_the_file(tmp_path: Path) -> None:
    values = torch.ones(4)

    def step() -> None:
        for _ in range(200):
            sum(range(100))
            torch.add(values, 1)

    # No threshold: on a machine that others use, pauses of the machine take most of the time.
    run = recorded(step, tmp_path / "trace.json")
    events = [one for one in json.loads((tmp_path / "trace.json").read_text())["traceEvents"] if one.get("ph") == "X"]
    usual = run.usual_steps["step"].to_list()
    steps = spans([one for one in events if one["name"] in usual and one["cat"] == "user_annotation"])
    ops = spans([one for one in events if one["cat"] == "cpu_op"])

    pauses, outer = [], ops[:1]
    for begin, end in ops:
        if begin >= outer[-1][1]:
            outer.append((begin, end))
    for (_, begin), (end, _) in pairwise([*outer, (2**62, 2**62)]):
        parts = [min(end, until) - max(begin, since) for since, until in steps]
        # A pause that the end of a step cuts is as long as both parts together.
        pauses += [ns for ns in parts if ns > 0 and (ns if end == 2**62 else end - begin) <= _LEAST_NS]
    (between,) = evidence(run, "between-ops", 0)
    assert between.figures["outside_ns"] == pytest.approx(sum(pauses), abs=len(pauses))
    assert between.figures["pauses"] == pytest.approx(len(pauses), abs=2)

    self_ns = [ns for at, ns in self_times(ops) if any(since <= at < until for since, until in steps)]
    few = [ns for ns in self_ns if 0 < ns < _SMALL_NS]
    (small,) = evidence(run, "small-ops", 0)
    assert small.figures["small_ns"] == pytest.approx(sum(few), abs=len(few))
    assert small.figures["calls"] == pytest.approx(len(few), abs=2)
    assert small.figures["all_calls"] == pytest.approx(len(self_ns), abs=2)


def test_large_ops_have_no_such_findings(tmp_path: Path) -> None:
    matrix = torch.ones(700, 700)

    def step() -> None:
        for _ in range(3):
            torch.mm(matrix, matrix)

    run = recorded(step, tmp_path / "trace.json")
    assert run.steps.height == STEPS
    assert not evidence(run, "between-ops")
    assert not evidence(run, "small-ops")
