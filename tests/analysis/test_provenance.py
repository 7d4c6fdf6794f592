"""Compiled kernels and what the compiler said about them: traces and logs by hand, and runs whose truth is known."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest

import opspan
from builders import compile_log as log
from builders import kineto
from opspan.analysis import provenance
from opspan.analysis.averages import DURATION, on_device
from opspan.analysis.provenance import AMBIGUOUS, Matches, matched
from opspan.analysis.source_lines import sums_by_line, sums_by_source_op
from opspan.tables import Metadata, Tables
from opspan.trace import Trace
from real_files import in_parts, traces_of

CALL = "## Call CompiledFxGraph {} ##"
REGION = "Torch-Compiled Region: {}"
BACKWARD = "autograd::engine::evaluate_function: CompiledFunctionBackward"
ADD, MUL = "triton_poi_fused_add_0", "triton_poi_fused_mul_1"


class Graph(NamedTuple):
    compile_id: str
    phase: str
    key: str | None
    calls: list[tuple[str, list[int]]]  # kernel and lines


class Program:
    """Writes a trace of calls of graphs, one after the other, and remembers the lines of each kernel."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.truth: list[list[int]] = []
        self.now = 0.0

    def call(self, *kernels: tuple[str, list[int]], key: str | None = None, around: str = REGION.format("0/0")) -> None:
        begin, length = self.now, 10.0 * len(kernels) + 10
        self.events += [
            kineto.op(around, kineto.MAIN, begin, length),
            kineto.span("user_annotation", CALL.format(key), kineto.MAIN, begin + 1, length - 2),
        ]
        for place, (kernel, lines) in enumerate(kernels):
            self.kernel(kernel, lines, begin + 5 + 10 * place)
        self.now += length + 5

    def kernel(self, name: str, lines: list[int], at: float) -> None:
        number = len(self.truth) + 1
        self.events += [
            kineto.call("cudaLaunchKernel", kineto.MAIN, at, 2, number),
            kineto.kernel(name, 1_000_000 + 10 * number, 3.001 + number / 1000, number),
        ]
        self.truth.append(sorted(lines))

    def load(self, folder: Path, *entries: str) -> Trace:
        path = log.write(folder / "dedicated_log_torch_trace_a.log", *entries)
        return opspan.load(kineto.write(folder / "trace.json", kineto.document(self.events)), compiled=path)


def found(trace: Trace) -> list[list[int] | str | None]:
    """Returns the lines of each kernel, in the order of time."""
    analysed = trace.analysed.attributed
    matches = matched(analysed)
    rows = analysed.work.with_columns(matches.of_work.alias("found")).sort("start_ns")
    lines = [[int(line.split(":")[1].split()[0]) for line in some] for some in matches.calls["lines"]]
    return [None if at is None else "ambiguous" if at == AMBIGUOUS else lines[at] for at in rows["found"]]


def graphs(*graphs: Graph) -> list[str]:
    entries = []
    for graph in graphs:
        calls = {f"{kernel}:{number}": lines for number, (kernel, lines) in enumerate(graph.calls, 1)}
        entries += [
            log.code(f"# AOT ID: ['0_{graph.phase}']", graph.compile_id),
            log.lines(calls, graph.compile_id),
            log.artifact("fx_graph_cache_miss", f'{{"key": "{graph.key}"}}', graph.compile_id) if graph.key else "",
        ]
    return entries


def test_a_kernel_is_found_by_its_name(tmp_path: Path) -> None:
    program = Program()
    program.call((ADD, [3, 4]), (MUL, [5]))
    program.call((ADD, [3, 4]), (MUL, [5]))

    assert found(program.load(tmp_path, log.lines({f"{ADD}:1": [3, 4], f"{MUL}:2": [5]}))) == program.truth


def test_calls_of_one_kernel_are_told_apart_by_their_order(tmp_path: Path) -> None:
    program = Program()
    for _ in range(2):
        program.call((ADD, [3]), (MUL, [5]), (ADD, [7]))

    trace = program.load(tmp_path, log.lines({f"{ADD}:1": [3], f"{MUL}:2": [5], f"{ADD}:3": [7]}))

    assert found(trace) == program.truth


def test_an_order_that_does_not_fit_is_not_used(tmp_path: Path) -> None:
    program = Program()
    program.call((ADD, [3]), (MUL, [5]))

    trace = program.load(tmp_path, log.lines({f"{ADD}:1": [3], f"{MUL}:2": [5], f"{ADD}:3": [7]}))

    assert found(trace) == ["ambiguous", [5]]
    assert dict(trace.table("line").rows.select("line", "count").rows())["(ambiguous)"] == 1


