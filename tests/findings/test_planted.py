"""A fault that was planted in a made run is found: first, alone, and in its place; a healthy run has no findings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from builders.training import FOREACH, KERNELS, run
from builders.training_files import load
from builders.training_plan import Plan
from opspan.findings import Finding, findings

MS = 1_000_000
PLANTED = {
    "data-loading": Plan(slow_loader=5 * MS),
    "step-outliers": Plan(steps=12, stalls={5: 20 * MS}),
    "item": Plan(item_per_step=True),
    "blocking-copies": Plan(pageable=True),
    "cpu-fallback": Plan(fallbacks=3),
    "exposed-communication": Plan(ranks=4, exposed=True),
    "straggler": Plan(ranks=8, straggler=(3, 1.5)),
    "small-collectives": Plan(ranks=4, small_collectives=True),
    "launch-bound": Plan(launch_bound=True),
    "tf32-off": Plan(fp32=True),
    "odd-sizes": Plan(odd=True),
    "few-blocks": Plan(few_blocks=True),
    "optimizer-loop": Plan(loop_optimizer=True),
    "recompilation": Plan(steps=12, recompiles=(6,)),
}
SOURCES = ("kineto", "nsys")
pytestmark = pytest.mark.parametrize("source", SOURCES)


def costly(folder: Path, plan: Plan, source: str) -> list[Finding]:
    """Findings with time at stake."""
    return [one for one in findings(load(folder, plan, source).analysed) if one.evidence.at_stake_ns is not None]


@pytest.mark.parametrize("plan", [Plan(), Plan(ranks=8), Plan(steps=40), Plan(seed=7, noise=0.02)])
def test_a_healthy_run_has_no_finding_that_costs(plan: Plan, source: str, tmp_path: Path) -> None:
    assert not costly(tmp_path, plan, source)


@pytest.mark.parametrize("name", PLANTED)
def test_what_was_planted_is_found_alone(name: str, source: str, tmp_path: Path) -> None:
    (found,) = costly(tmp_path, PLANTED[name], source)
    assert found.rule.id == name
    assert found.share is not None
    assert found.share > 0.02


def test_the_rank_that_is_late_is_named(source: str, tmp_path: Path) -> None:
    (found,) = costly(tmp_path, PLANTED["straggler"], source)
    assert found.evidence.ranks == (3,)
    assert found.evidence.words["who"] == "rank 3 (process 5300)"


def test_a_stall_is_of_its_step_and_as_long_as_it_was(source: str, tmp_path: Path) -> None:
    (found,) = costly(tmp_path, PLANTED["step-outliers"], source)
    assert found.evidence.steps == ("ProfilerStep#5",)
    # A part of the stall is hidden by what the host had launched before it.
    assert 17 * MS < (found.evidence.at_stake_ns or 0) < 20.1 * MS


def test_a_loader_that_blocks_costs_what_it_takes_longer(source: str, tmp_path: Path) -> None:
    plan = PLANTED["data-loading"]
    (found,) = costly(tmp_path, plan, source)
    assert found.evidence.at_stake_ns == pytest.approx(plan.slow_loader * plan.steps, rel=0.15)
    assert found.evidence.ops[0].startswith("enumerate(DataLoader)")


def test_copies_there_and_back_are_named_beside_the_waits_that_they_are(source: str, tmp_path: Path) -> None:
    found = {one.rule.id: one for one in costly(tmp_path, Plan(round_trips=4), source)}
    assert set(found) == {"there-and-back", "blocking-copies", "exposed-copies"}
    assert found["there-and-back"].evidence.figures["trips"] == 4 * Plan().steps
    assert found["there-and-back"].evidence.figures["bytes"] == 4 * Plan().steps * (4 << 20)


def lasts(plan: Plan) -> int:
    made = run(plan)
    return max(row.end for row in made.work) - min(row.start for row in made.ranges)


SLOW_DEVICE = dict.fromkeys((*KERNELS, *(f"aten::{name}" for name in FOREACH)), 3.0)


@pytest.mark.parametrize("loader", [2 * MS, 8 * MS])
def test_a_wait_in_each_step_is_told_apart_from_the_loading_that_it_leaves_bare(
    loader: int, source: str, tmp_path: Path
) -> None:
    # Without the wait the host is ahead of its device, and the next batch is loaded while that works.
    healthy = Plan(steps=12, slow_loader=loader, slower=SLOW_DEVICE)
    plan = replace(healthy, item_per_step=True)
    for name in ("with", "without"):
        (tmp_path / name).mkdir()
    found = {one.rule.id: one.evidence.at_stake_ns for one in costly(tmp_path / "with", plan, source)}
    # Each of the two costs what the run gains that has not that one.
    assert found["item"] == pytest.approx(lasts(plan) - lasts(healthy), rel=0.05)
    assert found["data-loading"] == pytest.approx(lasts(plan) - lasts(replace(plan, slow_loader=0)), rel=0.05)
    alone = {one.rule.id: one.evidence.at_stake_ns for one in costly(tmp_path / "without", healthy, source)}
    gain = lasts(healthy) - lasts(replace(healthy, slow_loader=0))
    assert alone.get("data-loading", 0) == pytest.approx(gain, rel=0.05, abs=0.03 * lasts(healthy))
