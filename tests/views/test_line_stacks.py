"""Compiled kernels below their lines in stacks and flame graphs: by hand, and runs at random against the table by line,
the file's own kernels, and the stacks without the compiler's log."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import opspan
from builders import compile_log as log
from builders import kineto
from opspan.analysis.call_tree import call_tree
from opspan.trace import Trace
from opspan.views.merged_stacks import stack_tree

CALL = "## Call CompiledFxGraph None ##"
ROOT = "process 1;thread 1 main"
ADD, MUL = "triton_poi_fused_add_0", "triton_poi_fused_mul_1"
BLOCK, HEAD, LINEAR = ("src/model.py", 3, "block"), ("src/model.py", 9, "head"), ("torch/nn/linear.py", 7, "forward")
FRAMES = {place: f"{place[0]}({place[1]}): {place[2]}" for place in (BLOCK, HEAD, LINEAR)}


def load(folder: Path, events: list[Any], stacks: dict[str, list[str]], *, is_compiled: bool = True) -> Trace:
    path = log.write(folder / "dedicated_log_torch_trace_a.log", log.stacks(stacks))
    file = kineto.write(folder / "trace.json", kineto.document(events))
    return opspan.load(file, compiled=path if is_compiled else None)


def stacks_of(trace: Trace, path: Path) -> Counter[str]:
    trace.export(path, overwrite=True)
    lines = [line.rpartition(" ") for line in path.read_text().splitlines()]
    assert len({stack for stack, _, _ in lines}) == len(lines)
    return Counter({stack.split(";", 2)[2]: int(weight) for stack, _, weight in lines})


def launch(name: str, at: float, ns: int, number: int) -> list[Any]:
    return [
        kineto.call("cudaLaunchKernel", kineto.MAIN, at, 1, number),
        kineto.kernel(name, 1_000 + 100 * number, ns / 1000, number),
    ]


def function(name: str, at: float, length: float, number: int, parent: int | None) -> Any:
    ids = {"Python id": number, "Python parent id": parent}
    return kineto.span("python_function", name, kineto.MAIN, at, length, **ids)


def test_a_fused_kernel_is_below_each_of_its_lines(tmp_path: Path) -> None:
    events = [kineto.op(CALL, kineto.MAIN, 0, 100), *launch(ADD, 10, 2_001, 1), *launch("memset", 20, 10, 2)]
    trace = load(tmp_path, events, {f"{ADD}:1": [log.stack(BLOCK), log.stack(HEAD, BLOCK), log.stack(HEAD)]})

    assert stacks_of(trace, tmp_path / "out.device.stacks") == {
        f"{CALL};{FRAMES[BLOCK]};{ADD}": 501,  # one of two lines, and one of its two stacks
        f"{CALL};{FRAMES[HEAD]};{FRAMES[BLOCK]};{ADD}": 500,
        f"{CALL};{FRAMES[HEAD]};{ADD}": 1_000,
        f"{CALL};memset": 10,
    }


def test_frames_of_torch_are_below_the_line(tmp_path: Path) -> None:
    events = [kineto.op(CALL, kineto.MAIN, 0, 100), *launch(ADD, 10, 7, 1)]
    trace = load(tmp_path, events, {f"{ADD}:1": [log.stack(BLOCK, LINEAR)]})

    assert stacks_of(trace, tmp_path / "out.device.stacks") == {f"{CALL};{FRAMES[BLOCK]};{FRAMES[LINEAR]};{ADD}": 7}


def test_the_op_of_a_library_s_kernel_is_below_its_line_with_all_that_is_in_it(tmp_path: Path) -> None:
    events = [
        kineto.op(CALL, kineto.MAIN, 0, 100),
        kineto.op("aten::mm", kineto.MAIN, 10, 50),
        kineto.op("aten::resize_", kineto.MAIN, 20, 10),
        *launch("gemm", 40, 11, 1),
    ]
    trace = load(tmp_path, events, {"extern_kernels.mm:1": [log.stack(BLOCK)]})

    line = f"{CALL};{FRAMES[BLOCK]};aten::mm"
    assert stacks_of(trace, tmp_path / "out.device.stacks") == {f"{line};gemm": 11}
    assert stacks_of(trace, tmp_path / "out.stacks") == {
        CALL: 50_000,
        line: 40_000,
        f"{line};aten::resize_": 10_000,
    }


def test_functions_around_and_in_a_kernel_s_op_stay_around_and_in_it(tmp_path: Path) -> None:
    events = [
        kineto.op(CALL, kineto.MAIN, 0, 100),
        function("code.py(1): call", 5, 90, 1, None),
        kineto.op("aten::mm", kineto.MAIN, 10, 50),
        function("hook.py(2): hook", 20, 30, 2, 1),
        *launch("gemm", 40, 11, 1),
    ]
    trace = load(tmp_path, events, {"extern_kernels.mm:1": [log.stack(BLOCK)]})

    line = f"{CALL};code.py(1): call;{FRAMES[BLOCK]};aten::mm"
    assert stacks_of(trace, tmp_path / "out.device.stacks") == {f"{line};gemm": 11}
    assert stacks_of(trace, tmp_path / "out.stacks") == {
        CALL: 10_000,
        f"{CALL};code.py(1): call": 40_000,
        line: 20_000,
        f"{line};hook.py(2): hook": 30_000,
    }


def test_an_uncertain_kernel_stays_where_it_is(tmp_path: Path) -> None:
    events = [kineto.op(CALL, kineto.MAIN, 0, 100), *launch(ADD, 10, 7, 1)]
    trace = load(tmp_path, events, {f"{ADD}:1": [log.stack(BLOCK)], f"{ADD}:2": [log.stack(HEAD)]})

    assert stacks_of(trace, tmp_path / "out.device.stacks") == {f"{CALL};{ADD}": 7}


def test_a_kernel_with_a_thousand_stacks_and_more_stays_where_it_is(tmp_path: Path) -> None:
    events = [kineto.op(CALL, kineto.MAIN, 0, 100), *launch(ADD, 10, 7, 1)]
    trace = load(tmp_path, events, {f"{ADD}:1": [log.stack(("src/a.py", line, "f")) for line in range(1, 1_002)]})

    assert stacks_of(trace, tmp_path / "out.device.stacks") == {f"{CALL};{ADD}": 7}


def test_kernels_without_a_call_around_them_stay_on_their_threads(tmp_path: Path) -> None:
    events = [kineto.op(ADD, kineto.MAIN, 0, 3), kineto.op(ADD, kineto.ENGINE, 0, 5)]
    trace = load(tmp_path, events, {f"{ADD}:1": [log.stack(BLOCK), log.stack(HEAD)]})

    trace.export(tmp_path / "out.stacks")
    by_thread = Counter[str]()
    for line in (tmp_path / "out.stacks").read_text().splitlines():
        stack, _, weight = line.rpartition(" ")
        by_thread[stack.split(";")[1]] += int(weight)
    assert sorted(by_thread.values()) == [3_000, 5_000]


def by_leaf(stacks: Counter[str]) -> Counter[str]:
    leaves = Counter[str]()
    for stack, weight in stacks.items():
        leaves[stack.rpartition(";")[2]] += weight
    return leaves


class Run:
    """A run at random: calls of a graph with kernels, ops of libraries, and ranges around and inside them. If it is
    odd, kernels also run in ops that are made from other lines."""

    def __init__(self, seed: int, *, is_odd: bool) -> None:
        self.random = random.Random(seed)
        self.is_odd = is_odd
        self.events: list[Any] = []
        self.number = 0
        places = [("src/a.py", 1, "f"), ("src/a.py", 2, "f"), ("src/b.py", 1, "g"), LINEAR]
        some = [self.random.choices(places, k=self.random.randint(1, 3)) for _ in range(6)]
        texts = [log.stack(("src/main.py", 5, "main"), *frames) for frames in some]
        self.stacks = {}
        for order, name in enumerate((ADD, MUL, "extern_kernels.mm", "cpp_fused_add_2"), 1):
            self.stacks[f"{name}:{order}"] = self.random.sample(texts, self.random.randint(0, 4))
        now = 0.0
        for _ in range(self.random.randint(1, 8)):
            self.call(now)
            now += 1_000

    def call(self, at: float) -> None:
        self.events.append(kineto.op(self.random.choice((CALL, "aten::relu")), kineto.MAIN, at, 990))
        for place in range(self.random.randint(1, 8)):
            begin = at + 5 + place * 100
            name = self.random.choice((None, "aten::mm", "aten::add", ADD, "cpp_fused_add_2"))
            if name:
                self.events.append(kineto.op(name, kineto.MAIN, begin, 90))
                if self.random.random() < 0.5:
                    self.events.append(kineto.op("aten::empty", kineto.MAIN, begin + 20, 33.333))
            self.number += 1
            own = (ADD, MUL, "gemm") if self.is_odd or name in (None, "aten::add") else ("gemm", name)
            kernel = self.random.choice(own)
            self.events += launch(kernel, begin + 30, self.random.randint(1, 50_000), self.number)


@pytest.mark.parametrize("is_odd", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_runs_at_random(seed: int, is_odd: bool, tmp_path: Path) -> None:
    run = Run(seed, is_odd=is_odd)
    trace, plain = (load(tmp_path, run.events, run.stacks, is_compiled=compiled) for compiled in (True, False))

    table = trace.table("line").rows
    for name, column in (("out.stacks", "self_cpu_ns"), ("out.device.stacks", "self_device_ns")):
        stacks = stacks_of(trace, tmp_path / name)
        lines, bare = Counter[str](), Counter[str]()
        for stack, weight in stacks.items():
            frames = stack.split(";")
            added = [frame for frame in frames if frame.startswith(("src/", "torch/"))]
            own = [frame for frame in added if frame.startswith("src/")]
            if own:
                file, _, function = own[-1].removeprefix("src/").partition(": ")
                lines[f"{file.replace('(', ':').strip(')')} {function}"] += weight
            bare[";".join(frame for frame in frames if frame not in added)] += weight
        known = {line: ns for line, ns in table.select("line", column).rows() if not line.startswith("(") and ns}
        assert lines == known
        of_plain = stacks_of(plain, tmp_path / name)
        assert by_leaf(bare) == by_leaf(of_plain)
        assert bare == of_plain or is_odd
        of_kernels = sum(event["dur"] for event in run.events if event.get("cat") == "kernel")
        if "device" in name:
            assert stacks.total() == round(of_kernels * 1000)
    for column in ("cpu_ns", "device_ns"):
        assert call_tree(trace.analysed.complete)[column].sum() == call_tree(plain.analysed.complete)[column].sum()
    merged = stack_tree(trace.analysed.attributed).stacks
    assert merged["device_ns"].sum() == table["self_device_ns"].sum()


def test_the_pages_flame_graph_has_the_lines(tmp_path: Path) -> None:
    events = [kineto.op(CALL, kineto.MAIN, 0, 100), *launch(ADD, 10, 2_001, 1), *launch("memset", 20, 10, 2)]
    trace = load(tmp_path, events, {f"{ADD}:1": [log.stack(BLOCK), log.stack(HEAD)]})

    nodes = call_tree(trace.analysed.complete)
    below = [(nodes["name"][row["parent"]], row["device_ns"]) for row in nodes.filter(name=ADD).to_dicts()]
    assert below == [(FRAMES[BLOCK], 1_001), (FRAMES[HEAD], 1_000)]
    assert nodes.filter(name=CALL)["device_ns"].item() == 10


def test_a_flame_graph_shows_lines_as_functions(tmp_path: Path) -> None:
    events = [kineto.op(CALL, kineto.MAIN, 0, 100), *launch(ADD, 10, 2_001, 1)]
    load(tmp_path, events, {f"{ADD}:1": [log.stack(BLOCK)]}).export(tmp_path / "out.svg")

    assert FRAMES[BLOCK] in (tmp_path / "out.svg").read_text()


def test_no_note_says_that_functions_are_missing(tmp_path: Path) -> None:
    events = [kineto.op(CALL, kineto.MAIN, 0, 100), *launch(ADD, 10, 2_001, 1)]
    trace = load(tmp_path, events, {f"{ADD}:1": [log.stack(BLOCK)]})

    assert not stack_tree(trace.analysed.attributed).left_out