def test_calls_that_say_the_same_need_not_be_told_apart(tmp_path: Path) -> None:
    program = Program()
    program.call((ADD, [3]))

    assert found(program.load(tmp_path, log.lines({f"{ADD}:1": [3], f"{ADD}:2": [3]}))) == [[3]]


@pytest.mark.parametrize("how", ["key", "compilation", "phase", "kernels"])
def test_what_is_around_a_kernel_says_which_graph_it_is_of(tmp_path: Path, how: str) -> None:
    first: dict[str, Any] = {"compile_id": "0/0", "phase": "forward", "key": None, "calls": [(ADD, [3])]}
    second = first | {"calls": [(ADD, [7])]}
    program = Program()
    if how == "key":
        first["key"], second["key"] = "fa", "fb"
        program.call((ADD, [3]), key="fa")
        program.call((ADD, [7]), key="fb")
    elif how == "compilation":
        second["compile_id"] = "1/0"
        program.call((ADD, [3]))
        program.call((ADD, [7]), around=REGION.format("1/0"))
    elif how == "phase":
        second["phase"] = "backward"
        program.call((ADD, [3]))
        program.call((ADD, [7]), around=BACKWARD)
    else:
        second["calls"] = [*second["calls"], (MUL, [8])]
        program.call((ADD, [7]), (MUL, [8]))

    assert found(program.load(tmp_path, *graphs(Graph(**first), Graph(**second)))) == program.truth


def test_a_graph_of_another_key_is_not_taken(tmp_path: Path) -> None:
    program = Program()
    program.call((ADD, [3]), key="fother")

    assert found(program.load(tmp_path, *graphs(Graph("0/0", "forward", "fa", [(ADD, [3])])))) == [None]


def test_a_kernel_of_a_library_belongs_to_the_op_in_the_call(tmp_path: Path) -> None:
    program = Program()
    program.call(("ampere_sgemm_32x32_tn", [9]), ("ampere_sgemm_64x64_tn", [10]))
    program.events += [
        kineto.op("aten::mm", kineto.MAIN, 5 + 10 * place, 4, **{"External id": place + 10}) for place in range(2)
    ]
    program.kernel("ampere_sgemm_128x64_tn", [], at=program.now)  # eager

    trace = program.load(tmp_path, log.lines({"extern_kernels.mm:1": [9], "extern_kernels.mm:2": [10]}))

    assert found(trace) == [[9], [10], None]
    assert trace.table("source-op").rows.select("source_op", "count").rows()[0] == ("aten::mm", 2)


def test_ranges_of_cpp_kernels_have_lines(tmp_path: Path) -> None:
    program = Program()
    program.call((MUL, []))
    program.events.append(kineto.op("graph_0_cpp_fused_add_0", kineto.MAIN, 12, 4))

    trace = program.load(tmp_path, log.lines({"cpp_fused_add_0:1": [3, 4]}))

    rows = trace.table("line").rows
    assert rows.select("line", "ranges", "self_cpu_ns").rows() == [
        ("(unknown)", 2, 16_000),
        ("model.py:3 forward", 1, 2_000),
        ("model.py:4 forward", 1, 2_000),
    ]


def test_times_are_divided_to_the_last_nanosecond(tmp_path: Path) -> None:
    program = Program()
    program.call((ADD, [3, 4, 5]), (MUL, [5]))
    trace = program.load(tmp_path, log.lines({f"{ADD}:1": [3, 4, 5], f"{MUL}:2": [5]}))

    assert trace.table("line").rows.filter(pl.col("self_device_ns") > 0).select(
        "line", "count", "self_device_ns"
    ).rows() == [
        ("model.py:5 forward", 2, 1_000 + 3_003),
        ("model.py:3 forward", 1, 1_001),
        ("model.py:4 forward", 1, 1_001),
    ]
    assert trace.kernels().select("lines", "source_ops").rows() == [
        ("model.py:3 forward; model.py:4 forward; model.py:5 forward", "aten::add"),
        ("model.py:5 forward", "aten::mul"),
    ]


def test_without_a_log_the_name_of_a_kernel_says_its_ops(tmp_path: Path) -> None:
    program = Program()
    program.call(("triton_poi_fused_add_native_layer_norm_0", []))
    trace = opspan.load(kineto.write(tmp_path / "trace.json", kineto.document(program.events)))

    rows = trace.table("source-op").rows.filter(pl.col("count") > 0)
    assert rows.select("source_op", "count", "self_device_ns").rows() == [
        ("aten::add", 1, 1_501),
        ("aten::native_layer_norm", 1, 1_501),
    ]
    assert trace.table("line").rows["line"].to_list() == ["(unknown)"]


