"""The time before the first op of a process, if its capture states when it began."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import polars as pl

import opspan
from findings.made import Case, Made, case_tests
from opspan.findings import findings

S = 10**9


def run(age_s: float = 4, first_s: float = 2, last_s: float = 20, **options: object) -> Made:
    """A process that lived for some time when the recording began, at 0, and its first and its last op."""
    made = Made(0).add("processes", 0, 0, [0])
    made.options = {"process_age_ns": {"1": int(age_s * S)}, **options}
    return made.range("aten::mm", int(first_s * S), S, [0]).range("aten::mm", int((last_s - 1) * S), S, [0])


CASES = [
    Case(
        "start-up",
        lambda: run(torch_import_ns={"1": [S, 3 * S]}),
        None,
        None,
        {"before_ns": 6 * S, "before_share": 0.25, "import_ns": 2 * S},
        {
            "less than 5 s": lambda: run(age_s=2.9),
            "less than a fifth": lambda: run(last_s=27),
            "nothing says when the process began": lambda: run(process_age_ns={}),
            "another process, which ran no op": lambda: run(process_age_ns={"2": 4 * S}),
            "a file without such options": lambda: Made(0).range("aten::mm", 20 * S, S, [0]),
        },
        ranges=[(-4 * S, 2 * S)],
        words={"process": "1"},
    )
]

test_it_fires, test_it_is_silent = case_tests(CASES)


def test_a_file_without_the_import_of_torch_does_not_speak_of_it() -> None:
    finding = run().findings()["start-up"]
    assert "import_ns" not in finding.evidence.figures
    assert "import" not in finding.template


def test_samples_before_the_first_op_name_a_function() -> None:
    made = run().sample("main;load", -S, 40, [0]).sample("gemm", 3 * S, 90, [0]).sample("other", -S, 90, [0], pid=2)
    evidence = made.findings()["start-up"].evidence
    assert evidence.words["function"] == "load"
    assert "{function}" in evidence.sentence


PROGRAM = """
import json, sys, time
begun = time.monotonic_ns()
time.sleep(5)
import torch
with {context}:
    torch.ones(2)
with open(sys.argv[1], "w") as file:
    json.dump([begun, time.monotonic_ns()], file)
"""


def test_a_real_program_that_takes_long_to_begin(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM.format(context="torch.no_grad()"))
    program = [sys.executable, str(tmp_path / "program.py"), str(tmp_path / "times")]
    command = [sys.executable, "-m", "opspan", "run", "--emit", "nvtx", "-o", str(tmp_path / "run"), "--", *program]
    subprocess.run(command, check=True, timeout=300)
    trace = opspan.load(tmp_path / "run")
    (finding,) = (one for one in findings(trace.analysed) if one.rule.id == "start-up")
    begun, ended = json.loads((tmp_path / "times").read_text())
    first = trace.ranges.filter(pl.col("kind") == "op")["start_ns"].min()
    before_ns = finding.evidence.figures["before_ns"]
    # Python itself begins before the program's first line.
    assert 5 * S <= first - begun <= before_ns
    assert begun <= first <= ended
    assert 0 < finding.evidence.figures["import_ns"] < before_ns - 5 * S
    assert finding.evidence.figures["before_share"] > 0.9


def test_a_recording_that_the_program_begins_says_nothing_of_its_start(tmp_path: Path) -> None:
    context = f"__import__('opspan').record({str(tmp_path / 'run')!r})"
    command = [sys.executable, "-c", PROGRAM.format(context=context), str(tmp_path / "times")]
    subprocess.run(command, check=True, timeout=300)
    assert "start-up" not in {one.rule.id for one in findings(opspan.load(tmp_path / "run").analysed)}
