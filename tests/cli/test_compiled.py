"""--compiled: what torch.compile wrote, beside a trace, for every verb that reads one."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import opspan as package
from builders import compile_log as log
from builders import kineto
from cli.answers import rows
from emit.running import opspan
from opspan.questions import BY

KERNEL = "triton_poi_fused_add_0"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    events = [
        kineto.op("Torch-Compiled Region: 0/0", kineto.MAIN, 0, 100),
        kineto.call("cudaLaunchKernel", kineto.MAIN, 10, 2, 1),
        kineto.kernel(KERNEL, 50, 8, 1),
    ]
    (tmp_path / "log").mkdir()
    log.write(tmp_path / "log" / "dedicated_log_torch_trace_rank_3_x.log", log.lines({f"{KERNEL}:1": [3, 4]}))
    return kineto.write(tmp_path / "trace.json", kineto.document(events))


@pytest.mark.parametrize("processes", [(), ("--processes", "1")])
def test_a_table_by_line_has_the_lines_of_the_log(trace: Path, processes: tuple[str, ...]) -> None:
    found = rows("table", trace, "--by", "line", "--compiled", trace.parent / "log", *processes)

    assert {row["line"]: (row["count"], row["self_device_ns"]) for row in found} == {
        "model.py:3 forward": (1, 4_000),
        "model.py:4 forward": (1, 4_000),
        "(unknown)": (0, 0),
    }


def test_many_files_have_the_same_lines_as_one_trace(trace: Path) -> None:
    folder = trace.parent / "log"
    one = package.load(trace, compiled=folder).table("line").rows

    assert package.load_many(trace, compiled=folder, processes=1).table("line").rows.equals(one)


@pytest.mark.parametrize("verb", [verb for verb in BY if verb != "diff"])
def test_every_verb_takes_it(trace: Path, verb: str) -> None:
    done = opspan(verb, trace, "--compiled", trace.parent / "log")

    assert done.returncode == 0, done.stderr
    assert "compile" not in done.stderr


def test_an_op_chooses_what_was_launched_in_it(trace: Path) -> None:
    found = rows("table", trace, "--by", "source-op", "--op", "Torch-Compiled*")

    assert [(row["source_op"], row["count"]) for row in found] == [("aten::add", 1), ("(unknown)", 0)]


def test_an_export_keeps_it(trace: Path) -> None:
    opspan("export", trace, trace.parent / "out.json", "--compiled", trace.parent / "log")

    again = package.load(trace.parent / "out.json")
    assert again.provenance.equals(package.load(trace, compiled=trace.parent / "log").provenance)
    assert again.table("line").rows.filter(pl.col("count") > 0).height == 2


@pytest.mark.parametrize("path", ["missing", "trace.json", "empty"])
def test_a_path_without_anything_of_the_compiler_is_an_error_of_one_line(trace: Path, path: str) -> None:
    (trace.parent / "empty").mkdir()
    done = opspan("table", trace, "--by", "line", "--compiled", trace.parent / path)

    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def test_there_is_no_memory_by_line(trace: Path) -> None:
    done = opspan("table", trace, "--by", "line", "--memory")

    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
