"""The MFU of runs whose truth is known: a host that is far ahead of its device, work between steps, several streams."""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import opspan
from builders import kineto
from opspan.analysis import model_use

MM = {"Input Dims": [[1000, 2000], [2000, 3000]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}
IDEAL_US = 2 * 1000 * 2000 * 3000 / 989.4e12 * 1e6  # on an H100
QUEUE = 1000  # launches that a driver takes before it makes the host wait
LAUNCH_US, PRODUCT_US, OTHER_US, BETWEEN_US = 5.0, 20.0, 30.0, 1.0
COMPUTE, SIDE = 7, 20


class Program:
    """A host that launches kernels, and the streams of a device that work them off one after the other."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.events: list[Any] = []
        self.work: list[tuple[float, float]] = []
        self.free: dict[int, float] = defaultdict(float)

    def launch(self, name: str, took: float, stream: int = COMPUTE, **args: Any) -> None:
        begun, number = self.now, len(self.work) + 1
        queued = self.work[-QUEUE][0] if len(self.work) >= QUEUE else 0.0
        self.now = max(begun + LAUNCH_US, queued)
        start = max(self.now, self.free[stream] + BETWEEN_US)
        self.free[stream] = start + took
        self.work.append((start, start + took))
        kernel = kineto.kernel("nvjet" if args else "add", start, took, number)
        self.events += [
            kineto.op(name, kineto.MAIN, begun, self.now - begun, **args),
            kineto.call("cudaLaunchKernel", kineto.MAIN, begun + 1, self.now - begun - 2, number),
            {**kernel, "args": {**kernel["args"], "stream": stream}},
        ]

    def products(self, count: int) -> None:
        for _ in range(count):
            self.launch("aten::mm", PRODUCT_US, **MM)
            self.launch("aten::gelu", OTHER_US)

    def wait(self) -> None:
        """As `cudaDeviceSynchronize` does."""
        self.now = max(self.now, *(end for _, end in self.work))

    def step(self, number: int, products: int = 50) -> None:
        begun = self.now
        self.products(products)
        self.end_step(number, begun)

    def end_step(self, number: int, begun: float) -> None:
        self.events.append(
            kineto.span("user_annotation", f"ProfilerStep#{number}", kineto.MAIN, begun, self.now - begun)
        )

    def worked_us(self, first: int = 0, last: int | None = None) -> float:
        """From the first of these pieces of work to the last."""
        part = self.work[first:last]
        return max(end for _, end in part) - min(start for start, _ in part)

    def load(self, folder: Path, **options: Any) -> opspan.Trace:
        properties = [{**kineto.HEAD["deviceProperties"][0], "name": "NVIDIA H100 80GB HBM3"}]
        path = kineto.write(folder / "run.json", kineto.document(self.events, deviceProperties=properties))
        return opspan.load(path, **options)


@pytest.fixture
def ahead() -> Program:
    """12 steps of 100 launches, whose host is ten of them ahead."""
    program = Program()
    for number in range(12):
        program.step(number)
    return program


def test_a_host_that_is_ahead_of_its_device_does_not_shorten_its_steps(ahead: Program, tmp_path: Path) -> None:
    trace = ahead.load(tmp_path)
    worked = ahead.worked_us()
    run, steps = trace.flops("run").row(0, named=True), trace.flops("step")
    assert trace.analysed.iterations.select((pl.col("end_ns") - pl.col("start_ns")).sum()).item() < 400 * worked
    assert run["wall_ns"] == pytest.approx(1000 * worked)
    assert run["mfu"] == pytest.approx(600 * IDEAL_US / worked)
    assert steps["wall_ns"].sum() == run["wall_ns"]
    assert steps["mfu"].to_list() == pytest.approx([run["mfu"]] * 12, rel=0.01)


def test_a_step_that_is_read_alone_has_the_same_share(ahead: Program, tmp_path: Path) -> None:
    """Its part of the file has work of steps before it, too, which was launched before the part began."""
    whole = ahead.load(tmp_path).flops("step")
    alone = ahead.load(tmp_path, step=5).flops("step").row(0, named=True)
    assert alone["mfu"] == pytest.approx(whole["mfu"][5], rel=0.01)


def test_idle_time_between_steps_counts(tmp_path: Path) -> None:
    program = Program()
    for number in range(4):
        begun = program.now
        program.now += 1000  # loads data
        program.products(10)
        program.wait()
        program.now += 500  # writes to a log
        program.end_step(number, begun)
    trace = program.load(tmp_path)
    run, steps = trace.flops("run").row(0, named=True), trace.flops("step")
    assert run["mfu"] == pytest.approx(40 * IDEAL_US / program.worked_us())
    assert steps["wall_ns"].sum() == run["wall_ns"] == pytest.approx(1000 * program.worked_us())
    assert steps["mfu"][2] == pytest.approx(steps["mfu"][1])
    assert steps["mfu"][3] > steps["mfu"][2]  # nothing follows on the last


def test_what_runs_between_steps_for_others_does_not_count(tmp_path: Path) -> None:
    program = Program()
    for number in range(2):
        program.step(number)
    for _ in range(200):
        program.launch("aten::mm", PRODUCT_US, **MM)  # an evaluation
    for number in range(2, 4):
        program.step(number)
    trace = program.load(tmp_path)
    run, steps = trace.flops("run").row(0, named=True), trace.flops("step")
    worked = program.worked_us(0, 200) + program.worked_us(400, 600)
    assert run["mfu"] == pytest.approx(200 * IDEAL_US / worked, rel=0.01)
    assert steps["mfu"].to_list() == pytest.approx([run["mfu"]] * 4, rel=0.01)


def test_a_side_stream_that_is_late_takes_no_time_from_the_next_step(tmp_path: Path) -> None:
    """The next step's own work runs beside it, so it cannot be that the step had no time."""
    program = Program()
    for number in range(4):
        begun = program.now
        program.products(10)
        program.launch("aten::copy_", 700.0, SIDE)
        program.end_step(number, begun)
    trace = program.load(tmp_path)
    run, steps = trace.flops("run").row(0, named=True), trace.flops("step")
    assert run["mfu"] == pytest.approx(40 * IDEAL_US / program.worked_us())
    own = program.worked_us(21, 41)
    assert steps["mfu"][1] <= 10 * IDEAL_US / own
    assert steps["wall_ns"].sum() > run["wall_ns"]  # two steps at a time, which the run counts once


def test_without_steps_it_is_the_time_from_first_to_last_work(tmp_path: Path) -> None:
    program = Program()
    program.events.append(kineto.op("aten::empty", kineto.MAIN, program.now, 5000))
    program.now += 5000
    program.products(10)
    run = program.load(tmp_path).flops("run").row(0, named=True)
    assert run["mfu"] == pytest.approx(10 * IDEAL_US / program.worked_us())


def test_steps_of_two_threads_count_their_common_time_once(tmp_path: Path) -> None:
    """And a product that lies in both of them once, too."""
    program = Program()
    begun = program.now
    program.products(10)
    took = program.now - begun
    for tid in (kineto.MAIN, kineto.ENGINE):
        program.events.append(kineto.span("user_annotation", f"ProfilerStep#{tid}", tid, begun, took))
    run = program.load(tmp_path).flops("run").row(0, named=True)
    assert run["mfu"] == pytest.approx(10 * IDEAL_US / program.worked_us())


def test_steps_of_a_recorded_file_are_as_long_as_their_work_took(traces_dir: Path) -> None:
    """Its host is 80 ms ahead. The times are those of the JSON: of what each step launched, by correlation."""
    path = traces_dir / "kineto" / "ns_resolution.pt.trace.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    events = [event for event in events if event.get("ph") == "X"]
    steps = [event for event in events if re.match(r"ProfilerStep#\d+$", event["name"]) and event["tid"] == 1102]
    called = {
        event["args"]["correlation"]: event["ts"]
        for event in events
        if event["cat"] in ("cuda_runtime", "cuda_driver") and "correlation" in event["args"]
    }
    work = [event for event in events if event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")]
    ends: dict[str, tuple[float, float]] = {}
    for step in steps:
        own = [one for one in work if 0 <= called[one["args"]["correlation"]] - step["ts"] < step["dur"]]
        ends[step["name"]] = min(one["ts"] for one in own), max(one["ts"] + one["dur"] for one in own)

    trace = opspan.load(path).analysed
    spans = model_use.spans_of(trace.attributed, trace.iterations)
    unowned = pl.Series([None], dtype=pl.UInt32).new_from_index(0, trace.attributed.ranges.height)
    found = model_use.on_devices(trace.attributed, spans, unowned)

    last = [ends[name][1] for name in found["step"]]
    assert len(last) == 5
    first = [ends[found["step"][0]][0], *last[:-1]]  # each goes on where the one before ended
    lasted = (found["end_ns"] - found["start_ns"]).to_list()
    assert lasted == pytest.approx([1000 * (end - begin) for begin, end in zip(first, last, strict=True)], abs=1000)
    assert sum(lasted) > 1.2 * (spans["end_ns"] - spans["start_ns"]).sum()
