"""load_kineto reads traces of torch.profiler; the results are compared with the profiler's own output in that
process."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
from nsys import PROGRAMS

import opspan
from emit.running import forked_file
from opspan.analysis import analyse
from tiers import before_release

pytest.importorskip("torch")

import torch
from torch.autograd.profiler_util import EventList

OLD = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13)

# Until 2.14, torch's averages count Python's functions; since then only if they are asked to.
COUNTS_PYTHON = "include_python_functions" not in inspect.signature(EventList.key_averages).parameters

OPTIONS = {
    "plain": "",
    "shapes": "shapes",
    "stacks": "stack",
    "memory": "memory",
    "all": "shapes,stack,memory",
}


@pytest.fixture(
    scope="module",
    params=["mlp", "two_threads", *before_release(["double_backward", "checkpointing", "custom_function", "hooks"])],
)
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Returns the profiler's output for each run, and the folder of the traces. All runs share a process: to start one
    takes longer than a run."""
    folder = tmp_path_factory.mktemp(request.param)
    runs = [f"{name}={options}" for name, options in OPTIONS.items()]
    done = forked_file(PROGRAMS / "profiled.py", request.param, folder, *runs)
    assert done.returncode == 0, done.stderr
    return folder, json.loads(next(line for line in reversed(done.stdout.splitlines()) if line.startswith("{")))


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS)
def test_the_averages_are_those_that_torch_printed(program: tuple[Path, dict[str, Any]], options: str) -> None:
    if OLD and options in ("stacks", "memory", "all"):
        pytest.skip("before 2.13 torch lists no Python functions, and prints memory in other units")
    folder, runs = program
    said = runs[options]

    events = opspan.load_kineto(folder / f"{options}.json")
    by_shapes = "shapes" in OPTIONS[options]
    averages = events.key_averages(group_by_input_shapes=by_shapes, include_python_functions=COUNTS_PYTHON)

    assert len(events) == said["events"]
    found = {(one.key, str(one.input_shapes)): one for one in averages}
    assert found.keys() == {(key, shapes) for key, shapes, *_ in said["averages"]}
    for key, shapes, count, total, self_total, memory in said["averages"]:
        one = found[key, shapes]
        assert one.count == count
        assert one.cpu_time_total == pytest.approx(total, abs=1e-6 * count)
        assert one.self_cpu_time_total == pytest.approx(self_total, abs=1e-6 * count + 1e-6)
        assert [one.cpu_memory_usage, one.self_cpu_memory_usage] == memory
    if not by_shapes:  # a line a name
        ours, theirs = (lines_of(table) for table in (averages.table(row_limit=10_000), said["table"]))
        assert ours.keys() == theirs.keys()
        for name, line in theirs.items():
            assert all(map(alike, ours[name], line)), (ours[name], line)


def lines_of(table: str) -> dict[str, list[str]]:
    return {line[:55].strip(): line[55:].split() for line in table.splitlines()}


def alike(one: str, other: str) -> bool:
    """The same figure: torch's sums of doubles end a digit off now and then."""
    if one == other:
        return True
    numbers = [float(text.rstrip("%mus")) for text in (one, other)]
    return one.lstrip("-.0123456789") == other.lstrip("-.0123456789") and abs(numbers[0] - numbers[1]) < 0.0101


@pytest.mark.slow
@pytest.mark.parametrize("program", ["mlp"], indirect=True)
def test_backward_ops_are_linked_as_the_arrows_in_the_file_say(program: tuple[Path, dict[str, Any]]) -> None:
    trace = opspan.load(program[0] / "plain.json")
    ranges = analyse(trace).ranges
    assert trace.relations.height > 5
    for backward, forward in trace.relations.select("range_id", "other_id").rows():
        assert ranges["forward"][backward] == forward


@pytest.mark.slow
@pytest.mark.parametrize("program", ["mlp"], indirect=True)
def test_modules_of_ops_are_those_of_python(program: tuple[Path, dict[str, Any]]) -> None:
    ranges = analyse(opspan.load(program[0] / "stacks.json")).ranges
    assert any("Linear" in module for module in ranges["module"].drop_nulls().unique())
