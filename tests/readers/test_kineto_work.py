"""Work in Chrome traces of torch.profiler: devices of every kind, whose process it is, and whose op without a call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import opspan
from builders import kineto
from opspan.analysis import analyse
from opspan.analysis.merge import merge
from opspan.trace import Trace
from readers.loading import codes


def load(tmp_path: Path, *events: Any) -> Trace:
    return opspan.load(kineto.write(tmp_path / "run.json", kineto.document(list(events))))


def labelled(pid: int, label: str) -> dict[str, Any]:
    return {"ph": "M", "name": "process_labels", "pid": pid, "tid": 0, "args": {"labels": label}}


def test_new_categories_are_calls_and_work_as_their_args_say_and_ranges_else(tmp_path: Path) -> None:
    trace = load(
        tmp_path,
        kineto.span("npu_api", "launch", 1, 5, 1, correlation=7),
        kineto.span("npu_task", "task", 1, 8, 1, 3, correlation=7, stream=2),
        kineto.span("npu_task", "alone", 1, 9, 1, 3, stream=2),
        kineto.span("npu_task", "on its device", 1, 9, 1, 3, device=3, correlation=7),
        kineto.span("npu_task", "in its process", 1, 9, 1, 3),
        kineto.span("npu_else", "something", 1, 8, 1, device=3, note="x"),
        labelled(kineto.PID, "CPU"),
        labelled(3, "NPU 3"),
    )
    assert trace.calls["name"].to_list() == ["launch"]
    assert trace.work["name"].to_list() == ["task", "alone", "on its device", "in its process"]
    assert trace.work["device_id"].unique().to_list() == [3]
    assert trace.work["pid"].unique().to_list() == [kineto.PID]
    assert trace.devices["kind"].unique().to_list() == ["npu"]
    (range_,) = trace.ranges.iter_rows(named=True)
    assert (range_["name"], range_["category"]) == ("something", "npu_else")
    assert json.loads(range_["payload_json"]) == {"device": 3, "note": "x"}
    assert trace.work["kind"].unique().to_list() == ["other"]
    assert codes(trace) == {"unknown_categories": 1, "unknown_work": 4}


def test_what_nobody_knows_on_the_track_of_a_device_takes_no_time_of_it(tmp_path: Path) -> None:
    trace = load(
        tmp_path,
        kineto.kernel("gemm", 10, 5, 1),
        kineto.span("some_metrics", "dma utilisation", 7, 10, 500, 0, device=0, stream=7, correlation=2),
        {"ph": "X", "name": "void kernel<float>()", "pid": 0, "tid": 7, "ts": 20, "dur": 500, "args": {"stream": 7}},
    )

    assert sorted(trace.work["kind"].to_list()) == ["kernel", "other", "other"]
    assert trace.analysed.whole_devices.select("busy_ns", "computing_ns").rows() == [(5000, 5000)]
    said = "count as no device time (2): no category 1, some_metrics 1"
    assert trace.issues["message"].item().endswith(said)


# As Kineto writes them (CuptiRangeProfiler.cpp, XpuptiScopeProfilerHandlers.cpp, CuptiPMSamplingProfiler.cpp).
FIGURES = (
    kineto.span("cuda_profiler_range", "void gemm<float>()", 0, 5, 121431, 0, **{"sm__inst.sum": 7}),
    kineto.span("kernel", "metrics: gemm", 9, 9.999, 5.002, 0, kernel_id=4, queue="0x1", **{"GpuTime::ns": 5000}),
    kineto.span("xpu_scope_profiler", "metrics", 9, 10, 5, 0, **{"GpuTime::ns": 5000}),
)


def test_ranges_of_hardware_counters_are_no_kernels(tmp_path: Path) -> None:
    trace = load(tmp_path, kineto.call("cudaLaunchKernel", 1, 1, 2, 1), kineto.kernel("gemm", 10, 5, 1), *FIGURES)

    assert trace.work["full_name"].to_list() == ["gemm"]
    assert trace.duration_ns() == 14_000
    assert codes(trace) == {"counter_ranges": 3}


def test_hardware_counters_are_those_of_their_device(tmp_path: Path) -> None:
    counters = [
        {
            "ph": "C",
            "cat": "hardware_counters",
            "name": "PM Sampling",
            "pid": "GPU 2 Counters",
            "tid": 0,
            "ts": 5,
        },
        {"ph": "C", "cat": "mtia_counters", "name": "HBM", "pid": 1, "tid": 3, "ts": 6},
        {"ph": "C", "cat": "xpu_scope_profiler", "name": "xpu", "pid": "Spans", "tid": 3, "ts": 7},
        {"ph": "C", "name": "program", "pid": 700, "tid": 701, "ts": 8},
    ]
    args = {"a": 1.5, "too large": 10**400, "text": "x"}

    trace = load(tmp_path, *({**event, "args": args} for event in counters))

    assert trace.counters.select("pid", "tid", "device_id", "domain", "name", "value").rows() == [
        (None, None, 2, "hardware_counters", "PM Sampling a", 1.5),
        (None, None, 1, "mtia_counters", "HBM a", 1.5),
        (None, None, None, "xpu_scope_profiler", "xpu a", 1.5),
        (700, 701, None, None, "program a", 1.5),
    ]
    assert trace.work.is_empty()


def test_waits_and_collectives_of_xpus_are_what_they_are(tmp_path: Path) -> None:
    trace = load(
        tmp_path,
        kineto.op("aten::mm", 1, 1, 20),
        kineto.span("xpu_driver", "zeEventHostSynchronize", 1, 5, 3, correlation=7),
        kineto.span("xpu_sync", "zeEventHostSynchronize", 1, 5, 3, -1, correlation=7, Type="HOST_EVENT"),
        kineto.span("collective_comm", "xccl::allreduce", 1, 9, 3, Communicator_id=5),
        kineto.span("hpu_op", "launch", 1, 14, 3),
        kineto.span("collective_comm", "allreduce", 9, 30, 3, 17, stream=4),
    )

    assert trace.work.select("kind", "pid", "device_id", "correlation_id").rows() == [
        ("sync", kineto.PID, None, 7),
        ("other", kineto.PID, 17, None),
    ]
    assert trace.ranges.select("name", "category").rows() == [
        ("aten::mm", None),
        ("xccl::allreduce", "collective_comm"),
        ("launch", "hpu_op"),
    ]
    assert codes(trace) == {"unknown_work": 1}


@pytest.mark.parametrize("pid", [0, 1])
def test_work_that_names_no_device_is_of_the_one_whose_track_it_is_on(tmp_path: Path, pid: int) -> None:
    trace = load(tmp_path, kineto.span("kernel", "k", 7, 5, 1, pid, stream=7))
    assert trace.work["device_id"].to_list() == [pid]


def test_sizes_with_fewer_axes_have_those(tmp_path: Path) -> None:
    sizes = [[8, 2, 4], [8, 2], [8], []]
    trace = load(tmp_path, *(kineto.span("kernel", "k", 7, 5, 1, 0, device=0, stream=7, grid=grid) for grid in sizes))
    found = trace.work.select("grid_x", "grid_y", "grid_z").rows()
    assert [[axis for axis in row if axis is not None] for row in found] == sizes


def test_only_numbers_of_devices_describe_a_device(tmp_path: Path) -> None:
    ids = [3, -1, 1 << 31, "0", True, None, (1 << 31) - 1]
    path = kineto.write(tmp_path / "run.json", kineto.document(deviceProperties=[{"id": number} for number in ids]))
    assert opspan.load(path).devices["device_id"].to_list() == [0, 3, (1 << 31) - 1]  # work ran on the first


@pytest.mark.parametrize("library", ["mtia", "glow", "privateuse1", "hpu"])
def test_devices_of_other_kinds_work(tmp_path: Path, library: str) -> None:
    events = f"{library}_ccp_events"
    trace = load(
        tmp_path,
        kineto.op("aten::mm", 1, 1, 20),
        kineto.span(f"{library}_runtime", "enqueue", 1, 5, 1, correlation=7, device=17, stream_id=4),
        kineto.span(f"{library}_driver", "doorbell", 1, 6, 1, correlation=8),
        kineto.span(events, "pe_exe", 9, 8, 3, 17, stream=4, correlation=7, sqid=2),
        kineto.span(events, "dma_request", 9, 12, 2, 17, stream=4, correlation=8, size=4096),
        kineto.span(events, "event_wait", 9, 20, 2, 17, stream=4, wait_on_stream=5),
    )
    assert trace.calls["api"].to_list() == [f"{library}_runtime", f"{library}_driver"]
    assert json.loads(trace.calls["payload_json"][0]) == {"stream_id": 4, "device": 17}
    assert trace.work.select("name", "kind", "bytes", "device_id", "stream_id").rows() == [
        ("pe_exe", "kernel", None, 17, 4),
        ("dma_request", "memcpy", 4096, 17, 4),
        ("event_wait", "sync", None, 17, 4),
    ]
    assert analyse(trace).work["range"].to_list() == [0, 0, None]
    assert trace.devices["kind"].unique().to_list() == [library]
    assert trace.issues.is_empty()


def test_work_of_several_processes_is_not_guessed(tmp_path: Path) -> None:
    other = {**kineto.op("aten::add", 1, 5, 1), "pid": 800}
    trace = load(tmp_path, kineto.op("aten::add", 1, 5, 1), other, kineto.kernel("k", 8, 2, 7))
    assert trace.work["pid"].to_list() == [None]
    assert codes(trace) == {"unknown_process": 1}


def in_process(pid: int, event: dict[str, Any]) -> dict[str, Any]:
    return {**event, "pid": pid}


def test_a_foreign_process_takes_no_work_away(tmp_path: Path) -> None:
    function = kineto.span("python_function", "threading.py(1): run", 0, 1, 50, 0, **{"Python id": 9})
    annotation = kineto.span("user_annotation", "elsewhere", 5, 1, 50, 800)
    stray = kineto.span("cuda_runtime", "synchronize", 9, 5, 1, 0, correlation=90)
    trace = load(tmp_path, *kineto.events(), function, annotation, stray)
    assert trace.work["pid"].to_list() == [kineto.PID] * 3
    assert trace.coverage.work_in_range.count == 3
    assert trace.issues.is_empty()


def test_a_process_with_a_devices_number_is_one_where_the_program_ran_in_it(tmp_path: Path) -> None:
    ones = [event if event["pid"] == 0 else in_process(0, event) for event in kineto.events()]
    foreign = kineto.span("user_annotation", "elsewhere", 5, 1, 50, 800)
    trace = load(tmp_path, *ones, foreign, labelled(0, "CPU"), labelled(0, "GPU 0"))
    assert trace.work["pid"].to_list() == [0] * 3
    assert trace.coverage.work_in_range.count == 3


def two_processes(device: int) -> list[Any]:
    """Two programs with the same numbers of calls; 20 is the second's alone."""
    return [
        kineto.op("aten::mm", 1, 1, 90),
        kineto.call("cudaLaunchKernel", 1, 2, 1, 7),
        kineto.kernel("first", 8, 2, 7),
        in_process(800, kineto.op("aten::add", 1, 1, 90)),
        in_process(800, kineto.call("cudaLaunchKernel", 1, 2, 1, 7)),
        in_process(800, kineto.call("cudaLaunchKernel", 1, 4, 1, 20)),
        kineto.span("kernel", "second", 7, 9, 2, device, device=device, stream=7, correlation=7),
        kineto.span("kernel", "third", 7, 19, 2, device, device=device, stream=7, correlation=20),
    ]


