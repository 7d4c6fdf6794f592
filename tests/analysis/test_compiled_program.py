"""A program that torch.compile compiles here: every kernel of its trace has the lines that the program has."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import polars as pl
import pytest

import opspan
from emit.running import run

pytest.importorskip("torch")

PROGRAM = Path(__file__).parent.parent / "programs" / "lines.py"
RELEASE = tuple(map(int, re.findall(r"\d+", version("torch"))[:2]))
COMPILES = {
    "INDUCTOR_PROVENANCE": "1",
    "TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE": "1",
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with the trace, and the log of the compiler in `log`."""
    if RELEASE < (2, 10):
        pytest.skip("this torch does not write the numbers of calls")
    folder = tmp_path_factory.mktemp("compiled")
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"), "TORCH_TRACE": str(folder / "log")}
    done = run([sys.executable, PROGRAM, folder / "trace.json"], env=COMPILES | caches, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_every_kernel_that_ran_has_lines_of_the_program(folder: Path) -> None:
    trace = opspan.load(folder / "trace.json", compiled=folder / "log")
    text = PROGRAM.read_text().splitlines()
    lines = {f"lines.py:{number} forward" for number, line in enumerate(text, 1) if line.endswith("# a line")}

    table = trace.table("line").rows
    assert set(table["line"]) == lines | {"(unknown)"}
    assert table["self_cpu_ns"].sum() == trace.analysed.attributed.ranges["self_ns"].sum()
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    ran = {event["name"] for event in events if "cpp_fused" in event.get("name", "")}
    known = trace.provenance.filter(pl.col("line").is_not_null())["kernel"].cast(pl.String).to_list()
    assert {name.removeprefix("graph_0_") for name in ran} <= set(known)
    assert len(ran) == 3
    unknown = table.filter(line="(unknown)")["self_cpu_ns"].item()
    of_kernels = sum(event["dur"] for event in events if event.get("name") in ran)
    assert table["self_cpu_ns"].sum() - unknown >= of_kernels * 999  # in ns, of times in µs


@pytest.mark.slow
def test_backward_kernels_lead_to_lines_of_the_forward(folder: Path) -> None:
    trace = opspan.load(folder / "trace.json", compiled=folder / "log")

    backward = trace.provenance.filter(phase="backward")
    assert set(backward["function"]) == {"forward"}
    assert set(backward["kernel"].cast(pl.String).str.extract("^(cpp|extern)")) == {"cpp", "extern"}


@pytest.mark.slow
def test_ops_are_those_that_the_program_called(folder: Path) -> None:
    trace = opspan.load(folder / "trace.json", compiled=folder / "log")

    ops = set(trace.table("source-op").rows["source_op"])
    assert {"aten::addmm", "aten::relu", "aten::native_layer_norm", "aten::native_layer_norm_backward"} <= ops
    assert not any("cpp_fused" in op for op in ops)


@pytest.mark.slow
def test_stacks_have_the_program_s_functions_above_kernels(folder: Path) -> None:
    trace = opspan.load(folder / "trace.json", compiled=folder / "log")
    stacks: dict[Path, int] = {}
    by_line: Counter[str] = Counter()
    for compiled in (folder / "log", None):
        out = folder / f"{compiled is None}.stacks"
        opspan.load(folder / "trace.json", compiled=compiled).export(out)
        lines = [line.rpartition(" ") for line in out.read_text().splitlines()]
        stacks[out] = sum(int(weight) for _, _, weight in lines)
        for stack, _, weight in lines:
            if ours := re.search(r"(lines\.py)\((\d+)\): (forward);", stack):
                by_line["{}:{} {}".format(*ours.groups())] += int(weight)

    assert len(set(stacks.values())) == 1
    table = trace.table("line").rows.filter(pl.col("line") != "(unknown)")
    assert by_line == dict(table.select("line", "self_cpu_ns").rows())
