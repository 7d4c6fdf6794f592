"""A user's editor and type checker know all public names, and no others."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import opspan
from opspan import autograd_profiler, profiler

# Not run: read by mypy, as its author's editor would.
PROGRAM = """
from pathlib import Path
from typing_extensions import assert_type
import polars as pl
import torch
import opspan
from opspan.autograd_profiler import EventList, FunctionEvent

@opspan.annotate
def train(steps: int) -> float:
    with opspan.annotate("load batch", payload=steps), opspan.emit_nvtx(record_shapes=True):
        return 1.0

assert_type(train(3), float)
with opspan.record(record_shapes=True) as recording:
    opspan.mark("begin")
assert_type(recording.trace, opspan.Trace)
with opspan.profiler.profile(record_shapes=True) as prof:
    prof.step()
assert_type(prof.trace, opspan.Trace)
assert_type(prof.events()[0], FunctionEvent)
assert_type(recording.events(), EventList)
assert_type(opspan.load_nsys(Path("report.sqlite")).table(), str)
assert_type(opspan.load("a.sqlite", "b.sqlite", step=(1, 2)), opspan.Trace)
trace = opspan.Trace((opspan.Metadata("mine"),), ranges=pl.DataFrame())
assert_type(trace.ranges, pl.DataFrame)
assert_type(opspan.analysis.analyse(trace), opspan.Trace)
events = opspan.load_nvprof("trace.prof")
assert_type(events[0], FunctionEvent)
assert_type([average.count for average in events.key_averages(group_by_input_shapes=True)], list[int])
try:
    trace.export("trace.json")
except opspan.errors.ReadError as error:
    print(opspan.__version__, error)
"""
MISTAKES = """
import opspan
opspan.lode("a")
opspan.load(7)
opspan.emit_nvtx(record_shape=True)
opspan.load_nsys("a").tables()
"""


def checked(program: str, folder: Path, repo: Path) -> subprocess.CompletedProcess[str]:
    path = folder / "program.py"
    path.write_text(program)
    options = ["--config-file", repo / "pyproject.toml", "--cache-dir", folder / "cache"]
    return subprocess.run([sys.executable, "-m", "mypy", *options, path], cwd=folder, capture_output=True, text=True)


@pytest.mark.slow
def test_a_users_program_is_checked_and_its_mistakes_are_found(tmp_path: Path, repo: Path) -> None:
    sound = checked(PROGRAM, tmp_path, repo)
    assert sound.returncode == 0, sound.stdout + sound.stderr

    found = checked(MISTAKES, tmp_path, repo).stdout.splitlines()
    lines = [int(line.split(":")[1]) for line in found if ": error:" in line]
    assert lines == [3, 4, 5, 6], found


@pytest.mark.parametrize("module", [opspan, autograd_profiler, profiler], ids=lambda module: module.__name__)
def test_what_a_type_checker_reads_is_what_a_program_gets(module: ModuleType) -> None:
    assert module.__file__
    (block,) = (
        node
        for node in ast.parse(Path(module.__file__).read_text()).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    imported = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            assert alias.asname == alias.name  # else it is the module's own
            imported[alias.name] = f"{node.module}:{alias.name}"
    homes = {
        name: home if ":" in home else ":".join(home.rsplit(".", 1)) for name, home in vars(module)["_HOMES"].items()
    }
    assert imported == homes


@pytest.mark.parametrize("name", ["analysis", "autograd_profiler", "errors", "itt", "nvtx", "profiler", "views"])
def test_its_rooms_are_there_without_a_further_import(name: str) -> None:
    program = f"import opspan; print(opspan.{name}.__name__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == f"opspan.{name}\n", done.stderr
