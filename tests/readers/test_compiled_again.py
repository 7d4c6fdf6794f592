"""A program that compiles here, and what torch itself counted in its process: the log says the same."""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from emit.running import run
from opspan.analysis.compilations import figures
from opspan.readers.compile_logs import add_to
from opspan.tables import Metadata, Tables

pytest.importorskip("torch")

PROGRAM = Path(__file__).parent.parent / "programs" / "compiled_again.py"
RELEASE = tuple(map(int, re.findall(r"\d+", version("torch"))[:2]))
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tables, dict[str, Any]]:
    """Returns a trace with the program's log, and what torch counted."""
    if RELEASE < (2, 10):
        pytest.skip("this torch counts other things")
    folder = tmp_path_factory.mktemp("again")
    done = run([sys.executable, PROGRAM, folder / "torch.json"], env={"TORCH_TRACE": str(folder / "log")}, cwd=folder)
    assert done.returncode == 0, done.stderr
    trace = add_to(Tables((Metadata("kineto"),)), folder / "log")
    return trace, json.loads((folder / "torch.json").read_text())


def test_the_compilations_are_those_of_get_compilation_metrics(compiled: tuple[Tables, dict[str, Any]]) -> None:
    trace, torch = compiled

    columns = "compile_id", "function", "file", "line", "duration_ns", "recompile_reason", "fail_type"
    assert trace.compilations.select(columns).rows() == [
        tuple(value * 1000 if name == "duration_us" else value for name, value in one.items())
        for one in torch["metrics"]
    ]
    restarts = [None if text is None else text.split("\n")[0] for text in trace.compilations["restart_reasons"]]
    assert restarts == [some[0].split("\n")[0] if some else None for some in torch["restarts"]]
    assert trace.compilations["recompile_reason"].count() == 2


def test_durations_are_those_of_compile_times(compiled: tuple[Tables, dict[str, Any]]) -> None:
    trace, torch = compiled

    seconds = [float(text) for text in torch["times"]["_compile.compile_inner"].split(", ")]
    assert (trace.compilations["duration_ns"] / 1e9).to_list() == pytest.approx(seconds, abs=2e-6)


def test_graph_breaks_are_those_of_the_counters(compiled: tuple[Tables, dict[str, Any]]) -> None:
    trace, torch = compiled
    text = PROGRAM.read_text().splitlines()
    lines = {number for number, line in enumerate(text, 1) if line.endswith("# a break")}

    # torch counts breaks in branches as unimplemented; the error that ended a compilation is there as well.
    counted = [*torch["counters"]["graph_break"], *torch["counters"]["unimplemented"]]
    reasons = {one.split("\n")[0] for one in counted if "fake tensor call" not in one}
    assert set(trace.graph_breaks["reason"]) == reasons
    assert set(trace.graph_breaks["line"]) == lines
    assert set(trace.graph_breaks["function"]) == {"broken", "branching"}
    assert trace.graph_breaks.height == 2


def test_the_figures_are_those_of_torch(compiled: tuple[Tables, dict[str, Any]]) -> None:
    trace, torch = compiled

    (row,) = figures(trace).to_dicts()
    assert row["compilations"] == len(torch["metrics"])
    assert row["again"] == sum(one["recompile_reason"] is not None for one in torch["metrics"])
    assert row["ns"] == sum(one["duration_us"] for one in torch["metrics"]) * 1000
    assert (row["breaks"], row["lines"]) == (2, 2)
    assert trace.compilations.filter(pl.col("function") == "once").height == 1
