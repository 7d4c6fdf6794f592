"""Programs without devices whose ops run on one thread, or on more threads than there are processors."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import opspan
from emit.running import python
from findings.made import FIRST, STEP, Case, Made, case_tests
from opspan.findings import Finding, findings

MS = 1_000_000


def heavy(threads: int = 1, processors: float = 4, length: int = 500_000, **more: object) -> Made:
    """Ten steps of 1 ms, of which a product takes the half."""
    made = Made(10, longer=dict.fromkeys(range(10), MS - STEP))
    made.options = {"torch_threads": {"1": threads}, "usable_processors": {"1": processors}}
    return made.range("aten::linear", 0, length + 10_000).range("aten::addmm", 5_000, length, self_ns=length, **more)


def sampled(of_others: int) -> Made:
    made = heavy().sample("gemm", 100_000, 10 - of_others)
    return made.sample("gemm", 100_000, of_others, tid=2)


def with_option(made: Made, name: str, value: object) -> Made:
    made.options[name] = value
    return made


def with_processes(count: int) -> Made:
    made = heavy()
    for pid in range(2, count + 1):
        made.range("aten::add", 0, 10, pid=pid)
    return made


def of_larger_job() -> Made:
    made = heavy()
    made.world_size = 8
    return made


CASES = [
    Case(
        "one-thread",
        heavy,
        2_500_000,
        0.25,
        {"heavy_ns": 5_000_000, "heavy_share": 0.5, "calls": 10, "processors": 4},
        {
            "two threads": lambda: heavy(2),
            "one processor": lambda: heavy(processors=1),
            "less than two processors of time": lambda: heavy(processors=1.5),
            "little of the time": lambda: heavy(length=199_999),
            "nothing says how many threads": lambda: with_option(heavy(), "torch_threads", {}),
            "nothing says how many processors": lambda: with_option(heavy(), "usable_processors", {}),
            "of another process": lambda: with_option(heavy(), "torch_threads", {"2": 1}),
            "with a device": lambda: heavy().device().work("gemm", 0, 10),
            "several threads": lambda: heavy().range("aten::mm", 500_000, 250_000, self_ns=250_000, tid=2),
            "three processes": lambda: with_processes(3),
            "other threads were sampled": lambda: sampled(1),
            "ranks are missing": of_larger_job,
            "damage": lambda: with_option(heavy(), "torch_threads", [1]),
        },
        ops=("aten::addmm",),
        steps=FIRST,
        ranges=[(MS * step + 5_000, MS * step + 505_000) for step in range(10)],
        words={"op": "aten::addmm"},
    ),
    Case(
        "oversubscription",
        lambda: heavy(6),
        None,
        None,
        {"threads": 6, "processes": 1, "processors": 4},
        {
            "as many as there are": lambda: heavy(4),
            "a quarter more": lambda: heavy(5),
            "nothing says how many processors": lambda: with_option(heavy(6), "usable_processors", {}),
            "no product of a size worth it": lambda: heavy(6, length=100_000),
            "with a device": lambda: heavy(6).device().work("gemm", 0, 10),
        },
    ),
]

test_it_fires, test_it_is_silent = case_tests(CASES)


def test_two_processes_may_each_use_one_of_four_processors_more() -> None:
    assert "one-thread" in with_processes(2).findings()


def test_samples_of_one_thread_alone_make_it_certain() -> None:
    finding = sampled(0).findings()["one-thread"]
    assert finding.evidence.confidence == "certain"
    assert "No other thread of the process was sampled" in finding.template
    assert heavy().findings()["one-thread"].evidence.confidence == "likely"


@pytest.mark.parametrize("text", ["inf", "x", True, -1, 10**30, [4], None])
def test_options_of_a_damaged_file_are_no_facts(text: object) -> None:
    made = with_option(heavy(6), "usable_processors", {"1": text})
    with_option(made, "processor_list", {"1": text, "x": "0-1"})
    with_option(made, "process_age_ns", {"1": text})
    with_option(made, "torch_import_ns", {"1": text})
    assert not {"one-thread", "oversubscription", "start-up"} & set(made.findings())


# --- processes of one host


def side_by_side(lists: tuple[str, str], threads: int = 3, apart: int = 0, host: str | None = "box") -> Made:
    """Two processes, with as many threads each; both may use four processors."""
    made = heavy(threads)
    made.range("aten::mm", apart, 500_000, pid=2, self_ns=500_000).add("processes", 0, 0, [0], host=host)
    made.add("processes", 0, 0, [0], pid=2, host=host)
    for step in range(10):
        made.range(f"ProfilerStep#{step}", apart, MS, [step], kind="step", pid=2)
    made.options |= {
        "torch_threads": dict.fromkeys("12", threads),
        "usable_processors": dict.fromkeys("12", 4),
        "processor_list": dict(zip("12", lists, strict=True)),
    }
    return made


def test_threads_of_processes_that_run_at_the_same_time_are_counted_together() -> None:
    evidence = side_by_side(("0-3", "0-3")).findings()["oversubscription"].evidence
    assert evidence.figures == {"threads": 6, "processes": 2, "processors": 4}
    assert not evidence.sentence  # it is the rule's


@pytest.mark.parametrize(
    "silent",
    [
        lambda: side_by_side(("0-3", "4-7")),  # each process has processors of its own
        lambda: side_by_side(("0-3", "")),
        lambda: side_by_side(("0-3", "0-3"), threads=2),
        lambda: side_by_side(("0-3", "0-3"), apart=20 * MS),  # one after the other
        lambda: side_by_side(("0-3", "0-3"), host=None),
    ],
)
def test_processes_that_do_not_share_processors_are_not(silent: Callable[[], Made]) -> None:
    assert "oversubscription" not in silent().findings()


# --- real programs

PROGRAM = """
import os, sys, time
from pathlib import Path
import opspan, torch
rank, threads = sys.argv[2:4]
if threads: torch.set_num_threads(int(threads))
matrix = torch.ones(500, 500)
with opspan.record(sys.argv[1]) as recording:
    here = Path(sys.argv[1]) / rank
    torch.mm(matrix, matrix)
    here.touch()
    while len(list(here.parent.glob("[01]"))) < int(os.environ.get("WORLD_SIZE", 1)):
        time.sleep(0.01)
    # Waiting for the other rank is in the first step, so the products take longer than that takes on a busy machine.
    until = time.monotonic() + 2 * len(list(here.parent.glob("[01]")))
    while time.monotonic() < until:
        for _ in range(10):
            torch.mm(matrix, matrix)
        recording.step()