def test_equal_numbers_of_two_processes_are_told_apart_by_the_device(tmp_path: Path) -> None:
    trace = load(tmp_path, *two_processes(1))
    assert dict(trace.work.select("name", "pid").iter_rows()) == {"first": None, "second": 800, "third": 800}
    assert codes(trace) == {"unknown_process": 1}
    trace = load(tmp_path, *two_processes(1), kineto.call("a", 1, 30, 1, 9), kineto.kernel("fourth", 40, 1, 9))
    assert trace.work["pid"].to_list() == [kineto.PID, 800, 800, kineto.PID]
    assert trace.issues.is_empty()


def test_equal_numbers_on_one_device_are_nobodys(tmp_path: Path) -> None:
    trace = load(tmp_path, *two_processes(0), kineto.call("a", 1, 30, 1, 9), kineto.kernel("fourth", 40, 1, 9))
    assert trace.work["pid"].to_list() == [None, None, 800, kineto.PID]
    assert codes(trace) == {"unknown_process": 2}


def test_work_whose_call_was_left_out_is_of_the_only_process_that_calls(tmp_path: Path) -> None:
    foreign = kineto.span("user_annotation", "elsewhere", 5, 1, 50, 800)
    trace = load(tmp_path, kineto.call("cudaLaunchKernel", 1, 2, 1, 7), foreign, kineto.kernel("sampled", 8, 2, 99))
    assert trace.work["pid"].to_list() == [kineto.PID]


