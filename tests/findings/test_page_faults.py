"""Memory that the kernel hands out in each step: made runs, and real programs under perf."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import opspan
from builders import perf
from findings.made import STEP, Case, Made, case_tests
from opspan.findings import findings
from opspan.findings.rules.page_faults import _HANDS_OUT, _MANY

PROGRAM = Path(__file__).parents[1] / "programs" / "fresh_memory.py"
KERNEL, TORCH = "[kernel.kallsyms]", "/opt/libtorch_cpu.so"
FAULT = "main;add_kernel;asm_exc_page_fault;handle_mm_fault;clear_page"
MB = 1 << 20
LATER = range(1, 10)


def faulting(
    of_hundred: int, stack: str = FAULT, steps: range = LATER, library: str = KERNEL, per_step: int = 100
) -> Made:
    """In each step, samples of the same weight in aten::add; some of them have the stack."""
    made = Made().range("aten::add", 0, 900)
    libraries = ";".join([TORCH, TORCH, *[library] * (stack.count(";") - 1)])
    made.sample(stack, 100, of_hundred * per_step // 100, steps, libraries=libraries)
    rest = per_step - of_hundred * per_step // 100
    return made.sample("main;add_kernel", 100, rest, LATER, libraries=f"{TORCH};{TORCH}")


def counted(weight: int, event: str = "page-faults", at: int = 100, steps: range = LATER) -> Made:
    """In each step of a millisecond, a sample that stands for so many faults."""
    made = Made(longer=dict.fromkeys(range(10), 10**6 - STEP)).range("aten::add", 0, 900)
    return made.sample("main", at, 1, steps, weight=weight, event=event)


def with_blocks(steps: range, count: int = 2, size: int = 2 * MB) -> Made:
    """In these steps, blocks that the next step frees, and small ones."""
    made = faulting(6)
    for step in steps:
        for address in range(count):
            for bytes_, of in ((size, 1), (MB - 1, 1000)):
                row = {"tid": 1, "bytes": bytes_, "address": of * 10_000 + 10 * step + address, "device_id": None}
                made.add("memory", 200, 0, [step], **row, event="alloc")
                if step < 9:
                    made.add("memory", 200, 0, [step + 1], **row, event="free")
    return made


CASES = [
    Case(
        "page-faults",
        lambda: faulting(6),
        None,
        None,
        {"faults_share": 0.06, "samples": 54, "all_samples": 900},
        {
            "5%": lambda: faulting(5),
            "few samples": lambda: faulting(60, per_step=10),
            "in the first step": lambda: faulting(50, steps=range(1)),
            "functions of that name in a library": lambda: faulting(50, library=TORCH),
            "other functions of the kernel": lambda: faulting(50, "main;read;__x64_sys_read;copy_to_user"),
            "fewer faults": lambda: counted(_MANY // 1000 - 1),
            "faults in the first step": lambda: counted(1000, steps=range(1)),
            "faults outside of ops": lambda: counted(1000, at=950),
            "an event that counts no faults": lambda: counted(1000, "cache-misses"),
        },
        ops=("aten::add",),
        words={"op": "aten::add"},
    ),
]

test_it_fires, test_it_is_silent = case_tests(CASES)


@pytest.mark.parametrize("event", ["page-faults", "page-faults:u", "faults", "exceptions:page_fault_user"])
def test_faults_are_counted_without_samples_of_time(event: str) -> None:
    finding = counted(_MANY // 1000, event).findings()["page-faults"]
    assert finding.evidence.figures == {"faults": 9 * 20, "faults_per_second": _MANY}
    assert finding.template.startswith("a process had {faults} page faults")


def test_events_that_count_the_same_faults_are_not_added() -> None:
    made = counted(30).sample("main", 100, 1, LATER, weight=30, event="minor-faults")
    assert made.findings()["page-faults"].evidence.figures["faults"] == 9 * 30


def test_faults_are_no_time() -> None:
    """Samples of time are looked at without those of faults, and no rule takes faults for time."""
    made = counted(10**6).sample("main", 100, 100, LATER)
    assert set(made.findings()["page-faults"].evidence.figures) == {"faults", "faults_per_second"}
    assert "spinning-threads" not in counted(10**6).findings()


@pytest.mark.parametrize(
    ("function", "is_one"),
    [
        ("exc_page_fault", True),
        ("handle_mm_fault.part.0", True),
        ("__x64_sys_munmap", True),
        ("do_mem_abort", True),
        ("handle_mm_faults_of_mine", False),
        ("__x64_sys_write", False),
    ],
)
def test_functions_of_the_kernel(function: str, is_one: bool) -> None:
    assert (_HANDS_OUT.fullmatch(function) is not None) == is_one


def test_blocks_of_each_step_are_named() -> None:
    finding = with_blocks(range(10)).findings()["page-faults"]
    assert finding.evidence.figures.items() >= {"blocks": 2, "block_bytes": 2 * MB, "steps": 9}.items()
    assert "{blocks} blocks of {block_bytes}" in finding.template
    for made in (with_blocks(range(8)), with_blocks(range(10), size=MB - 1)):
        assert "blocks" not in made.findings()["page-faults"].evidence.figures


# --- real programs


@pytest.mark.slow
@pytest.mark.parametrize("events", [["-e", "cpu-clock", "-F", "999", "-g"], ["-e", "page-faults", "-c", "20"]])
def test_a_real_program_that_takes_new_memory_in_each_step(events: list[str], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    if (why := perf.why_not()) is not None:
        pytest.skip(why)
    found = {}
    for name in ("planted", "twin"):
        folder = tmp_path / name
        command = [sys.executable, str(PROGRAM), str(folder), name]
        record = ["perf", "record", "-q", "-k", "CLOCK_MONOTONIC", *events, "-o", tmp_path / "perf.data", "--"]
        subprocess.run([*record, *command], check=True, capture_output=True)
        script = ["perf", "script", "--header", "--ns", "-F", "+pid", "-i", tmp_path / "perf.data"]
        (folder / "perf.txt").write_bytes(subprocess.run(script, check=True, capture_output=True).stdout)
        trace = opspan.load(folder)
        libraries = trace.samples["libraries"].cast(pl.String)
        if "cpu-clock" in events and not libraries.str.contains("[kernel", literal=True).any():
            pytest.skip("perf may not see the kernel here")
        found[name] = [one for one in findings(trace.analysed) if one.rule.id == "page-faults"]

    (one,) = found["planted"]
    assert set(one.evidence.ops) == {"aten::add", "aten::mul"}
    assert one.evidence.figures["block_bytes"] == 40 * MB
    assert one.evidence.figures["blocks"] == 6
    if "page-faults" in events:
        # A page of 4 KiB for each 1,024 numbers: two tensors, three times in each of nine steps.
        assert one.evidence.figures["faults"] == pytest.approx(9 * 3 * 2 * (10 << 10), rel=0.1)
    assert not found["twin"]
