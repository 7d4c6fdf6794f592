"""The time that a run would gain without loads, waits, copies or a pause, against the same run simulated without
them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import opspan
from builders import training_plan
from builders.job import Extra, Job
from builders.job_program import rows_of
from builders.training_files import kineto_files, nsys_files
from opspan.findings import Finding, Run, findings
from opspan.findings.saved import merge, saved_ns

FILES = {"kineto": kineto_files, "nsys": nsys_files}
MS = 1_000_000
# A host that is hardly ahead of its device: what makes it wait costs time.
PRESSED = Job(steps=12, layers=3, kernel=0.4, host=0.4, has_functions=False)
ONCE = frozenset([6])
FAULTS = {
    "data-loading": replace(PRESSED, load_ns=2 * MS),
    "item": replace(PRESSED, items=6),
    "synchronise": replace(PRESSED, synchronises=6),
    "blocking-copies": replace(PRESSED, batch_ns=MS // 2, pageable=True),
    "exposed-copies": replace(PRESSED, kernel=1.0, side_ns=MS // 2),
    "there-and-back": replace(PRESSED, round_trips=2, round_trip_ns=MS // 4),
}
FAULTS |= {
    "late-host": replace(PRESSED, extras=(Extra("backward", 5 * MS, "log", "user"),)),
    "optimizer-loop": replace(PRESSED, loop_optimizer=True),
}
WITHOUT = {"blocking-copies": replace(FAULTS["blocking-copies"], pageable=False)}
WITHOUT["exposed-copies"] = replace(FAULTS["exposed-copies"], side_ns=0)


def said(folder: Path, job: Job, source: str) -> list[Finding]:
    paths = FILES[source](folder, training_plan.Run(job, *rows_of(job)[:4]))
    return findings(opspan.load(*paths).analysed)


@pytest.mark.parametrize("source", FILES)
@pytest.mark.parametrize("rule", FAULTS)
def test_at_stake_is_what_the_run_gains_without_the_fault(rule: str, source: str, tmp_path: Path) -> None:
    job = FAULTS[rule]
    gain = rows_of(job).ns - rows_of(WITHOUT.get(rule, PRESSED)).ns

    (found,) = (one for one in said(tmp_path, job, source) if one.rule.id == rule)

    assert gain > 0.03 * rows_of(job).ns
    assert found.evidence.at_stake_ns == pytest.approx(gain, rel=0.1)


@pytest.mark.parametrize("source", FILES)
@pytest.mark.parametrize("host", [0.2, 0.4])
@pytest.mark.parametrize(("name", "kind"), [("aten::unique", "op"), ("save", "user"), ("", "user")])
def test_a_pause_costs_what_the_device_had_not_left_to_do(
    name: str, kind: str, host: float, source: str, tmp_path: Path
) -> None:
    job = replace(PRESSED, host=host)
    odd = replace(job, extras=(Extra("begin", 20 * MS, name, kind, ONCE),))

    (found,) = (one.evidence for one in said(tmp_path, odd, source) if one.rule.id == "step-outliers")

    assert found.at_stake_ns == pytest.approx(rows_of(odd).ns - rows_of(job).ns, rel=0.05)
    assert found.steps == ("ProfilerStep#6",)
    assert found.ops == ((name,) if name else ())


def test_steps_that_grew_by_different_things_are_told_apart(tmp_path: Path) -> None:
    first = Extra("begin", 30 * MS, "save", "user", frozenset([3, 4]))
    second = Extra("end", 10 * MS, "aten::unique", "op", frozenset([8]))
    job = replace(PRESSED, steps=20, extras=(first, second))

    found = [one.evidence for one in said(tmp_path, job, "kineto") if one.rule.id == "step-outliers"]

    assert [one.ops for one in found] == [("save",), ("aten::unique",)]
    assert [sorted(one.steps) for one in found] == [["ProfilerStep#3", "ProfilerStep#4"], ["ProfilerStep#8"]]
    for one, extra in zip(found, (first, second), strict=True):
        others = replace(job, extras=tuple(other for other in job.extras if other is not extra))
        assert one.at_stake_ns == pytest.approx(rows_of(job).ns - rows_of(others).ns, rel=0.05)


def test_a_kernel_of_another_name_is_no_longer_step(tmp_path: Path) -> None:
    # The first step runs op by op what a graph does in the others.
    job = Job(steps=12, is_training=False, graphs=True, warm_up=0, kernel=3.0, host=0.1)
    found = [one.evidence.ops for one in said(tmp_path, job, "kineto") if one.rule.id == "step-outliers"]
    assert not any("aten::addmm" in ops for ops in found)


def test_ranks_that_lose_nothing_are_not_named(tmp_path: Path) -> None:
    slow = Extra("load", 5 * MS, ranks=frozenset([1]))
    job = replace(PRESSED, ranks=2, extras=(slow,))
    (found,) = (one.evidence for one in said(tmp_path, job, "kineto") if one.rule.id == "data-loading")
    assert found.ranks == (1,)
    assert set(found.ranges["rank"]) == {1}
    assert pl.Series(found.ops).str.starts_with("enumerate(DataLoader)").all()


def test_work_of_steps_that_overlap_is_merged_once(tmp_path: Path) -> None:
    job = FAULTS["optimizer-loop"]
    paths = kineto_files(tmp_path, training_plan.Run(job, *rows_of(job)[:4]))
    run = Run(opspan.load(*paths).analysed)
    rows = run.all_kernels.drop_nulls("call").with_columns(of=pl.lit(0))
    assert saved_ns(run, merge(run, pl.concat([rows, rows]))) == saved_ns(run, merge(run, rows)) > 0
