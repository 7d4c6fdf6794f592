"""Every file of docs/examples runs as its users run it, in an empty folder, and prints what it says that it prints."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from emit.running import FILE, TRAINING, WARNINGS, forked, run
from house.tree import REPO, files
from vendor.nsys import AGENT_IS_LATE, available
from views import sources


def example(
    name: str, folder: Path, *arguments: str, env: dict[str, str | None] | None = None
) -> subprocess.CompletedProcess[str]:
    program = REPO / "docs" / "examples" / f"{name}.py"
    if "import torch" in program.read_text(encoding="utf-8"):
        return forked(FILE, program, *arguments, env=env, cwd=folder, strict=True, imported=TRAINING)
    return run([sys.executable, *WARNINGS, program, *arguments], env=env, cwd=folder)


def output(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def torch_rows(text: str) -> list[dict[str, str]]:
    """Returns the rows of a table as torch prints it, as cells by their titles."""
    lines = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    titles = next(cells for cells in lines if cells[0] == "Name")
    found = [dict(zip(titles, cells, strict=True)) for cells in lines if len(cells) == len(titles)]
    return [row for row in found if row["Name"] != "Name" and set(row["Name"]) != {"-"}]


def counts(text: str) -> dict[str, str]:
    return {row["Name"]: row["# of Calls"] for row in torch_rows(text)}


def frame_rows(text: str) -> list[list[str]]:
    """Returns the cells of all rows below the titles of frames, as polars prints them."""
    rows = []
    is_below = False
    for line in text.splitlines():
        is_row = line.startswith("│")
        is_below = line.startswith("╞") or (is_below and is_row)
        if is_below and is_row:
            rows.append([cell.strip() for cell in re.split("[│┆]", line)[1:-1]])
    return rows


trains = pytest.mark.skipif(find_spec("torch") is None, reason="the example trains a model, and there is no torch")


def test_every_example_is_run_here() -> None:
    run_here = set(re.findall(r'\bexample\("(\w+)"', Path(__file__).read_text(encoding="utf-8")))

    assert run_here == {path.stem for path in files("docs/examples/*.py")}


@pytest.mark.slow
@trains
def test_record_training(tmp_path: Path) -> None:
    shown = output(example("record_training", tmp_path))

    table = torch_rows(shown)
    assert len(table) == 8
    ops = {row["Name"]: row for row in table if row["Name"].startswith("aten::")}
    assert {int(row["# of Calls"]) % 3 for row in ops.values()} == {0}, "three steps were recorded"
    assert "Input Shapes" in table[0]
    names, own, backward = zip(*frame_rows(shown), strict=True)
    steps = tuple(f"ProfilerStep#{number}" for number in (2, 3, 4))
    assert names == ("Sequential", "Sequential.0", "Sequential.1", "Sequential.2", *steps)
    assert all(int(part) <= int(whole) for part, whole in zip(backward, own, strict=True))
    assert all(int(part) > 0 for part in backward[1:])
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@trains
def test_time_by_layer_of_its_own_model(tmp_path: Path) -> None:
    rows = {(module, name): times for module, name, *times in frame_rows(output(example("time_by_layer", tmp_path)))}

    forward, backward, both = rows["Sequential.0", "aten::addmm"]
    assert (forward, backward) == (both, "null")
    forward, backward, both = rows["Sequential.0", "aten::mm"]
    assert (forward, backward) == ("null", both)
    assert float(both) > 0
    sums = [float(times[-1]) for times in rows.values()]
    assert sums == sorted(sums, reverse=True)


def test_time_by_layer_of_a_file_is_the_time_that_is_in_it(tmp_path: Path) -> None:
    sources.capture(tmp_path / "1.opspan")

    rows = frame_rows(output(example("time_by_layer", tmp_path, "1.opspan")))

    # linear from 1.2 to 3 has addmm from 1.3 to 2 inside, AddmmBackward0 from 5.5 to 7 has mm from 5.6 to 6.1.
    for row in (
        ["Net.layer", "aten::linear", "1.1", "null", "1.1"],
        ["Net.layer", "AddmmBackward0", "null", "1.0", "1.0"],
        ["Net.layer", "aten::addmm", "0.7", "null", "0.7"],
        ["Net.layer", "aten::mm", "null", "0.5", "0.5"],
    ):
        assert row in rows


@pytest.mark.slow
@trains
def test_timeline_and_flame_graph(tmp_path: Path) -> None:
    shown = output(example("timeline_and_flame_graph", tmp_path))

    with gzip.open(tmp_path / "run.json.gz") as file:
        events = json.load(file)["traceEvents"]
    assert sum(event.get("name") == "aten::gelu" or event.get("name") == "aten::relu" for event in events) == 2
    stacks = [line.rpartition(" ") for line in (tmp_path / "run.stacks").read_text().splitlines()]
    (longest, *_) = max(stacks, key=lambda line: int(line[2]))
    said = shown.partition("Most time was spent in:\n")[2]
    assert [line.strip() for line in said.splitlines()] == longest.split(";")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.json.gz", "run.stacks"]


def test_kernels_of_ops(tmp_path: Path) -> None:
    sources.nsys(tmp_path / "report.sqlite", scale=1000)
    shown = output(example("kernels_of_ops", tmp_path, "report.sqlite"))

    assert frame_rows(shown) == [
        ["LinearBackward0", "gemm", "2", "398000"],
        ["aten::addmm", "gemm", "4", "336000"],
        ["(in no range)", "gemm", "1", "50000"],
    ]
    assert "of device time belongs to a range" in shown


@pytest.mark.slow
def test_kernels_of_ops_says_what_is_missing(tmp_path: Path) -> None:
    sources.capture(tmp_path / "1.opspan")

    without_file, without_kernels = example("kernels_of_ops", tmp_path), example("kernels_of_ops", tmp_path, "1.opspan")

    assert (without_file.returncode, without_kernels.returncode) == (1, 1)
    assert without_file.stderr.startswith("usage: ")
    assert without_kernels.stderr == "No kernels were recorded: nsys needs `-t cuda,nvtx`\n"


@pytest.mark.slow
@pytest.mark.nsys
@pytest.mark.skipif(not available(), reason="nsys is not installed")
@trains
def test_nsys_report(tmp_path: Path) -> None:
    done = example("nsys_report", tmp_path)
    for _ in range(2):  # nsys misses its own agent now and then where a machine is busy; the program has not begun then
        if done.returncode and any(said in done.stdout + done.stderr for said in AGENT_IS_LATE):
            done = example("nsys_report", tmp_path)
    shown = output(done)

    assert counts(shown)["train step"] == "3"
    assert counts(shown)["aten::addmm"] == "6"
    assert "18 of 18 backward ranges are linked to their forward op" in shown
    assert (tmp_path / "labelled.nsys-rep").is_file()


def test_nsys_report_says_that_nsys_is_missing(tmp_path: Path) -> None:
    done = example("nsys_report", tmp_path, env={"PATH": str(tmp_path)})

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("nsys is not on the PATH: install Nsight Systems")


@pytest.mark.slow
@trains
def test_itt_capture(tmp_path: Path) -> None:
    shown = output(example("itt_capture", tmp_path))

    convolutions = re.findall(r"^\('aten::convolution', (\d+), '\[\[1, 3, 8, 8\], \[4, 3, 3, 3\], \[4\],", shown, re.M)
    assert len(set(convolutions)) == 3, "each has a sequence number of its own"
    assert counts(shown)["aten::convolution"] == "3"
    assert list((tmp_path / "itt-capture").glob("*.opspan"))


@pytest.mark.slow
@trains
def test_two_ranks(tmp_path: Path) -> None:
    shown = output(example("two_ranks", tmp_path))

    assert {row["Node ID"] for row in torch_rows(shown)} == {"0", "1"}
    assert re.findall(r"^rank (\d) was in all_reduce 3 times, [\d.]+ ms together$", shown, re.MULTILINE) == ["0", "1"]
    assert all(list((tmp_path / f"rank{rank}").glob("*.opspan")) for rank in (0, 1))
