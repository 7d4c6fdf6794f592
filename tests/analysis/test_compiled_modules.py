"""Modules of compiled kernels, as recordings with compiled=True know them: logs by hand."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

import opspan
from builders import compile_log as log
from builders import kineto

KERNEL = "cpp_fused_add_0"
GRAPH = """
# File: model.py:9 in forward, code: return x + 1
add: "f32[4]" = torch.ops.aten.add.Tensor(primals_1, 1);  primals_1 = None
add_1: "f32[4]" = torch.ops.aten.add.Tensor(add, 1);  add = None
"""


def entries(modules: object, kernels: dict[str, list[str]]) -> list[str]:
    return [
        log.artifact("opspan_modules", json.dumps({"graph": "before", "roots": {"self": "Net"}, "nodes": {}})),
        log.artifact(log.POST, GRAPH),
        log.artifact("opspan_modules", json.dumps(modules)),
        log.artifact(log.NODES, json.dumps({"cppCodeToPost": kernels})),
    ]


def compiled(**nodes: str) -> dict[str, object]:
    return {"graph": "compiled", "roots": {}, "nodes": nodes}


def modules(folder: Path, calls: int, *of_log: str) -> list[tuple[str | None, str]]:
    """Returns module and lines of each kernel in a trace with one call of the graph."""
    events = [
        kineto.op("Torch-Compiled Region: 0/0", kineto.MAIN, 0, 200),
        kineto.span("user_annotation", "## Call CompiledFxGraph None ##", kineto.MAIN, 1, 190),
        *(kineto.op(KERNEL, kineto.MAIN, 10 * number, 5) for number in range(1, calls + 1)),
    ]
    path = log.write(folder / "dedicated_log_torch_trace_a.log", *of_log)
    trace = opspan.load(kineto.write(folder / "trace.json", kineto.document(events)), compiled=path)
    ranges = trace.analysed.complete.ranges.sort("start_ns").filter(pl.col("name").cast(pl.String) == KERNEL)
    by_line = trace.table("line").rows.drop_nulls("line")["line"].to_list()
    return [(module, ", ".join(line for line in by_line if line != "(unknown)")) for module in ranges["module"]]


TWO = {f"{KERNEL}:1": ["add"], f"{KERNEL}:2": ["add_1"]}
BOTH = compiled(add="L['self'].layers.0.fc", add_1="L['self'].layers.1.fc")


def test_calls_of_one_kernel_are_in_the_modules_of_their_nodes(tmp_path: Path) -> None:
    assert modules(tmp_path, 2, *entries(BOTH, TWO)) == [
        ("Net.layers.0.fc", "model.py:9 forward"),
        ("Net.layers.1.fc", "model.py:9 forward"),
    ]


def test_where_the_order_does_not_tell_the_line_is_known_and_the_module_is_not(tmp_path: Path) -> None:
    assert modules(tmp_path, 1, *entries(BOTH, TWO)) == [(None, "model.py:9 forward")]


@pytest.mark.parametrize(
    ("paths", "module"),
    [
        ({"add": "L['self'].layers.0.fc", "add_1": "L['self'].layers.0.norm"}, "Net.layers.0"),
        ({"add": "L['self'].layers.1", "add_1": "L['self'].layers.10"}, "Net.layers"),
        ({"add": "L['self']", "add_1": "L['self'].layers.10"}, "Net"),
        ({"add": "L['model'].fc", "add_1": "L['model'].fc"}, "fc"),
        ({"add": "a.b", "add_1": "a.c"}, "a"),
        ({"add": "L['self']._modules['layers']._modules['0'].fc", "add_1": "L['self'].layers.0.fc"}, "Net.layers.0.fc"),
        ({"add": "a.b", "add_1": "c.b"}, None),
        ({"add": "L['self'].fc"}, None),
        ({"add": "L['self'].fc", "add_1": 7}, None),
    ],
)
def test_a_fused_kernel_is_in_the_module_around_all_its_nodes(
    paths: dict[str, str], module: str | None, tmp_path: Path
) -> None:
    kernels = {f"{KERNEL}:1": ["add", "add_1"]}
    assert modules(tmp_path, 1, *entries(compiled(**paths), kernels)) == [(module, "model.py:9 forward")]


@pytest.mark.parametrize("damaged", [[], 3, {"nodes": 3}, {"graph": [], "roots": "x"}, {"nodes": {"add": None}}, None])
def test_damaged_modules_leave_the_lines(damaged: object, tmp_path: Path) -> None:
    assert modules(tmp_path, 2, *entries(damaged, TWO)) == [(None, "model.py:9 forward")] * 2