def only_external(number: int, **args: Any) -> Any:
    found = kineto.span("kernel", "k", 7, 30, 5, 0, device=0, stream=7, **args)
    return {**found, "args": {**found["args"], "External id": number}}


@pytest.mark.parametrize("correlation", [{}, {"correlation": 4711}])
def test_work_without_a_call_is_of_the_op_that_it_names(tmp_path: Path, correlation: dict[str, int]) -> None:
    ops = [kineto.op(f"aten::{n}", 1, 1 + n, 20 - 2 * n, **{"External id": 10 + n}) for n in range(3)]
    others = [in_process(800, kineto.op("aten::other", 1, 1, 5, **{"External id": 99}))]
    trace = load(tmp_path, *ops, *others, only_external(12, **correlation), only_external(0), only_external(5))
    assert trace.work["pid"].to_list() == [kineto.PID] * 3  # the process that owns the device
    assert trace.work["named_range_id"].to_list() == [2, None, None]
    analysed = analyse(trace)
    assert analysed.work["range"].to_list() == [2, None, None]
    assert analysed.coverage.work_in_range.count == 1
    (op,) = (event for event in trace.events() if event.name == "aten::2")
    assert op.self_device_time_total == 5


def test_external_id_0_is_no_op(tmp_path: Path) -> None:
    trace = load(tmp_path, kineto.op("aten::mm", 1, 1, 20, **{"External id": 0}), only_external(0))
    assert trace.work["named_range_id"].to_list() == [None]


