"""Chrome traces of torch.profiler, made by hand: what every kind of event becomes, in every dialect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import opspan
from builders import kineto
from opspan.analysis import analyse
from opspan.errors import NotATrace, StrictError, TooLarge
from opspan.trace import Trace
from readers.loading import codes, row


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    return opspan.load(kineto.write(tmp_path / "run.pt.trace.json"))


def load(tmp_path: Path, *events: Any, **members: Any) -> Trace:
    return opspan.load(kineto.write(tmp_path / "run.json", kineto.document(list(events), **members)))


def test_ops_have_seq_sizes_and_what_else_the_file_says(trace: Trace) -> None:
    op = row(trace.ranges, "aten::addmm")
    assert (op["start_ns"], op["end_ns"]) == (1_012_500, 1_052_500)
    assert (op["kind"], op["seq"], op["forward_tid"], op["tid"]) == ("op", 5, None, kineto.MAIN)
    assert op["sizes"] == "[[8, 4], [[2], [3]], []]"
    assert op["input_types"] == '["float", "TensorList", "Scalar"]'


def test_kinds(trace: Trace) -> None:
    kinds = dict(trace.ranges.select("name", "kind").iter_rows())
    assert kinds["ProfilerStep#7"] == "step"
    assert kinds["autograd::engine::evaluate_function: AddmmBackward0"] == "engine"
    assert kinds["AddmmBackward0"] == "backward"
    assert kinds["aten::mm"] == "op"


def test_a_forward_thread_that_is_said_makes_any_name_a_backward(tmp_path: Path) -> None:
    trace = load(tmp_path, kineto.op("MyOwnGradient", 1, 5, 1, 3, 1), kineto.op("my::op", 1, 1, 1, 3))
    assert trace.ranges["kind"].to_list() == ["backward", "op"]


def test_the_arrow_from_forward_to_backward_names_the_thread_and_is_a_relation(trace: Trace) -> None:
    ids = dict(trace.ranges.select("name", "id").iter_rows())
    assert trace.relations.select("range_id", "relation", "other_id").rows() == [
        (ids["AddmmBackward0"], "is_dependent_on", ids["aten::addmm"])
    ]
    assert row(trace.ranges, "AddmmBackward0")["forward_tid"] == kineto.MAIN
    ranges = analyse(trace).ranges
    assert ranges["name"].gather(row(ranges, "AddmmBackward0")["forward"]).to_list() == ["aten::addmm"]


def test_a_file_without_processes_has_the_same_links(trace: Trace, tmp_path: Path) -> None:
    events = [{key: value for key, value in event.items() if key != "pid"} for event in kineto.events()]
    alone = load(tmp_path, *events)
    linked = ("range_id", "relation", "other_id")
    assert alone.relations.select(linked).rows() == trace.relations.select(linked).rows() != []
    assert alone.ranges["forward_tid"].to_list() == trace.ranges["forward_tid"].to_list()
    assert alone.functions["parent_id"].to_list() == trace.functions["parent_id"].to_list() == [None, 0]


def test_calls_and_work_find_each_other(trace: Trace) -> None:
    analysed = analyse(trace)
    owners = analysed.work.select(pl.col("name"), analysed.ranges["name"].gather(analysed.work["range"]).alias("op"))
    assert owners.rows() == [("gemm", "aten::addmm"), ("gemm", "aten::mm"), ("Memcpy HtoD", "ProfilerStep#7")]


def test_kernels(trace: Trace) -> None:
    kernel = trace.work.row(0, named=True)
    assert kernel["full_name"] == "void ns::gemm<float, 4>(float*, int)"
    assert (kernel["pid"], kernel["device_id"], kernel["context_id"], kernel["stream_id"]) == (kineto.PID, 0, 1, 7)
    assert [kernel[f"{of}_{axis}"] for of in ("grid", "block") for axis in "xyz"] == [8, 2, 1, 256, 1, 1]
    assert kernel["registers"] == 26
    assert json.loads(kernel["payload_json"]) == {"shared memory": 0, "est. achieved occupancy %": 31}


def test_copies_say_from_where_to_where(trace: Trace) -> None:
    copy = row(trace.work, "Memcpy HtoD")
    assert (copy["kind"], copy["bytes"], copy["copy_from"], copy["copy_to"]) == ("memcpy", 4096, "pageable", "device")


def test_functions_of_python_are_the_stacks_and_modules_of_ops(trace: Trace) -> None:
    assert trace.functions.select("name", "parent_id").rows() == [
        ("train.py(3): step", None),
        ("nn.Module: Linear_0", 0),
    ]
    ranges = analyse(trace).ranges
    assert row(ranges, "aten::addmm")["module"] == "Linear_0"
    # A backward runs where no function does: it has its forward's.
    assert row(ranges, "aten::mm")["module"] == "Linear_0"
    (op,) = (event for event in trace.events() if event.name == "aten::addmm")
    assert op.stack == ["nn.Module: Linear_0", "train.py(3): step"]
    averages = trace.events().key_averages(group_by_stack_n=1)
    assert {tuple(event.stack) for event in averages if event.key == "aten::mm"} == {("nn.Module: Linear_0",)}
    assert "Source Location" in trace.events().table()


def test_functions_that_all_are_open_hold_what_runs_until_the_end(tmp_path: Path) -> None:
    function = kineto.span("python_function", "train.py(3): step", 1, 1, 1)
    del function["dur"]
    trace = load(tmp_path, function, kineto.op("aten::add", 1, 5, 1))
    assert trace.events()[0].stack == ["train.py(3): step"]


def test_memory(trace: Trace) -> None:
    (event,) = trace.memory.iter_rows(named=True)
    assert (event["event"], event["bytes"], event["total_bytes"], event["device_id"]) == ("free", 512, 512, 0)
    assert (event["address"], event["time_ns"]) == (140000, 1_020_000)
    assert trace.counters.select("name", "value").rows() == [("reserved bytes", 2097152.0)]


def test_names_devices_and_where_it_came_from(trace: Trace) -> None:
    assert dict(trace.threads.select("tid", "name").iter_rows()) == {kineto.MAIN: None, kineto.ENGINE: "pt_autograd_0"}
    assert trace.processes.select("pid", "name").rows() == [(kineto.PID, "python")]
    assert trace.devices.select("device_id", "name", "multiprocessors", "capability").rows() == [
        (0, "Some GPU", 132, "9.0")
    ]
    assert (trace.metadata.host, trace.origin_utc_ns) == ("node-3", kineto.BASE_NS)
    assert trace.metadata.options["distributedInfo"]["rank"] == 3


WINDOW = (
    {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "PyTorch Profiler", "ts": 1},
    {"ph": "i", "s": "g", "name": "Iteration Start: PyTorch Profiler", "pid": "Traces", "tid": "Trace", "ts": 1},
    {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 9},
)


def test_the_profilers_own_events_are_no_issue(tmp_path: Path) -> None:
    trace = load(tmp_path, *kineto.events(), *WINDOW)
    assert trace.ranges.height == 6
    assert trace.issues.is_empty()


def test_what_is_not_read_is_counted(tmp_path: Path) -> None:
    object_ = {"ph": "N", "name": "made", "id": 1, "pid": 1, "tid": 1, "ts": 1}
    lost = kineto.span("gpu_user_annotation", "of nobody", 7, 5, 1, 0)
    trace = load(tmp_path, kineto.op("aten::add", 1, 5, 1), object_, lost)
    messages = trace.issues.select("code", "count", "message").rows()
    assert [(code, count) for code, count, _ in messages] == [("skipped_events", 1), ("skipped_events", 1)]
    assert "phase N 1" in messages[0][2]
    assert "annotations of devices" in messages[1][2]


def test_marks_of_any_category_are_marks(tmp_path: Path) -> None:
    mark = {"ph": "i", "s": "t", "name": "Record Window End", "pid": 1, "tid": 1, "ts": 5, "args": {"loss": 2}}
    trace = load(tmp_path, mark, {**mark, "cat": "mine", "name": "here", "ph": "R"})
    assert trace.ranges.select("name", "is_mark", "category").rows() == [
        ("Record Window End", True, None),
        ("here", True, "mine"),
    ]
    assert trace.ranges["payload_json"].to_list() == ['{"loss": 2}'] * 2


def test_memory_without_a_category_is_memory(tmp_path: Path) -> None:
    args = {"Device Type": 0, "Device Id": -1, "Bytes": 4}
    event = {"ph": "i", "s": "t", "name": "[memory]", "pid": 1, "tid": 1, "ts": 5, "args": args}
    trace = load(tmp_path, event, {**event, "args": {**args, "Bytes": -4}})
    assert trace.memory.select("event", "bytes", "device_id").rows() == [("alloc", 4, None), ("free", 4, None)]
    assert trace.issues.is_empty()


def test_memory_is_of_a_device_unless_its_type_is_one_of_the_host(tmp_path: Path) -> None:
    # c10::DeviceType: CPU, CUDA, MKLDNN, IDEEP, HIP, XPU
    types = {0: None, 1: 3, 2: None, 5: None, 6: 3, 12: 3}
    event = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": 5}
    of_type = ({**event, "args": {"Device Type": kind, "Device Id": 3, "Bytes": 4}} for kind in types)
    assert load(tmp_path, *of_type).memory["device_id"].to_list() == list(types.values())


def test_an_event_without_a_category_is_no_annotation(tmp_path: Path) -> None:
    op = kineto.op("aten::mm", 1, 5, 1)
    del op["cat"]
    assert load(tmp_path, op).ranges.select("kind", "source").rows() == [("op", "torch")]


def test_load_kineto_lists_calls_and_functions_as_torch_does(tmp_path: Path) -> None:
    events = opspan.load_kineto(kineto.write(tmp_path / "run.json"))
    names = [event.name for event in events]
    assert names.count("cudaLaunchKernel") == 2
    assert "train.py(3): step" in names
    assert "ProfilerStep*" in names
    (copy,) = (event for event in events if event.name.startswith("Memcpy"))
    assert copy.name == "Memcpy HtoD (Pageable -> Device)"


@pytest.mark.parametrize("name", ["run.json", "run.json.gz", "no suffix"])
@pytest.mark.parametrize("indent", [None, 2])
def test_files_of_every_form_say_the_same(trace: Trace, tmp_path: Path, name: str, indent: int | None) -> None:
    other = opspan.load(kineto.write(tmp_path / name, indent=indent))
    for table, frame in trace.frames.items():
        if table != "issues":
            assert frame.equals(other.frames[table]), table


def test_a_bare_list_of_events_is_a_trace(tmp_path: Path) -> None:
    trace = opspan.load(kineto.write(tmp_path / "run.json", kineto.events()))
    assert trace.ranges.height == 6
    one = opspan.load(kineto.write(tmp_path / "one.json", [kineto.op("aten::mm", 1, 5, 1)]))
    assert one.ranges["name"].to_list() == ["aten::mm"]


def test_torch_1_8(tmp_path: Path) -> None:
    start = 1_606_911_006_996_392  # microseconds of UTC, without a base
    trace = load(
        tmp_path,
        kineto.span("Operator", "aten::add", "3340707648", start, 10, **{"Input dims": [[2], []], "External id": 3}),
        kineto.span("Runtime", "cudaLaunchKernel", "3340707648", start + 2, 3, **{"correlation": 5, "external id": 3}),
        kineto.span("Kernel", "void k()", "stream 7", start + 9, 4, 0, device=0, stream=7, correlation=5),
        kineto.span("Memset", "Memset (Device)", "stream 7", start + 20, 1, 0, device=0, stream=7, bytes=8),
        *kineto.arrow("async", 5, (kineto.PID, 3340707648, start + 2), (0, 7, start + 9)),
        baseTimeNanoseconds=None,
    )
    op = row(trace.ranges, "aten::add")
    assert (op["tid"], op["sizes"], op["start_ns"]) == (3340707648, "[[2], []]", start * 1000)
    assert trace.origin_utc_ns == 0
    assert trace.calls["api"].to_list() == ["cuda_runtime"]
    assert trace.work["kind"].to_list() == ["kernel", "memset"]
    assert analyse(trace).work["range"].to_list() == [0, None]
    assert trace.issues.is_empty()


def test_rocm_calls_are_hip(tmp_path: Path) -> None:
    assert load(tmp_path, kineto.call("hipLaunchKernel", 1, 5, 1, 7)).calls["api"].to_list() == ["hip"]


def test_xpu_devices_are_xpu(tmp_path: Path) -> None:
    call = kineto.span("xpu_runtime", "piEnqueueKernelLaunch", 1, 5, 1, correlation=7)
    trace = load(tmp_path, call, kineto.kernel("k", 8, 2, 7))
    assert trace.devices["kind"].unique().to_list() == ["xpu"]
    assert trace.calls["api"].to_list() == ["xpu_runtime"]


def test_times_past_what_a_double_holds_are_exact(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    event = '{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1712195495519689.047, "dur": 0.0635}'
    path.write_text('{"schemaVersion": 1, "traceEvents": [' + event + "]}")
    op = opspan.load(path).ranges.row(0, named=True)
    assert (op["start_ns"], op["end_ns"] - op["start_ns"]) == (1_712_195_495_519_689_047, 64)


def test_an_arrow_to_nowhere_is_counted(tmp_path: Path) -> None:
    trace = load(tmp_path, *kineto.arrow("fwdbwd", 1, (1, 1, 5.0), (1, 2, 6.0)))
    assert codes(trace) == {"dangling_relations": 1}


def test_counters(tmp_path: Path) -> None:
    event = {"ph": "C", "name": "gpu", "pid": 1, "tid": 1, "ts": 5, "args": {"busy": 0.5, "what": "x", "on": True}}
    assert load(tmp_path, event).counters.select("name", "value").rows() == [("gpu busy", 0.5)]


# --- what is broken


def cut(path: Path, keep: float) -> Path:
    text = path.read_bytes()
    path.write_bytes(text[: int(len(text) * keep)])
    return path


def test_a_file_that_ends_early_is_read_until_there(tmp_path: Path) -> None:
    trace = opspan.load(cut(kineto.write(tmp_path / "run.json"), 0.6))
    assert 0 < trace.ranges.height < 8
    assert codes(trace)["truncated_file"] == 1


def test_a_compressed_file_that_ends_early_is_read_until_there(tmp_path: Path) -> None:
    many = [kineto.op(f"aten::op{number}", 1, number, 0.5) for number in range(20_000)]
    path = kineto.write(tmp_path / "run.json.gz", kineto.document(many))
    trace = opspan.load(cut(path, 0.6))
    assert 5_000 < trace.ranges.height < 20_000
    assert codes(trace)["truncated_file"] == 1  # its contents end early as well, which is not counted again
    with pytest.raises(StrictError):
        opspan.load(path, strict=True)


def test_an_event_that_is_no_json_costs_itself_alone(tmp_path: Path) -> None:
    path = kineto.write(tmp_path / "run.json", kineto.document([kineto.op(f"aten::{n}", 1, n, 1) for n in range(9)]))
    path.write_text(path.read_text().replace('"aten::3"', "aten::3").replace('"ts": 6,', '"ts": ,'))
    trace = opspan.load(path)
    assert trace.ranges["name"].to_list() == [f"aten::{n}" for n in range(9) if n not in (3, 6)]
    assert codes(trace) == {"damaged_file": 2}


def test_args_that_are_no_json_cost_themselves_alone(tmp_path: Path) -> None:
    path = kineto.write(tmp_path / "run.json", kineto.document([kineto.op(f"aten::{n}", 1, n, 1, 9) for n in range(3)]))
    text = path.read_text()
    at = text.index('"Ev Idx"', text.index("aten::1"))
    path.write_text(text[:at] + '"key": ["a "quoted" text"], ' + text[at:])
    trace = opspan.load(path)
    assert trace.ranges.select("name", "seq").rows() == [("aten::0", 9), ("aten::1", 9), ("aten::2", 9)]
    assert codes(trace) == {"damaged_file": 1}


def test_odd_values_are_null_and_counted(tmp_path: Path) -> None:
    odd = {**kineto.op("aten::add", 1, 5, 1), "ts": "soon"}
    sizes = kineto.op("aten::mul", 1, 7, 1, **{"Input Dims": {"a": 1}})
    seq = kineto.op("aten::sub", 1, 9, 1, **{"Sequence number": [3]})
    trace = load(tmp_path, odd, sizes, seq)
    assert trace.ranges["name"].to_list() == ["aten::mul", "aten::sub"]
    assert codes(trace) == {"odd_cells": 2, "no_time": 1}
    assert trace.events().key_averages(group_by_input_shapes=True).table()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "an empty file"),
        (b"{", "a JSON file"),
        (b'{"traceEvents": []}', "a Chrome trace without an event of torch.profiler"),
        (b"[1, 2, 3]", "a JSON file"),
        (b'{"a": 1}', "a JSON file"),
        (b"\x1f\x8b\x08 not gzip", "a gzip file"),
    ],
)
def test_what_is_no_trace(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(content)
    with pytest.raises(NotATrace, match=message):
        opspan.load(path)


def test_asked_for_by_name_a_file_without_events_says_so(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text('{"a": 1}')
    with pytest.raises(NotATrace, match="has no traceEvents"):
        opspan.load_kineto(path)


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSPAN_BUDGET", "0.01")
    path = kineto.write(tmp_path / "run.json.gz", kineto.document([], padding=" " * (8 << 20)))
    with pytest.raises(TooLarge, match="more bytes come out of it"):
        opspan.load(path)


def test_brackets_without_end_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text('{"schemaVersion": 1, "traceEvents": [{"ph": "X", "ts": 1, "name": "a", "args": ' + "[" * 200_000)
    trace = opspan.load(path)
    assert codes(trace)["damaged_file"] == 1
