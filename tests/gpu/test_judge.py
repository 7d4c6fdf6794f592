"""tools/judge on real programs of a GPU: one program on a GPU, if there is one; others at least run without a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import opspan
from tool_folders import TOOLS, importable

judge = importable("judge")


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.usefixtures("gpu")
def test_a_slow_function_is_named_and_its_time_is_right() -> None:
    command = [sys.executable, TOOLS / "judge", "--only", "gpu: a slow function between ops", "--seeds", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)

    assert done.returncode == 0, done.stderr
    assert [line.split()[:4] for line in done.stdout.splitlines() if line.startswith(("recall", "time at"))] == [
        ["recall", "1", "of", "1"],
        ["time", "at", "stake", "1"],
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a slow loader", "a number read in each block", "one slow op"])
def test_programs_of_a_gpu_run_where_there_is_none(tmp_path: Path, name: str) -> None:
    pytest.importorskip("torch")
    from device_texts import ALL

    (program,) = (one for one in ALL if one.name == f"gpu: {name}")
    text = program.start + program.text.replace("6000", "60")
    env = {"OPSPAN_JUDGE_DEVICE": "cpu", "OPSPAN_JUDGE_SIZES": "32 64", "OPSPAN_JUDGE_TURN": str(tmp_path / "turn")}
    seconds = {}
    for how in ("plain", "planted"):
        command = [sys.executable, "-c", text, str(tmp_path / how), how]
        done = subprocess.run(command, env=os.environ | env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        seconds[how] = float(done.stdout)

    steps = opspan.load(tmp_path / "planted").steps()
    assert steps["step"].to_list() == [f"ProfilerStep#{number}" for number in range(20)]
    if name == "a slow loader":
        assert seconds["planted"] > seconds["plain"] + 20 * 0.02 * 0.9
