"""What a process states about itself when a recording of it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import opspan
from emit.running import python
from opspan.capture_files import ENVIRONMENT_AT, ENVIRONMENT_BYTES
from opspan.emit import header_texts
from opspan.emit.process_facts import processor_list, quota_of


@pytest.mark.parametrize(("numbers", "text"), [([0], "0"), ([0, 1, 2, 3], "0-3"), ([1, 3, 4, 9], "1,3-4,9"), ([], "")])
def test_processors_are_listed_as_the_kernel_lists_them(numbers: list[int], text: str) -> None:
    assert processor_list(numbers) == text


def test_the_list_of_this_process_is_that_of_the_kernel() -> None:
    status = Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("Cpus_allowed_list:"))
    assert processor_list(sorted(os.sched_getaffinity(0))) == line.split()[1]


def test_the_least_limit_of_a_group_and_the_groups_around_it_counts(tmp_path: Path) -> None:
    (tmp_path / "slice/job").mkdir(parents=True)
    (tmp_path / "slice/job/cpu.max").write_text("max 100000\n")
    assert quota_of("0::/slice/job\n", tmp_path) is None
    (tmp_path / "slice/cpu.max").write_text("150000 100000\n")
    assert quota_of("0::/slice/job\n", tmp_path) == 1.5
    (tmp_path / "slice/job/cpu.max").write_text("50000 100000\n")
    assert quota_of("0::/slice/job\n", tmp_path) == 0.5
    assert quota_of("0::/../../elsewhere\n", tmp_path) is None


def test_the_older_version_of_groups_has_limits_too(tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text("200000\n")
    (tmp_path / "cpu/cpu.cfs_period_us").write_text("100000\n")
    assert quota_of("4:memory:/x\n3:cpu,cpuacct:/docker/12ab\n0::/\n", tmp_path) == 2
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text("-1\n")
    assert quota_of("3:cpu,cpuacct:/docker/12ab\n", tmp_path) is None


@pytest.mark.parametrize(("used", "is_written"), [(0, True), (800, True), (820, False)])
def test_texts_are_added_only_if_there_is_room_for_all(used: int, is_written: bool, tmp_path: Path) -> None:
    path = tmp_path / "capture"
    before = b"A=" + (used - 2) * b"x" if used else b""
    path.write_bytes(bytes(ENVIRONMENT_AT) + before.ljust(ENVIRONMENT_BYTES, b"\0") + b"rest")
    header_texts.add(path, {"TORCH_THREADS": 8})
    area, rest = path.read_bytes()[ENVIRONMENT_AT:][:ENVIRONMENT_BYTES], path.read_bytes()[-4:]
    added = [before, b"TORCH_THREADS=8"] if used else [b"TORCH_THREADS=8"]
    assert area.rstrip(b"\0") == (b"\0".join(added) if is_written else before)
    assert (len(path.read_bytes()), rest) == (ENVIRONMENT_AT + ENVIRONMENT_BYTES + 4, b"rest")


RECORD = """
    import json, os, sys, opspan, torch
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    torch.set_num_threads(3)
    with opspan.record(sys.argv[1]):
        eval(sys.argv[2])
    print(json.dumps([os.getpid(), *os.sched_getaffinity(0)]))
"""


def test_a_recording_states_the_threads_of_torch_and_the_processors(tmp_path: Path) -> None:
    pid, processor = json.loads(python(RECORD, str(tmp_path / "run"), "torch.ones(2)"))
    options = opspan.load(tmp_path / "run").metadata.options
    assert options["torch_threads"] == {str(pid): 3}
    assert options["processor_list"] == {str(pid): str(processor)}
    assert 0 < options["usable_processors"][str(pid)] <= 1
    assert "process_age_ns" not in options  # other ops may have run before the recording


def test_a_recording_without_ops_does_not_ask_torch(tmp_path: Path) -> None:
    python(RECORD, str(tmp_path / "run"), "None")
    assert "torch_threads" not in opspan.load(tmp_path / "run").metadata.options


RUN = """
import json, sys, time
from pathlib import Path
begun = time.monotonic_ns()
import torch
imported = time.monotonic_ns()
torch.set_num_threads(2)
torch.ones(2)
Path(sys.argv[1]).write_text(json.dumps([begun, imported, time.monotonic_ns()]))
"""


def test_opspan_run_states_when_the_process_began_and_imported_torch(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(RUN)
    program = [sys.executable, str(tmp_path / "program.py"), str(tmp_path / "times")]
    command = [sys.executable, "-m", "opspan", "run", "--emit", "nvtx", "-o", str(tmp_path / "run"), "--", *program]
    before = time.monotonic_ns()
    subprocess.run(command, check=True, timeout=300)
    begun, imported, done = json.loads((tmp_path / "times").read_text())
    trace = opspan.load(tmp_path / "run")
    ((pid, age_ns),) = trace.metadata.options["process_age_ns"].items()
    begin, end = trace.metadata.options["torch_import_ns"][pid]
    process_ns = trace.processes["start_ns"][0] - age_ns
    assert before - 10**7 <= process_ns < begun  # the kernel counts hundredths of a second
    assert begun <= process_ns + begin < process_ns + end <= imported
    first = trace.ranges["start_ns"].min()
    assert imported <= first <= done
    assert trace.metadata.options["torch_threads"] == {pid: 2}
