"""Findings name the lines of the program that they are about: of compiled kernels by the compiler's log, of ops by
their stacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import opspan as package
from builders import compile_log as log
from builders import kineto
from emit.running import opspan
from opspan.trace import Trace

CALL = "## Call CompiledFxGraph None ##"
LONG, SHORT = "triton_poi_fused_add_0", "triton_poi_fused_mul_1"


def compiled(folder: Path, kernels: dict[str, list[int]] | None) -> Trace:
    events: list[Any] = [kineto.op(CALL, kineto.MAIN, 0, 100)]
    for number, (name, length) in enumerate(((LONG, 900), (SHORT, 50)), 1):
        events += [
            kineto.call("cudaLaunchKernel", kineto.MAIN, 10 * number, 1, number),
            kineto.kernel(name, 1_000 * number, length, number),
        ]
    file = kineto.write(folder / "trace.json", kineto.document(events))
    path = None if kernels is None else log.write(folder / "x_torch_trace_a.log", log.lines(kernels))
    return package.load(file, compiled=path)


def lines_of(trace: Trace, rule: str) -> list[str]:
    (row,) = trace.findings().filter(id=rule).to_dicts()
    lines: list[str] = row["lines"]
    return lines


def test_a_finding_about_a_compiled_kernel_names_its_lines(tmp_path: Path) -> None:
    trace = compiled(tmp_path, {f"{LONG}:1": [3, 4], f"{SHORT}:2": [7]})

    assert lines_of(trace, "dominating-kernel") == ["model.py:3 forward", "model.py:4 forward"]


def test_no_lines_are_named_without_the_log(tmp_path: Path) -> None:
    assert lines_of(compiled(tmp_path, None), "dominating-kernel") == []


def test_the_line_of_an_op_is_that_of_its_stack(tmp_path: Path) -> None:
    frame = {"Python id": 1, "Python parent id": None}
    events: list[Any] = [
        kineto.span("python_function", "train.py(30): main", kineto.MAIN, 0, 100, **frame),
        kineto.op("aten::mm", kineto.MAIN, 10, 50),
        kineto.call("cudaLaunchKernel", kineto.MAIN, 20, 1, 1),
        kineto.kernel("gemm", 1_000, 900, 1),
        kineto.call("cudaLaunchKernel", kineto.MAIN, 80, 1, 2),
        kineto.kernel("other", 2_000, 10, 2),
    ]
    trace = package.load(kineto.write(tmp_path / "trace.json", kineto.document(events)))

    assert lines_of(trace, "dominating-kernel") == ["train.py:30 main"]


def test_lines_are_printed_beside_the_ops(tmp_path: Path) -> None:
    compiled(tmp_path, {f"{LONG}:1": [3], f"{SHORT}:2": [7]})
    done = opspan("findings", tmp_path / "trace.json", "--compiled", tmp_path / "x_torch_trace_a.log")

    assert f"ops: {CALL}; lines: model.py:3 forward" in " ".join(done.stdout.split())
