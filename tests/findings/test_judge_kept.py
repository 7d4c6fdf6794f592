"""The results that tools/judge keeps of simulated runs and of real programs, and the tables that tools/docs makes of
them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tool_folders import TOOLS, importable

MS = 1_000_000


judge_and_docs = importable("judge", "docs")


def results(part: str, kind: str, *stated_ms: int | None) -> Any:
    """Returns results with a trial for each stated time: of a run of 100 ms, of which the fault costs 20."""
    from report import Results
    from trial import Trial

    rows = [
        {"id": "item", "at_stake_ns": ms * MS, "sentence": "", "ops": [], "modules": [], "steps": [], "ranks": []}
        if ms
        else {"id": "other", "at_stake_ns": MS}
        for ms in stated_ms
    ]
    findings = [pl.DataFrame([row]) for row in rows]
    rules = frozenset(["item"])
    trials = [Trial(kind, seed, one, 100 * MS, 20 * MS, rules, {"op": "mm"}) for seed, one in enumerate(findings)]
    return Results("7-9", trials, clean_runs=3 if part == "simulated" else 0, part=part)


def kept(path: Path, *parts: Any) -> dict[str, Any]:
    from report import keep

    path.write_text("{}", encoding="utf-8")
    for part in parts:
        keep(part, path)
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return data


def test_a_part_is_kept_beside_the_other(tmp_path: Path) -> None:
    simulated = results("simulated", "slow-rank", 20)
    programs = results("programs", "a late rank", 20, 40, None)
    again = results("simulated", "late-rank", 21)

    data = kept(tmp_path / "judge.json", simulated, programs, again)

    assert list(data) == ["simulated", "programs"]
    assert data["simulated"]["missed"] == {"late-rank": [1, 0, 0, 1]}
    assert data["programs"]["missed"] == {"a late rank": [3, 1, 1, 2]}
    assert data["programs"]["measures"] == {
        "recall": [2, 3, 0.95],
        "time at stake": [1, 2, 0.9],
        "place": [0, 2, 0.95],
    }
    for part in data.values():
        assert part["seeds"] == "7-9"
        assert len(part["commit"]) >= 7
        assert part["day"].count("-") == 2


def test_each_part_has_tables_of_its_own(tmp_path: Path) -> None:
    from findings_page import measurements

    data = kept(
        tmp_path / "judge.json",
        results("simulated", "slow-rank", 20, None),
        results("programs", "a late rank", 20, 40, 20, None),
    )
    simulated, programs = measurements(data).split("### Real programs")

    assert f"`python tools/judge --seeds 7-9` of commit {data['simulated']['commit']}" in simulated
    assert "| Named | 1 of 2 (50%) | 95% |" in simulated
    assert "| False | 0 in 3 runs | 0 |" in simulated
    assert "| slow-rank | 2 | 1 | 0 | 1 |" in simulated
    assert f"`python tools/judge --only programs --seeds 7-9` of commit {data['programs']['commit']}" in programs
    assert "| Named | 3 of 4 (75%) | 95% |" in programs
    assert "| Time at stake | 2 of 3 (67%) | 90% |" in programs
    assert "| a late rank | 4 | 1 | 1 | 3 |" in programs
    assert "What-if" not in programs
    assert "False" not in programs


def test_what_was_not_measured_has_no_table(tmp_path: Path) -> None:
    from findings_page import measurements

    assert "Real programs" not in measurements(kept(tmp_path / "judge.json", results("simulated", "slow-rank", 20)))


@pytest.mark.parametrize(
    "options", [["--only", "late-rank"], ["--only", "programs", "--only", "clean"], ["--only", "gpu"], ["--nth", "0"]]
)
def test_a_part_of_a_part_is_not_kept(options: list[str]) -> None:
    done = subprocess.run([sys.executable, TOOLS / "judge", "--keep", *options], capture_output=True, text=True)

    assert done.returncode == 2
    assert "--keep writes what was measured of all" in done.stderr
