"""All rules together: each has its cases, the order of what they say, how severe it is, and runs that say nothing."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import polars as pl
import pytest

from findings import (
    test_casts,
    test_collectives,
    test_compiled,
    test_devices,
    test_exposed_copies,
    test_host,
    test_idle,
    test_launches,
    test_layouts,
    test_memory,
    test_page_faults,
    test_processors,
    test_recompute,
    test_recording,
    test_slower_kernels,
    test_start_up,
    test_threads,
    test_waits,
)
from findings.made import Case, Made
from opspan.analysis import Analysis
from opspan.findings import RULES, Evidence, Finding, Rule, findings
from opspan.findings.rule import SEVERITIES
from opspan.findings.run import Run
from opspan.questions import Options, question
from opspan.tables import Metadata, Tables
from opspan.views.findings import SCHEMA

SUBJECTS = (
    *(test_waits, test_launches, test_idle, test_devices, test_collectives, test_host, test_recording),
    *(test_exposed_copies, test_casts, test_recompute, test_slower_kernels, test_memory, test_compiled),
    *(test_processors, test_threads, test_start_up, test_layouts, test_page_faults),
)
CASES: list[Case] = [case for subject in SUBJECTS for case in subject.CASES]


def test_each_rule_has_a_run_of_which_it_speaks_and_one_of_which_it_does_not() -> None:
    assert sorted(case.id for case in CASES) == sorted(rule.id for rule in RULES)
    assert all(case.silent for case in CASES)


def test_rules_are_complete() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)
    for rule in RULES:
        for text in (rule.title, rule.looks_at, rule.because, rule.sentence, rule.remedy, rule.command, rule.read):
            assert text
            assert text == text.strip()
            assert not text.endswith(".") or text.endswith("...")
        assert rule.threshold > 0
        assert rule.command.startswith("opspan ")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_the_next_command_is_one(rule: Rule, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.touch()
    _, verb, *arguments = rule.command.replace("FILE", str(file)).split()
    command = import_module(f"opspan.cli.{verb}").command
    assert command.make_context(verb, arguments).params["files"] == (file,)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_what_it_says_can_be_read(case: Case) -> None:
    rows = question("findings").rows_of(case.fires().analysed(), Options())
    assert rows.schema == pl.Schema(SCHEMA)
    (row,) = rows.filter(pl.col("id") == case.id).to_dicts()
    # All that the sentence names is there, and said as people read it.
    assert not set("{}\n") & set(row["sentence"])
    assert {figure["name"]: figure["value"] for figure in row["figures"]} == case.figures
    assert (row["severity"] == "info") == (row["at_stake_ns"] is None) == (row["share"] is None)
    if row["ranks"]:
        assert set(row["ranks"]) <= {0, 1}
    for time in row["ranges"]:
        assert time["start_ns"] <= time["end_ns"]


def several() -> Made:
    """Data for 500, collectives for 2000, and idle time before a late host for 1000, of 10,000."""
    made = Made().work("gemm", 0, 600).work("ncclDevKernel_AllReduce", 600, 200)
    return made.range("enumerate(DataLoader)#x", 800, 50, kind="user").launch(950, "late", 950, 50)


def test_what_costs_most_comes_first_and_what_costs_nothing_last() -> None:
    said = findings(several().analysed())
    costs = [finding.evidence.at_stake_ns for finding in said]
    known = [cost for cost in costs if cost is not None]
    assert len(known) >= 3
    assert costs == sorted(known, reverse=True) + [None] * (len(costs) - len(known))
    assert said[0].rule.id == "communication-or-waiting"


@pytest.mark.parametrize(
    ("share", "severity"),
    [(None, "info"), (0.0, "low"), (0.0299, "low"), (0.03, "medium"), (0.0999, "medium"), (0.1, "high"), (3.0, "high")],
)
def test_severity_goes_by_the_share(share: float | None, severity: str) -> None:
    assert Finding(RULES[0], Evidence(None if share is None else 1), share, "the run").severity == severity
    assert [least for least, _ in SEVERITIES] == sorted((least for least, _ in SEVERITIES), reverse=True)


@pytest.mark.parametrize("ranks", [(), (Metadata(source="kineto"),)])
def test_of_nothing_nothing_is_said(ranks: tuple[Metadata, ...]) -> None:
    assert findings(Analysis(Tables(ranks))) == []


def test_ranges_without_times_say_nothing() -> None:
    made = Made(steps=0).range("aten::mm", 0, 0, [0], start_ns=None, end_ns=None)
    assert findings(made.analysed()) == []


def test_a_run_without_steps_is_looked_at_from_its_first_work_on() -> None:
    # 5000 of start, then 100 of work and 1000 of idle time after a late launch.
    made = Made(steps=0).range("main", 0, 7100, [0], kind="user").launch(5000, "a", 5000, 100, [0])
    found = made.launch(6100, "b", 6100, 1000, [0]).findings()
    assert found["launch-bound"].evidence.at_stake_ns == 1000
    assert found["launch-bound"].share == 1000 / 2100
    assert found["no-steps"].evidence.figures == {"time_ns": 2100}


def test_a_healthy_run_has_nothing_that_costs() -> None:
    made = Made().range("aten::mm", 0, 900, sizes="[[8, 8]]").launch(0, "gemm", 0, 500).launch(20, "relu", 500, 500)
    assert not [name for name, finding in made.findings().items() if finding.share is not None]


def test_two_processes_of_a_rank_are_apart() -> None:
    made = several()
    for rows in made.rows.values():
        rows.extend([row | {"pid": 2} for row in rows])
    one, two = several().findings(), made.findings()
    told = {"communication-or-waiting": "exposed-communication"}  # each has the other's collectives
    assert [told.get(name, name) for name in one] == list(two)
    for name, finding in zip(two, one.values(), strict=True):
        if finding.share is not None:
            assert two[name].evidence.at_stake_ns == finding.evidence.at_stake_ns  # they run side by side
            assert two[name].share == finding.share


# These rest on what captures state about a process, by its number.
BY_PROCESS = {case.id for subject in (test_threads, test_start_up) for case in subject.CASES}


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CASES if case.id not in BY_PROCESS], ids=lambda case: case.id)
def test_a_file_that_names_no_process_has_the_same_findings(case: Case) -> None:
    made, unnamed = case.fires(), case.fires()
    for row in (row for rows in unnamed.rows.values() for row in rows if "pid" in row):
        row["pid"] = None
    expected, found = ({name: one.evidence for name, one in run.findings().items()} for run in (made, unnamed))
    assert found.keys() == expected.keys()
    for name, evidence in expected.items():
        assert (found[name].at_stake_ns, found[name].figures) == (evidence.at_stake_ns, evidence.figures), name


@pytest.mark.parametrize(("length", "total_ns"), [(300, 10 * 1000), (800, 10_100)])
def test_a_run_takes_as_long_as_its_longest_process(length: int, total_ns: int) -> None:
    # Ten steps of 1000; and a process of which only kernels are known, which repeat: from 0 to 9600, or to 10,100.
    made = Made().work("gemm", 0, 500).work("one", 0, 300, pid=2).work("two", 300, length, pid=2)
    found = Run(made.analysed())
    assert found.analysis.iterations["how"].unique().to_list() == ["step"]
    assert found.analysis.patterns["pid"].to_list() == [2]
    assert found.total_ns == total_ns
