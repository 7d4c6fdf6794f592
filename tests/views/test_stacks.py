"""Stacks against a twin that walks up the tree of every range, and what flame graphs are made of them."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

import opspan
from opspan.analysis import attribute
from opspan.tables import Metadata
from opspan.trace import Trace
from views.sources import capture, nsys


def twin(trace: Trace, of_kernels: bool) -> Counter[str]:
    trace = attribute(trace)
    rows = trace.ranges.to_dicts()
    names = {(one["rank"], one["pid"], one["tid"]): one["name"] for one in trace.threads.to_dicts()}
    processes = {(one["rank"], one["pid"]): one["name"] for one in trace.processes.to_dicts()}
    found: Counter[str] = Counter()
    leaves = [(row, row, row["self_ns"]) for row in rows if not row["is_mark"] and not row["is_async"]]
    if of_kernels:
        leaves = []
        for work in trace.work.to_dicts():
            if work["kind"] == "sync" or work["is_overhead"]:
                continue
            owner = None if work["range"] is None else rows[work["range"]]
            while owner is not None and owner["is_async"]:
                owner = None if owner["parent"] is None else rows[owner["parent"]]
            place = owner or {
                "rank": work["rank"],
                "pid": work["pid"],
                "tid": None,
                "name": "(in no range)",
                "parent": None,
            }
            leaves.append((place, work, work["end_ns"] - work["start_ns"]))
    for row, leaf, weight in leaves:
        if not weight:
            continue
        frames, at = [leaf["name"]] if of_kernels else [], row
        while at is not None:
            frames.append(at["name"] or "(no name)")
            at = rows[at["parent"]] if at["parent"] is not None else None
        thread = names.get((row["rank"], row["pid"], row["tid"]))
        process = processes.get((row["rank"], row["pid"])) or "process"
        number = "of unknown number" if row["tid"] is None else row["tid"]
        frames += [f"thread {number}" + (f" {thread}" if thread else ""), f"{process} {row['pid']}"]
        # Only what Python calls printable stays; a semicolon would be another frame.
        safe = ("".join("_" if char == ";" or not char.isprintable() else char for char in frame) for frame in frames)
        found[";".join(reversed(list(safe)))] += weight
    return found


def read(path: Path) -> Counter[str]:
    lines = [line.rpartition(" ") for line in path.read_text().splitlines()]
    assert len({stack for stack, _, _ in lines}) == len(lines), "a stack stands there twice"
    return Counter({stack: int(count) for stack, _, count in lines})


@pytest.mark.parametrize("make", [nsys, capture])
def test_made_traces(make, tmp_path: Path) -> None:
    trace = opspan.load(make(tmp_path / "source"))
    trace.export(tmp_path / "out.stacks")
    assert read(tmp_path / "out.stacks") == twin(trace, of_kernels=False)
    trace.export(tmp_path / "out.device.stacks")
    assert read(tmp_path / "out.device.stacks") == twin(trace, of_kernels=True)


@pytest.mark.parametrize("name", ["nsys/dlprof_2022.sqlite", "nsys/torch_lm_2025.sqlite", "nvprof/lm_emit_nvtx.sql"])
def test_real_traces(name: str, traces_dir: Path, tmp_path: Path) -> None:
    trace = opspan.load(traces_dir / name)
    trace.export(tmp_path / "out.stacks")
    assert read(tmp_path / "out.stacks") == twin(trace, of_kernels=False)
    trace.export(tmp_path / "out.device.stacks")
    assert read(tmp_path / "out.device.stacks") == twin(trace, of_kernels=True)


# --- Python's functions

SPANS = ["name", "start_ns", "end_ns"]


def made(functions: list[tuple], ranges: list[tuple], work: list[tuple] = ()) -> Trace:
    place = {"rank": 0, "pid": 1, "tid": 1}

    def frame(rows: list[tuple], columns: list[str], **more: object) -> pl.DataFrame:
        values = {name: pl.lit(value) for name, value in (place | more).items()}
        rows = pl.DataFrame(rows, schema=columns, orient="row")
        return rows.with_columns(**values).with_row_index("id")

    kernels = frame(work, [*SPANS, "named_range_id"], kind="kernel").drop("tid") if work else None
    return Trace(
        (Metadata("test"),),
        ranges=frame(ranges, SPANS, kind="op"),
        functions=frame(functions, SPANS),
        **({} if kernels is None else {"work": kernels}),
    )


FUNCTIONS = [("main", 0, 100), ("step", 10, 60), ("__enter__", 10, 14), ("inner", 11, 13), ("open", 90, None)]
RANGES = [("annotated", 12, 50), ("aten::mm", 20, 30)]


def test_functions_stand_around_ranges_and_the_sum_is_the_time_there_was(tmp_path: Path) -> None:
    made(FUNCTIONS, RANGES).export(tmp_path / "out.stacks")

    root = "process 1;thread 1"
    assert read(tmp_path / "out.stacks") == {
        f"{root};main": 100 - 50 - 10,
        f"{root};main;step": 50 - 2 - 38,
        f"{root};main;step;__enter__": 1,  # ends, here, where the range begins that it opened
        f"{root};main;step;__enter__;inner": 1,
        f"{root};main;step;annotated": 38 - 10,
        f"{root};main;step;annotated;aten::mm": 10,
        f"{root};main;open": 10,
    }


def test_kernels_stand_below_functions_and_ranges(tmp_path: Path) -> None:
    work = [("gemm", 40, 47, 1), ("gemm", 50, 57, 1), ("lone", 60, 63, None)]
    made(FUNCTIONS, RANGES, work).export(tmp_path / "out.device.stacks")

    assert read(tmp_path / "out.device.stacks") == {
        "process 1;thread 1;main;step;annotated;aten::mm;gemm": 14,
        "process 1;thread of unknown number;(in no range);lone": 3,
    }


def covered(trace: Trace) -> int:
    """How long anything was open on each thread, added up."""
    spans: dict[tuple, list[tuple[int, int]]] = {}
    for frame in (trace.functions, trace.ranges.filter(~pl.col("is_mark").fill_null(value=False))):
        for row in frame.select("rank", "pid", "tid", "start_ns", "end_ns").iter_rows():
            spans.setdefault(row[:3], []).append(row[3:])
    total = 0
    for some in spans.values():
        until = -(2**63)
        for start, end in sorted(some):
            total += max(0, end - max(start, until))
            until = max(until, end)
    return total


@pytest.mark.parametrize("name", ["b200_eager", "mi300_ddp_resnet18", "norm_layers", "vllm_graph_execution"])
def test_all_the_time_that_was_recorded_is_in_the_graph(name: str, traces_dir: Path, tmp_path: Path) -> None:
    trace = opspan.load(traces_dir / "kineto" / f"{name}.json.gz")
    said = trace.export(tmp_path / "out.stacks")
    stacks = read(tmp_path / "out.stacks")

    assert stacks.total() == pytest.approx(covered(trace), rel=1e-6)
    assert any(".py(" in stack and "aten::" in stack for stack in stacks)
    assert not any("with_stack" in sentence for sentence in said)
    # flamegraph.pl and speedscope accept lines of this form.
    assert all(re.fullmatch(r"[^;]+(;[^;]+)* \d+", line) for line in (tmp_path / "out.stacks").read_text().splitlines())

    trace.export(tmp_path / "out.device.stacks")
    busy = trace.work.filter(pl.col("kind").is_in(["kernel", "memcpy", "memset", "graph"]))
    assert read(tmp_path / "out.device.stacks").total() == (busy["end_ns"] - busy["start_ns"]).sum()


def test_what_is_missing_is_said_with_the_command_that_records_it(tmp_path: Path) -> None:
    without_functions = opspan.load(nsys(tmp_path / "a.sqlite")).export(tmp_path / "a.stacks")
    without_kernels = opspan.load(capture(tmp_path / "b.opspan")).export(tmp_path / "b.device.stacks")
    without_ranges = Trace((Metadata("test"),)).export(tmp_path / "c.stacks")

    assert any("torch.profiler.profile(with_stack=True)" in sentence for sentence in without_functions)
    assert "nsys profile -t cuda,nvtx" in without_kernels[0]
    assert "opspan run --emit nvtx" in without_ranges[0]
    assert not (tmp_path / "c.stacks").read_text()


class TestEventList:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("metric", "attribute"), [("cpu", "self_cpu_time_total"), ("cuda", "self_device_time_total")]
    )
    def test_of_torchs_own_list_each_event_stands_below_those_around_it(
        self, metric: str, attribute: str, traces_dir: Path, tmp_path: Path
    ) -> None:
        events = opspan.load_kineto(traces_dir / "kineto" / "norm_layers.json.gz")
        expected: Counter[str] = Counter()
        for event in events:
            if str(event.device_type) != "DeviceType.CPU":
                continue
            frames, at = [], event
            while at is not None:
                frames.append("".join("_" if char == ";" or not char.isprintable() else char for char in at.name))
                at = at.cpu_parent
            expected[";".join(reversed(frames))] += getattr(event, attribute).ns
        expected = Counter({stack: ns // 1000 for stack, ns in expected.items() if ns >= 1000})

        events.export_stacks(tmp_path / "out", f"self_{metric}_time_total")

        assert read(tmp_path / "out") == expected
        assert any(".py(" in stack and "aten::" in stack for stack in expected)

    def test_a_list_without_functions_has_its_ops(self, tmp_path: Path) -> None:
        events = opspan.load(nsys(tmp_path / "run.sqlite", scale=1000)).events()
        events.export_stacks(tmp_path / "out", "self_cpu_time_total")
        assert read(tmp_path / "out")["ProfilerStep*;aten::linear;aten::addmm"] == 801

    def test_an_empty_file_is_warned_about(self, tmp_path: Path) -> None:
        events = opspan.load(capture(tmp_path / "1.opspan")).events()
        with pytest.warns(
            UserWarning, match=r"out is empty: no event has self_cuda_time_total; .*nsys profile -t cuda,nvtx"
        ):
            events.export_stacks(tmp_path / "out", "self_cuda_time_total")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            events.export_stacks(tmp_path / "out", "self_cpu_time_total")
        assert (tmp_path / "out").read_text()
