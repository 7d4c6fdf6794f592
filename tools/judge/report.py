"""Reports the results of the judge, as text and as the data of docs/findings.md (docs/judge.json)."""

from __future__ import annotations

import datetime
import json
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trial import FalseFinding, Trial, WhatIf

REPO = Path(__file__).parents[2]
DATA = REPO / "docs" / "judge.json"
GOALS = {"recall": 0.95, "time at stake": 0.9, "place": 0.95, "what-if": 0.95}
SIMULATED, PROGRAMS = "simulated", "programs"  # the two parts of docs/judge.json, which are written separately


@dataclass
class Results:
    seeds: str
    trials: list[Trial] = field(default_factory=list)
    clean_runs: int = 0
    false: list[FalseFinding] = field(default_factory=list)
    what_ifs: list[WhatIf] = field(default_factory=list)
    part: str = SIMULATED

    @property
    def measures(self) -> dict[str, tuple[int, int]]:
        """For each measure, the number of right results and the number of all results."""
        counted = [one for one in self.trials if one.counts]
        named = [one for one in counted if one.row is not None]
        timed = [one.is_timed for one in named if one.is_timed is not None]
        placed = [not one.unplaced for one in named if one.place]
        right = [one.is_right for one in self.what_ifs]
        return {
            "recall": (len(named), len(counted)),
            "time at stake": (sum(timed), len(timed)),
            "place": (sum(placed), len(placed)),
            "what-if": (sum(right), len(right)),
        }

    @property
    def kinds(self) -> Iterator[tuple[str, list[Trial]]]:
        for kind in dict.fromkeys(one.kind for one in self.trials):
            yield kind, [one for one in self.trials if one.kind == kind]


HEAD = f"{'plant':<32}{'named':>8}{'timed':>8}{'placed':>8}   costs of the run"


def kind_lines(kind: str, some: Sequence[Trial]) -> Iterator[str]:
    """Yields a row of the table, and a line for each thing that opspan missed."""
    counted = [one for one in some if one.counts]
    named = [one for one in counted if one.row is not None]
    timed = [one.is_timed for one in named if one.is_timed is not None]
    placed = [not one.unplaced for one in named if one.place]
    shares = ", ".join(f"{one.saved_ns / one.run_ns:.1%}" for one in some)
    cells = (
        _fraction(len(named), len(counted)),
        _fraction(sum(timed), len(timed)),
        _fraction(sum(placed), len(placed)),
    )
    yield f"{kind:<32}{cells[0]:>8}{cells[1]:>8}{cells[2]:>8}   {shares}"
    for one in counted:
        yield from _miss_lines(one)


def _miss_lines(one: Trial) -> Iterator[str]:
    truth = f"costs {_ms(one.saved_ns)} of {_ms(one.run_ns)} ({one.saved_ns / one.run_ns:.1%})"
    row = one.row
    if row is None:
        expected = " or ".join(sorted(one.rules))
        yield f"  NOT NAMED  {one.command}: {truth}, expected {expected}; said {_findings(one)}"
        return
    if one.is_timed is False:
        saves = "" if one.condition_ns is None else f", on its condition {_ms(one.condition_ns)}"
        yield f"  TIME       {one.command}: {truth}{saves}; {row['id']} states {_ms(row['at_stake_ns'])}"
    for what in one.unplaced:
        names = {"ranks": row["ranks"], "step": row["steps"]}.get(what, row["ops"])
        yield f"  PLACE      {one.command}: {what} {one.place[what]}; {row['id']} names {names}: {row['sentence']}"


def false_finding_lines(some: Iterable[FalseFinding]) -> Iterator[str]:
    for one in some:
        saves = (
            f"without its cause {_ms(one.saves_ns)} less" if one.saves_ns is not None else "no remedy is known for it"
        )
        states = f"{one.rule} states {_ms(one.stated_ns)} of {_ms(one.run_ns)}"
        yield f"  FALSE      {one.command}: {states}, {saves}: {one.sentence}"


def what_if_lines(some: Iterable[WhatIf]) -> Iterator[str]:
    for one in some:
        if not one.is_right:
            yield f"  WHAT-IF    {one.command}: {one.question} is {one.truth:+.1%}, said {one.answer:+.1%}"


def measure_lines(results: Results) -> Iterator[str]:
    for name, (right, of) in results.measures.items():
        if of:
            yield f"{name:<16}{right:>4} of {of:<4} {right / of:6.1%}   goal {GOALS[name]:.0%}"
    if results.clean_runs:
        yield f"{'false findings':<16}{len(results.false):>4} in {results.clean_runs} runs without a plant   goal 0"


def _ms(ns: int | None) -> str:
    return "unknown" if ns is None else f"{ns / 1e6:.2f} ms"


def _fraction(right: int, of: int) -> str:
    return f"{right}/{of}" if of else "-"


def _findings(one: Trial) -> str:
    rows = one.findings.rows(named=True)
    return ", ".join(f"{row['id']} ({_ms(row['at_stake_ns'])})" for row in rows if row["at_stake_ns"]) or "nothing"


# --- the table of docs/findings.md


def keep(results: Results, path: Path = DATA) -> None:
    """Writes the measurements of one part (simulated runs or real programs). Keeps those of the other part."""
    kept = json.loads(path.read_text(encoding="utf-8")) | {results.part: data(results)}
    path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    print(f"Wrote {path.name}; now python tools/docs")


def data(results: Results) -> dict[str, Any]:
    commit = ["git", "rev-parse", "--short=7", "HEAD"]
    done = subprocess.run(commit, cwd=REPO, capture_output=True, text=True, check=True).stdout.strip()
    shared = {
        "seeds": results.seeds,
        "commit": done,
        "day": datetime.date.today().isoformat(),
        "plants": len(results.trials),
        "missed": _misses_by_kind(results.kinds),
    }
    measures = {name: [*counts, GOALS[name]] for name, counts in results.measures.items()}
    if results.part == PROGRAMS:
        del measures["what-if"]  # what-if questions are not asked about real programs
        return shared | {"measures": measures}
    more = {"clean_runs": results.clean_runs, "false_findings": len(results.false)}
    return shared | {"measures": measures} | more


def _misses_by_kind(kinds: Iterable[tuple[str, list[Trial]]]) -> dict[str, list[int]]:
    """Returns four numbers for each plant: the runs, and the runs in which opspan missed the fault, its time, or its
    place."""
    misses = {}
    for kind, some in kinds:
        counted = [one for one in some if one.counts]
        missed = (
            sum(one.row is None for one in counted),
            sum(one.is_timed is False for one in counted),
            sum(bool(one.unplaced) for one in counted),
        )
        misses[kind] = [len(counted), *missed]
    return misses
