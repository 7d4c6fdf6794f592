"""Ranks that are late: several at once, one in one step, stages of pipelines, and ranks that differ only by chance."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

import opspan
from analysis.test_over_ranks import ROW
from builders import kineto
from builders.job import Job, Slower
from builders.job_program import rows_of
from builders.training import run
from builders.training_files import kineto_files, load
from builders.training_plan import Plan, Run
from emit.running import forked_file
from findings.pipelines import pipeline
from opspan.analysis.collectives import SCHEMA
from opspan.analysis.over_ranks import matched
from opspan.findings import Finding, findings
from opspan.findings.lateness import late_by_far, lateness, loss_to, stragglers
from opspan.questions import Options, question
from read_once import ReadOnce

MS = 1_000_000
PROGRAM = Path(__file__).parents[1] / "programs" / "gloo_late.py"
WITHOUT_STEPS = PROGRAM.with_name("gloo_alone.py")
LEAST = 0.03


def frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    schema = SCHEMA | {"exposed_ns": pl.Int64, "held_ns": pl.Int64, "step": pl.String}
    made = pl.DataFrame([ROW | {"held_ns": 0, "step": None} | row for row in rows], schema=schema)
    return made.hstack(matched(made))


def late_ranks(rows: pl.DataFrame, total_ns: int) -> tuple[list[int], int]:
    places = lateness(rows)
    some = stragglers(places, LEAST * total_ns)
    return sorted(some["rank"]), int(loss_to(places, some)["ns"].sum())


@pytest.mark.parametrize("stages", [2, 4, 6])
@pytest.mark.parametrize("batches", [6, 12])
def test_the_fill_of_an_even_pipeline_is_nobody_s(stages: int, batches: int) -> None:
    rows, total_ns = pipeline([1000] * stages, batches, 6)

    sides = frame(rows)

    assert sides.group_by("rank").agg(pl.col("waiting_ns").sum())["waiting_ns"].min() > 0.03 * total_ns  # type: ignore[operator]
    assert late_ranks(sides, total_ns) == ([], 0)


@pytest.mark.parametrize("slow", range(4))
@pytest.mark.parametrize("factor", [1.2, 1.5])
def test_a_slow_stage_is_named_with_what_it_costs(slow: int, factor: float) -> None:
    forwards = [1000] * 4
    _, even_ns = pipeline(forwards, 12, 12)
    forwards[slow] = round(1000 * factor)
    rows, total_ns = pipeline(forwards, 12, 12)

    ranks, lost_ns = late_ranks(frame(rows), total_ns)

    assert ranks == [slow]
    # At most: a stage that is first hides more of the fill when it is slow.
    assert 0.95 * (total_ns - even_ns) <= lost_ns <= (1.2 if slow else 1.8) * (total_ns - even_ns)


def test_a_stage_that_is_held_up_while_it_waits_lost_nothing_by_that() -> None:
    rows, total_ns = pipeline([1500, 1000, 1000, 1000], 12, 12)
    slow = frame(rows)
    held = pl.when(pl.col("rank") != 0).then(pl.col("exposed_ns").sum().over("rank", "step")).otherwise(0)

    assert late_ranks(slow, total_ns)[0] == [0]
    assert late_ranks(slow.with_columns(held_ns=held), total_ns) == ([], 0)


def reduces(late_by: dict[tuple[int, int], int], jitter: int, steps: int = 20) -> list[dict[str, Any]]:
    """Four ranks and a collective of 100 in each step of 1000; (rank, step) comes later by so much, and all by up to
    `jitter`."""
    random, rows, now = Random(1), [], 0
    for step in range(steps):
        came = [now + 800 + late_by.get((rank, step), 0) + round(random.random() * jitter) for rank in range(4)]
        end = max(came) + 100
        for rank, begin in enumerate(came):
            times = {"start_ns": begin, "end_ns": end, "time_ns": end - begin, "exposed_ns": end - begin}
            rows.append({"rank": rank, "step": f"step {step}", **times})
        now = end + 100
    return rows


@pytest.mark.parametrize(
    ("late_by", "jitter", "ranks"),
    [
        ({}, 0, []),
        ({(2, step): 100 for step in range(20)}, 0, [2]),
        ({(2, step): 100 for step in range(20)}, 100, [2]),
        ({(2, 7): 2000}, 0, [2]),
        ({(2, 7): 2000}, 50, [2]),
        ({(2, 7): 2000, (0, 11): 2000}, 50, [0, 2]),
        ({(step % 4, step): 200 for step in range(20)}, 0, []),
        # One that is late by a twentieth of what chance makes of a step is not told from others.
        ({(2, step): 40 for step in range(20)}, 800, []),
    ],
)
def test_late_ranks_are_told_from_chance(late_by: dict[tuple[int, int], int], jitter: int, ranks: list[int]) -> None:
    assert late_ranks(frame(reduces(late_by, jitter)), 20 * 1000)[0] == ranks


def test_who_is_late_in_turn_is_no_straggler_and_others_lose_what_they_wait_in_these_steps() -> None:
    turns = {(step % 4, step): 200 for step in range(20)}
    places = lateness(frame(reduces(turns, 5)))

    some = late_by_far(places)

    assert not stragglers(places, LEAST * 20 * 1000).height
    assert sorted(some.select("rank", "step").iter_rows()) == sorted((rank, f"step {at}") for rank, at in turns)
    assert loss_to(places, some)["ns"].sum() == pytest.approx(20 * 200, rel=0.05)


def test_components_have_late_ranks_of_their_own() -> None:
    rows = reduces({(2, step): 200 for step in range(20)}, 0)
    # Ranks 0 and 1 are a group, and 2 and 3: nobody of the first waits for rank 2.
    apart = [row | {"group": str(row["rank"] // 2)} | (_of(800, 100, row) if row["rank"] < 2 else {}) for row in rows]
    assert late_ranks(frame(apart), 20 * 1000) == ([2], 20 * 200)


def _of(begin: int, length: int, row: dict[str, Any]) -> dict[str, Any]:
    start = 1000 * int(row["step"].split()[1]) + begin
    return {"start_ns": start, "end_ns": start + length, "time_ns": length, "exposed_ns": length}


def said(folder: Path, plan: Plan) -> dict[str, Finding]:
    found = findings(load(folder, plan).analysed)
    return {one.rule.id: one for one in found if one.evidence.at_stake_ns is not None}


def took(plan: Plan) -> int:
    made = run(plan)
    rows = [*made.ranges, *made.calls, *made.work]
    return max(row.end for row in rows) - min(row.start for row in rows)


SLOW = {
    "one": {3: 1.5},
    "one by little": {3: 1.1},
    "two alike": {2: 1.5, 5: 1.5},
    "two that differ": {2: 1.5, 5: 1.2},
    "three": {2: 1.3, 5: 1.3, 6: 1.3},
}


@pytest.mark.parametrize("name", SLOW)
def test_ranks_that_are_late_are_named_and_cost_what_the_run_would_save(name: str, tmp_path: Path) -> None:
    slower = tuple(Slower(factor, ranks=frozenset([rank])) for rank, factor in SLOW[name].items())
    even = Job(ranks=8, has_functions=False)
    job = replace(even, slower=slower)

    found = findings(opspan.load(*kineto_files(tmp_path, Run(job, *rows_of(job)[:4]))).analysed)
    (one,) = (one.evidence for one in found if one.rule.id == "straggler")

    assert one.ranks == tuple(SLOW[name])
    assert one.at_stake_ns == pytest.approx(rows_of(job).ns - rows_of(even).ns, rel=0.1)
    assert one.words["who"] == ", ".join(f"rank {rank} (process {5000 + 100 * rank})" for rank in one.ranks)


@pytest.mark.parametrize("ranks", [(3,), (6, 3)])
def test_the_rank_of_one_late_step_is_named_with_the_step(ranks: tuple[int, ...], tmp_path: Path) -> None:
    plan = Plan(ranks=8, steps=20, stalls={9: 20 * MS}, stalled_ranks=ranks)

    found = said(tmp_path, plan)

    saved = took(plan) - took(Plan(ranks=8, steps=20))
    one = found["straggler"].evidence
    assert (one.ranks, one.steps[0], one.words["when"]) == (
        tuple(sorted(ranks)),
        "ProfilerStep#9",
        ", most of it in ProfilerStep#9",
    )
    assert one.at_stake_ns == pytest.approx(saved, rel=0.05)
    # The step of those that only waited is no outlier.
    assert found["step-outliers"].evidence.ranks == tuple(sorted(ranks))


def test_of_files_that_are_looked_at_one_by_one_those_that_waited_are_no_outliers_either(tmp_path: Path) -> None:
    made = run(Plan(ranks=3, steps=20, stalls={9: 20 * MS}, stalled_ranks=(1,)))
    files = kineto_files(tmp_path, made)

    apart = opspan.load_many(*files, executor=ReadOnce()).findings()
    whole = opspan.load(*files).findings()

    for rows in (apart, whole):
        costly = {row["id"]: row["ranks"] for row in rows.filter(pl.col("at_stake_ns").is_not_null()).to_dicts()}
        assert costly == {"step-outliers": [1], "straggler": [1]}


@pytest.mark.slow
def test_of_four_real_ranks_on_gloo_the_one_that_sleeps_is_late(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    # 20 steps, in each of which rank 2 sleeps for 100 ms.
    done = forked_file(PROGRAM, tmp_path, "4", "2", "0.1")
    assert done.returncode == 0, done.stderr

    trace = opspan.load(*(tmp_path / f"rank{rank}" for rank in range(4)))

    (found,) = [one for one in findings(trace.analysed) if one.rule.id == "straggler"]
    assert found.evidence.ranks == (2,)
    # Other programs of the machine make ranks late, too; at stake is no more than what each of the others waited.
    waited = trace.comm("rank").filter(pl.col("rank") != 2)["waiting_ns"].to_list()
    assert 0.6 * 20 * 100 * MS < (found.evidence.at_stake_ns or 0) <= min(waited)
    row = question("summary").answer_of(trace.analysed, Options()).rows.row(0, named=True)
    assert row["communicating_ns"] > 0.6 * 3 * 20 * 100 * MS
    total = sum(row[f"{name}_ns"] for name in ("communicating", "calling", "loading", "ops", "other"))
    assert total == trace.analysed.whole_breakdown["time_ns"].sum()


def test_without_devices_collectives_of_the_host_are_exposed_where_no_op_runs(tmp_path: Path) -> None:
    ranges = [kineto.span("user_annotation", f"ProfilerStep#{step}", 1, 1000.0 * step, 1000.0, 1) for step in range(4)]
    for step in range(4):
        begin = 1000.0 * step
        ranges.append(kineto.span("cpu_op", "c10d::allreduce_", 1, begin + 100, 50.0, 1))
        ranges.append(kineto.span("user_annotation", "gloo:all_reduce", 2, begin + 100, 400.0, 1))
        ranges.append(kineto.span("cpu_op", "aten::mm", 1, begin + 200, 100.0, 1))
    file = kineto.write(tmp_path / "run.json", kineto.document(ranges))

    trace = opspan.load(file)

    (found,) = [one for one in findings(trace.analysed) if one.evidence.at_stake_ns]
    assert (found.rule.id, found.evidence.at_stake_ns) == ("communication-or-waiting", 4 * 300_000)
    # To start one is an op as well, which comes first in the breakdown.
    assert trace.analysed.breakdown["communicating_ns"].to_list() == [250_000] * 4
    assert (
        question("summary")
        .answer_of(trace.analysed, Options())
        .notes[1]
        .endswith("ops of torch 15.0%, collectives 25.0%, other 60.0%")
    )


def without_steps(late_by: dict[tuple[int, int], int], jitter: int, device_id: int | None = None) -> pl.DataFrame:
    rows = reduces(late_by, jitter)
    return frame([row | {"step": None, "device_id": device_id} for row in rows])


@pytest.mark.parametrize(
    ("late_by", "jitter", "ranks"),
    [
        ({}, 0, []),
        ({}, 200, []),
        ({(2, step): 100 for step in range(20)}, 100, [2]),
        ({(2, step): 100 for step in range(20)} | {(3, step): 200 for step in range(20)}, 0, [2, 3]),
        # Ranks begin at different times, and other programs hold up a process now and then.
        ({(2, 0): 5000}, 10, []),
        ({(2, 7): 2000}, 10, []),
        ({(step % 4, step): 200 for step in range(20)}, 0, []),
    ],
)
def test_collectives_alone_tell_late_ranks_from_chance(
    late_by: dict[tuple[int, int], int], jitter: int, ranks: list[int]
) -> None:
    assert late_ranks(without_steps(late_by, jitter), 20 * 1000)[0] == ranks


def test_without_steps_others_lose_what_the_first_of_them_waits_in_each_collective() -> None:
    rows = without_steps({(2, step): 100 + step for step in range(20)} | {(1, step): 50 for step in range(20)}, 0)

    places = lateness(rows)
    ns = loss_to(places, stragglers(places, 1500))

    # Rank 1 is the next to come after rank 2.
    assert ns.sort("turn")["ns"].to_list() == [50 + step for step in range(20)]
    assert ns["step"].null_count() == 20


def test_clocks_of_ranks_need_not_agree_to_tell_who_is_late() -> None:
    rows = without_steps({(2, step): 100 for step in range(20)}, 30)
    apart = rows.with_columns(pl.col("start_ns", "end_ns") + pl.col("rank").cast(pl.Int64) * 10**12)
    apart = apart.select(SCHEMA.keys() | {"exposed_ns", "held_ns", "step"})

    assert late_ranks(apart.hstack(matched(apart)), 20 * 1000) == late_ranks(rows, 20 * 1000)


def test_devices_without_steps_are_compared_over_the_whole_run() -> None:
    places = lateness(without_steps({(2, 7): 2000}, 0, device_id=0))

    assert places.height == 4
    assert places["turn"].null_count() == 4


@pytest.mark.slow
def test_of_three_real_ranks_without_steps_the_one_that_sleeps_is_late(tmp_path: Path) -> None:
    """In the twin all of them sleep."""
    pytest.importorskip("torch")
    stragglers_of: dict[str, list[Finding]] = {}
    for name, late in (("planted", ["1"]), ("twin", ["0", "1", "2"])):
        (tmp_path / name).mkdir()
        done = forked_file(WITHOUT_STEPS, tmp_path / name, "3", "0.1", *late)
        assert done.returncode == 0, done.stderr
        analysis = opspan.load(*(tmp_path / name / f"rank{rank}" for rank in range(3))).analysed
        assert not analysis.iterations.height
        stragglers_of[name] = [one for one in findings(analysis) if one.rule.id == "straggler"]

    (found,) = stragglers_of["planted"]
    assert found.evidence.ranks == (1,)
    # Of the first of 30 collectives, nobody can tell.
    assert 0.6 * 30 * 100 * MS < (found.evidence.at_stake_ns or 0) <= (1 / 0.6) * 30 * 100 * MS
    assert not stragglers_of["twin"]