def test_the_call_says_more_than_the_external_id(tmp_path: Path) -> None:
    ops = [
        kineto.op("aten::mm", 1, 1, 20, **{"External id": 10}),
        kineto.op("aten::add", 1, 30, 9, **{"External id": 11}),
    ]
    trace = load(tmp_path, *ops, kineto.call("cudaLaunchKernel", 1, 2, 1, 7), only_external(11, correlation=7))
    assert trace.work["named_range_id"].to_list() == [None]
    assert analyse(trace).work["range"].to_list() == [0]


def test_of_old_the_external_id_of_work_was_the_number_of_its_call(tmp_path: Path) -> None:
    trace = load(tmp_path, kineto.op("aten::mm", 1, 1, 20, **{"External id": 10}), only_external(10, correlation=10))
    assert trace.work["named_range_id"].to_list() == [None]


def test_the_op_that_work_names_is_found_again_where_another_tool_saw_it_too(tmp_path: Path) -> None:
    ops = [kineto.op(f"aten::{n}", 1, 1 + 30 * n, 20, **{"External id": 10 + n}) for n in range(12)]
    one = load(tmp_path, *ops)
    merged = merge(one, load(tmp_path, *ops, only_external(15)))
    assert merged.ranges.height == len(ops)
    ranges = analyse(merged).ranges
    assert ranges["name"].gather(analyse(merged).work["range"]).to_list() == ["aten::5"]