"""
USABLE = len(os.sched_getaffinity(0))
needs_two = pytest.mark.skipif(USABLE < 2, reason="needs two processors")


def reported(folder: Path) -> dict[str, Finding]:
    trace = opspan.load(folder)
    if min(trace.ranks[0].options["usable_processors"].values()) < USABLE:
        pytest.skip("a control group limits this process to fewer processors")
    return {finding.rule.id: finding for finding in findings(trace.analysed)}


@needs_two
def test_a_real_program_with_one_thread_is_found_and_one_with_all_is_not(tmp_path: Path) -> None:
    for name, threads in (("one", 1), ("all", USABLE)):
        variables = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
        python(PROGRAM, str(tmp_path / name), "0", "", env={**variables, "WORLD_SIZE": None})
    finding = reported(tmp_path / "one")["one-thread"]
    assert finding.evidence.ops == ("aten::mm",)
    trace = opspan.load(tmp_path / "one")
    products = trace.ranges.filter(name="aten::mm")["end_ns", "start_ns"].rows()[1:]
    assert finding.evidence.figures["heavy_ns"] <= sum(end - start for end, start in products)
    assert not {"one-thread", "oversubscription"} & set(reported(tmp_path / "all"))


@needs_two
@pytest.mark.parametrize(("threads", "is_too_many"), [(USABLE, True), (USABLE // 2, False)])
def test_real_ranks_whose_threads_do_not_fit_are_found(threads: int, is_too_many: bool, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(folder), str(rank), str(threads)],
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_PORT": "1"},
        )
        for rank in range(2)
    ]
    assert [rank.wait(300) for rank in ranks] == [0, 0]
    found = reported(folder)
    assert ("oversubscription" in found) == is_too_many
    assert "one-thread" not in found  # each processor has a process
    if is_too_many:
        evidence = found["oversubscription"].evidence
        assert evidence.figures == {"threads": 2 * USABLE, "processes": 2, "processors": USABLE}
        assert evidence.ranks == (0, 1)
