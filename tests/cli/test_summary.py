"""opspan summary: one screen, whose figures are those of the other verbs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import opspan as package
from builders import kineto
from emit.running import opspan
from readers.samples import samples
from views.sources import HOSTILE, capture, nsys


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nsys(tmp_path_factory.mktemp("nsys") / "run.sqlite", scale=1000)


def row(path: Path) -> dict[str, Any]:
    done = opspan("summary", path, "--format", "json")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["rows"]
    return dict(found)


@pytest.mark.parametrize("name", samples())
def test_every_source_fits_a_screen(name: str, tmp_path: Path) -> None:
    path = samples()[name](tmp_path)
    done = opspan("summary", path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert 4 <= len(lines) <= 25
    # The command to type next has the path, which is as long as it is.
    assert max(len(line.replace(str(path), "FILE")) for line in lines) <= 80
    assert lines[-2].startswith("Next         opspan ")
    assert lines[-1] == f"See it       opspan report {path}"


def test_its_figures_are_those_of_steps_idle_and_the_table(exported: Path) -> None:
    trace = package.load(exported)
    found = row(exported)
    steps = trace.steps()
    assert (found["steps"], found["step_ns"]) == (steps.height, steps["time_ns"].median())
    assert found["ops_ns"] >= steps["ops_ns"].sum()
    assert found["idle_ns"] == trace.idle()["time_ns"].sum()
    assert found["attributed"] == trace.coverage.work_in_range.fraction
    assert found["busy_ns"] + found["idle_ns"] == found["device_time_ns"]
    top = opspan("table", exported, "--format", "json", "--sort-by", "self_device_ns")
    first = json.loads(top.stdout)["rows"][0]["name"].removeprefix("aten::")
    assert first in next(line for line in opspan("summary", exported).stdout.splitlines() if line.startswith("Top ops"))


def test_names_that_are_no_fit_sight_are_escaped(tmp_path: Path) -> None:
    hostile = "\x1b[31m" + "x" * 200
    events = [kineto.op(hostile, 1, 0, 10), kineto.span("user_annotation", hostile, 1, 20, 9)]
    done = opspan("summary", kineto.write(tmp_path / "run.json", kineto.document(events)))
    assert "\x1b" not in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines()[:-2])


def test_a_capture_and_several_ranks(tmp_path: Path) -> None:
    one = capture(tmp_path / "100-1.opspan")
    assert row(one)["tools"].startswith("capture")
    done = opspan("summary", one, one)
    assert "2 ranks" in done.stdout.splitlines()[0]
    assert done.stdout.splitlines()[-1].endswith("...")
    assert HOSTILE not in done.stdout


def test_what_is_no_trace_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text("{")
    done = opspan("summary", path)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)


def test_a_real_file_says_what_its_sql_says(traces_dir: Path) -> None:
    """Two GPUs are busy for 541 ms: 94 % computing, 4.7 % in collectives of NCCL, 1 % copying (sums of its tables)."""
    found = row(traces_dir / "nsys/train_fsdp_2gpu.sqlite")
    assert found["busy_ns"] == pytest.approx(541e6, rel=0.001)
    assert found["computing_ns"] / found["busy_ns"] == pytest.approx(0.942, abs=0.001)
    assert found["communicating_ns"] / found["busy_ns"] == pytest.approx(0.047, abs=0.001)
    assert (found["processes"], found["devices"], found["steps_are"]) == (2, 2, None)
    assert (found["steps"], found["pattern_turns"]) == (0, 16)