def test_eager_ops_have_the_innermost_line_that_is_not_of_torch() -> None:
    stack = "src/train.py(30): step\nsrc/model.py(12): forward\nlib/torch/nn/functional.py(99): relu"
    ranges = [
        {"rank": 0, "pid": 1, "tid": 1, "name": "aten::relu", "kind": "op", "start_ns": 0, "end_ns": 7, "stack": stack},
        {"rank": 0, "pid": 1, "tid": 1, "name": "block", "kind": "user", "start_ns": 8, "end_ns": 10},
    ]
    frame = pl.DataFrame(ranges)
    trace = Trace((Metadata("kineto"),), ranges=frame)

    assert trace.table("line").rows.select("line", "self_cpu_ns").rows() == [
        ("model.py:12 forward", 7),
        ("(unknown)", 2),
    ]
    assert trace.table("source-op").rows.select("source_op", "self_cpu_ns").rows() == [
        ("aten::relu", 7),
        ("(unknown)", 2),
    ]


@pytest.mark.parametrize("seed", range(12))
def test_no_kernel_gets_the_lines_of_another(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    names = [f"triton_poi_fused_add_{number}" for number in range(3)]
    made, program = [], Program()
    for number in range(6):
        calls = [(chance.choice(names), sorted({chance.randrange(1, 5) for _ in range(2)})) for _ in range(4)]
        key = chance.choice([None, f"f{number}"])
        made.append(Graph(f"{chance.randrange(2)}/0", chance.choice(["forward", "backward"]), key, calls))
    for _ in range(20):
        graph = chance.choice(made)
        around = BACKWARD if graph.phase == "backward" else REGION.format(graph.compile_id)
        program.call(*graph.calls, key=graph.key, around=around)

    lines = found(program.load(tmp_path, *graphs(*made)))

    for one, truth in zip(lines, program.truth, strict=True):
        assert one in (truth, "ambiguous")
    assert any(one != "ambiguous" for one in lines)


def check_sums(trace: Trace) -> None:
    analysed = trace.analysed.attributed
    ranges = analysed.ranges.filter(~pl.col("is_mark").fill_null(value=False))
    totals = (on_device(analysed.work).select(DURATION.sum()).item(), ranges["self_ns"].sum())
    for rows in (sums_by_line(analysed), sums_by_source_op(analysed)):
        assert (rows["self_device_ns"].sum(), rows["self_cpu_ns"].sum()) == totals
        assert not rows.drop("line", "source_op", strict=False).min_horizontal().lt(0).any()


@in_parts
def test_sums_over_lines_are_the_times_of_all_kernels_and_ranges(traces_dir: Path, part: int) -> None:
    for trace in traces_of(traces_dir, part):
        check_sums(trace)


@pytest.mark.parametrize("name", ["compiled_triton", "compiled_flux_step", "triton_two_pids"])
def test_compiled_kernels_of_real_traces_have_the_ops_of_their_names(traces_dir: Path, name: str) -> None:
    trace = opspan.load(traces_dir / "kineto" / f"{name}.json.gz")
    check_sums(trace)

    kernels = trace.kernels().with_columns(pl.col("name", "source_ops").cast(pl.String))
    fused = kernels.filter(pl.col("name").str.contains("^triton_.*fused_[a-z_]"))
    assert fused.height
    for kernel, ops in fused.select("name", "source_ops").unique().iter_rows():
        joined = "_".join(op.removeprefix("aten::") for op in ops.split("; "))
        assert kernel.partition("_fused_")[2].rpartition("_")[0] == joined


def test_a_page_looks_kernels_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program()
    program.call((ADD, [3]), (MUL, [4]))
    trace = program.load(tmp_path, log.lines({f"{ADD}:1": [3], f"{MUL}:2": [4]}))
    compute, computed = provenance._matched, []

    def counted(trace: Tables) -> Matches:
        computed.append(trace)
        return compute(trace)

    monkeypatch.setattr(provenance, "_matched", counted)
    trace.report(tmp_path / "page.html")

    assert len(computed) == 1
    analysed = trace.analysed
    assert matched(analysed.complete) is matched(analysed.attributed)
    assert matched(analysed.complete).of_work.equals(compute(analysed.complete).of_work)
