"""The meaning of single tables and columns of nsys' exports, each with a few rows of its own."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import opspan
from builders import nsys as build
from builders.nsys import DOMAIN, MARK, PUSH_POP, START_END, Rows, global_pid, tid
from opspan.trace import Trace

HERE = tid(100)


@pytest.fixture
def load(tmp_path: Path) -> Any:
    def read(**tables: Rows) -> Trace:
        tables.setdefault("StringIds", build.strings("first", "second", "third", "fourth"))
        return opspan.load(build.export(tmp_path / "x.sqlite", tables))

    return read


def push(start: int = 1, end: int | None = 9, **more: Any) -> dict[str, Any]:
    return {"start": start, "end": end, "eventType": PUSH_POP, "globalTid": HERE, "domainId": 0, **more}


def codes(trace: Trace) -> dict[str, int]:
    return dict(trace.issues.select(pl.col("code").cast(pl.String), "count").rows())


# --- ranges


def test_a_text_in_another_domain_is_no_label(load: Any) -> None:
    trace = load(NVTX_EVENTS=[push(text="x, seq = 3"), push(text="x, seq = 3", domainId=2), push(textId=1, domainId=2)])
    assert trace.ranges["name"].to_list() == ["x", "x, seq = 3", "first"]
    assert trace.ranges["seq"].to_list() == [3, None, None]
    assert trace.ranges["domain"].to_list() == [None, "2", "2"]


def test_domains_are_numbered_per_process(load: Any) -> None:
    domain = {"start": 0, "eventType": DOMAIN, "domainId": 1}
    trace = load(
        NVTX_EVENTS=[
            {**domain, "text": "NCCL", "globalTid": tid(100)},
            {**domain, "text": "cuBLAS", "globalTid": tid(200)},
            push(text="a", domainId=1),
            push(text="b", domainId=1, globalTid=tid(200)),
        ]
    )
    assert trace.ranges["domain"].to_list() == ["NCCL", "cuBLAS"]


def test_our_own_labels_have_their_fields_in_payload_and_category(load: Any) -> None:
    own = {"start": 0, "eventType": DOMAIN, "domainId": 1, "text": "opspan", "globalTid": HERE}
    trace = load(
        NVTX_EVENTS=[
            own,
            push(text="aten::mm, sizes = [[2, 3], [3, 4]]", domainId=1, category=1, int64Value=5),
            push(text="MmBackward0", domainId=1, category=2, int64Value=5),
            push(text="MmBackward0, fwd_tid = 7", domainId=1, category=2, int64Value=5),
            push(text="my range", domainId=1, category=4, int64Value=5),
        ]
    )
    assert trace.ranges["kind"].to_list() == ["op", "backward", "backward", "user"]
    assert trace.ranges["seq"].to_list() == [5, 5, 5, None]
    assert trace.ranges["sizes"].to_list() == ["[[2, 3], [3, 4]]", None, None, None]
    assert trace.ranges["forward_tid"].to_list() == [None, 100, 7, None]  # not written: the main thread
    assert trace.ranges["payload_int"].to_list() == [None, None, None, 5]
    assert trace.ranges["category"].null_count() == 4


def test_our_own_extended_payload_is_read_from_json(load: Any) -> None:
    own = {"start": 0, "eventType": DOMAIN, "domainId": 1, "text": "opspan", "globalTid": HERE}
    fields = {"seq": 8, "op_id": 3, "fwd_tid": 0, "kind": 2, "sizes": "[[4]]"}
    none = {"seq": -1, "op_id": 4, "fwd_tid": 0, "kind": 1, "sizes": None}
    trace = load(
        NVTX_EVENTS=[
            own,
            push(text="TBackward0", domainId=1, category=2, jsonText=json.dumps(fields)),
            push(text="aten::t", domainId=1, category=1, jsonText=json.dumps(none)),
        ]
    )
    columns = ["kind", "seq", "op_id", "forward_tid", "sizes"]
    assert trace.ranges.select(columns).rows() == [("backward", 8, 3, None, "[[4]]"), ("op", None, 4, None, None)]


def test_payloads_keep_their_type(load: Any) -> None:
    trace = load(
        NVTX_EVENTS=[
            push(uint64Value=-1),  # SQLite has no unsigned integers
            push(int32Value=-3),
            push(uint32Value=7),
            push(floatValue=0.5),
            push(jsonText='{"a": 1}'),
            push(jsonTextId=2),
        ]
    )
    assert trace.ranges["payload_uint"].to_list() == [2**64 - 1, None, 7, None, None, None]
    assert trace.ranges["payload_int"].to_list() == [None, -3, None, None, None, None]
    assert trace.ranges["payload_float"].to_list() == [None, None, None, 0.5, None, None]
    assert trace.ranges["payload_json"].to_list() == [None, None, None, None, '{"a": 1}', "second"]


SCHEMAS: Rows = [{"domainId": 1, "schemaId": 9, "name": None, "type": 1, "payloadSize": 16}]
ENTRIES: Rows = [
    {"domainId": 1, "schemaId": 9, "idx": 0, "type": 18, "name": "communicator", "offset": None},
    {"domainId": 1, "schemaId": 9, "idx": 1, "type": 22, "name": "bytes", "offset": 8},
]


@pytest.mark.parametrize("written", ["bytes", "hex"])
def test_binary_payloads_are_taken_apart_by_their_schema(load: Any, written: str) -> None:
    raw = build.payload(1, 9, struct.pack("<QQ", 2**63, 4096))
    value = raw if written == "bytes" else raw.hex()
    trace = load(
        NVTX_EVENTS=[push(textId=1, domainId=1, binaryData=value), push(textId=2, domainId=1)],
        NVTX_PAYLOAD_SCHEMAS=SCHEMAS,
        NVTX_PAYLOAD_SCHEMA_ENTRIES=ENTRIES,
    )
    first, second = trace.ranges["payload_json"]
    assert json.loads(first) == {"communicator": 2**63, "bytes": 4096}
    assert second is None
    assert "undecoded_payload" not in codes(trace)


@pytest.mark.parametrize("unsaid", ["type", "payloadSize"])
def test_a_schema_within_another_that_does_not_say_what_it_is_is_not_guessed_at(load: Any, unsaid: str) -> None:
    entry = {"domainId": 1, "idx": 0, "offset": 0, "name": "x"}
    trace = load(
        NVTX_EVENTS=[push(textId=1, domainId=1, binaryData=build.payload(1, 9, bytes(16)))],
        NVTX_PAYLOAD_SCHEMAS=[*SCHEMAS, {**SCHEMAS[0], "schemaId": 500, unsaid: None}],
        NVTX_PAYLOAD_SCHEMA_ENTRIES=[{**entry, "schemaId": 9, "type": 500}, {**entry, "schemaId": 500, "type": 18}],
    )
    assert json.loads(trace.ranges["payload_json"][0]) == {"bytes": "00" * 16}
    assert codes(trace)["undecoded_payload"] == 1


@pytest.mark.parametrize("raw", [build.payload(1, 77, b"abcd"), b"short", build.payload(1, 9, b"cut")])
def test_binary_payloads_that_cannot_be_taken_apart_stay_as_bytes(load: Any, raw: bytes) -> None:
    trace = load(
        NVTX_EVENTS=[push(textId=1, domainId=1, binaryData=raw)],
        NVTX_PAYLOAD_SCHEMAS=SCHEMAS,
        NVTX_PAYLOAD_SCHEMA_ENTRIES=ENTRIES,
    )
    assert "bytes" in json.loads(trace.ranges["payload_json"][0])
    assert codes(trace)["undecoded_payload"] == 1


def test_payloads_in_tables_of_their_own(load: Any) -> None:
    table = f"DYNAMIC_NVTXPAYLOAD_DATATYPE_{global_pid(100)}_1_9"
    trace = load(
        NVTX_EVENTS=[push(textId=1, domainId=1, eventId=5), push(textId=1, domainId=1, eventId=6)],
        NVTX_EVENTS_PAYLOAD_SCHEMAS=[{"eventId": 6, "globalPid": global_pid(100), "domainId": 1, "payloadSchemaID": 9}],
        NVTX_EXPORT_TRANSLATION=[{"originalName": "Message size [bytes]", "sanitizedName": "Message_size"}],
        **{table: [{"eventId": 6, "Message_size": 4096, "op": 'a "sum"', "ratio": 0.25}]},
    )
    none, some = trace.ranges["payload_json"]
    assert none is None
    assert json.loads(some) == {"Message size [bytes]": 4096, "op": 'a "sum"', "ratio": 0.25}


def test_event_types_are_those_of_the_file(load: Any) -> None:
    types = [{"id": 159, "name": "NvtxPushPopRange", "label": "x"}, {"id": 134, "name": "NvtxMark", "label": "y"}]
    trace = load(
        NVTX_EVENTS=[push(eventType=159), push(eventType=134), push(eventType=140)], ENUM_NSYS_EVENT_TYPE=types
    )
    assert trace.ranges["is_mark"].to_list() == [False, True]
    assert codes(trace)["unknown_units"] == 1


def test_a_text_id_that_is_nowhere_is_counted(load: Any) -> None:
    trace = load(NVTX_EVENTS=[push(textId=99)])
    assert trace.ranges["name"].to_list() == [None]
    assert codes(trace)["unknown_strings"] == 1


@pytest.mark.parametrize(
    ("start", "end", "kept", "code"),
    [
        (None, 5, False, "no_time"),
        (2**62, 2**62 + 5, False, "no_time"),
        (0, 0, False, "no_time"),
        (9, 5, True, "negative_duration"),
        (9, 2**63 - 1, True, "negative_duration"),
        (-7, -5, True, None),
    ],
)
def test_times_that_cannot_be(load: Any, start: int | None, end: int, kept: bool, code: str | None) -> None:
    trace = load(NVTX_EVENTS=[{**push(text="x"), "start": start, "end": end}, push(text="sound")])
    assert trace.ranges.height == 1 + kept
    if code == "negative_duration":
        assert trace.ranges["end_ns"].to_list() == [None, 9]
    assert codes(trace) == ({code: 1} | ({"open_ranges": 1} if code == "negative_duration" else {}) if code else {})


# --- other tables


def test_versioned_tables_are_read_under_their_base_name(load: Any) -> None:
    trace = load(NVTX_EVENTS_V2=[push(text="new")], NVTX_EVENTS=[push(text="old")])
    assert trace.ranges["name"].to_list() == ["new"]


def test_mpi_calls_carry_their_own_columns(load: Any) -> None:
    call = {"start": 1, "end": 2, "globalTid": HERE, "textId": 1, "tag": 5, "size": 4096, "remoteRank": None}
    trace = load(MPI_P2P_EVENTS=[call])
    assert trace.calls.select("name", "api").rows() == [("first", "mpi")]
    assert json.loads(trace.calls["payload_json"][0]) == {"tag": 5, "size": 4096}


@pytest.mark.parametrize(
    ("table", "api"),
    [
        ("OSRT_API", "osrt"),
        ("CUBLAS_EVENTS", "cublas"),
        ("CUDNN_EVENTS", "cudnn"),
        ("NCCL_EVENTS", "nccl"),
        ("UCP_EVENTS", "ucx"),
    ],
)
def test_tables_of_calls_say_whose_functions_they_are(load: Any, table: str, api: str) -> None:
    trace = load(**{table: [{"start": 1, "end": 2, "globalTid": HERE, "nameId": 2}]})
    assert trace.calls.select("pid", "tid", "name", "api").rows() == [(100, 100, "second", api)]


def test_graphs(load: Any) -> None:
    node = {"start": 1, "end": 1, "globalTid": HERE, "nameId": 1}
    trace = load(
        CUDA_GRAPH_NODE_EVENTS=[
            {**node, "graphNodeId": 10},
            {**node, "graphNodeId": 2**33 + 10, "originalGraphNodeId": 10},
        ],
        CUDA_GRAPH_EVENTS=[{**node, "start": -5, "end": -5, "graphId": 4, "graphExecId": 6}],
        CUPTI_ACTIVITY_KIND_KERNEL=[build.kernel(5, 6, 100, 1, node=2**33 + 10)],
        CUPTI_ACTIVITY_KIND_GRAPH_TRACE=[
            {
                "start": 8,
                "end": 9,
                "deviceId": 0,
                "globalPid": global_pid(100),
                "correlationId": 2,
                "graphId": 4,
                "graphExecId": 6,
            }
        ],
    )
    columns = ["api", "graph_node_id", "original_graph_node_id", "graph_id", "graph_exec_id"]
    assert trace.calls.select(columns).rows() == [
        ("cuda_graph", None, None, 4, 6),
        ("cuda_graph", 10, None, None, None),
        ("cuda_graph", 2**33 + 10, 10, None, None),
    ]
    columns = ["kind", "name", "graph_node_id", "graph_id", "graph_exec_id"]
    assert trace.work.select(columns).rows() == [
        ("kernel", "fourth", 2**33 + 10, None, None),
        ("graph", "Graph 4", None, 4, 6),
    ]


def test_copies_and_fills(load: Any) -> None:
    on_device = {"start": 1, "end": 2, "deviceId": 1, "globalPid": global_pid(100), "bytes": 64}
    trace = load(
        CUPTI_ACTIVITY_KIND_MEMCPY=[
            {**on_device, "copyKind": 1, "srcKind": 0, "dstKind": 2},
            {**on_device, "copyKind": 10, "srcKind": 2, "dstKind": 2, "srcDeviceId": 1, "dstDeviceId": 3},
            {**on_device, "copyKind": 99},
        ],
        CUPTI_ACTIVITY_KIND_MEMSET=[{**on_device, "memKind": 2}],
    )
    assert trace.work.select("kind", "name", "copy_from", "copy_to", "peer_device_id", "bytes").rows() == [
        ("memcpy", "Memcpy HtoD", "pageable", "device", None, 64),
        ("memcpy", "Memcpy PtoP", "device", "device", 3, 64),
        ("memcpy", "99", None, None, None, 64),
        ("memset", "Memset", None, "device", None, 64),
    ]


def test_the_same_cuda_device_number_in_two_processes_may_be_two_gpus(load: Any) -> None:
    kernels = [build.kernel(1, 2, 100, 1), build.kernel(1, 2, 200, 1)]
    seen = [{"gpuId": 4, "cudaId": 0, "pid": 100}, {"gpuId": 5, "cudaId": 0, "pid": 200}]
    seen.append({"gpuId": 6, "cudaId": 1 << 40, "pid": 100})  # no device has that number
    gpus = [{"vmId": 1, "id": 4, "name": "H100"}, {"vmId": 1, "id": 5, "name": "H100"}]
    trace = load(CUPTI_ACTIVITY_KIND_KERNEL=kernels, TARGET_INFO_CUDA_DEVICE=seen, TARGET_INFO_GPU=gpus)
    assert trace.work["device_id"].to_list() == [4, 5]
    assert trace.devices["device_id"].to_list() == [4, 5]


def test_the_profilers_overhead_is_flagged(load: Any) -> None:
    trace = load(
        PROFILER_OVERHEAD=[{"start": 1, "end": 2, "globalTid": HERE, "nameId": 1}],
        CUPTI_ACTIVITY_KIND_OVERHEAD=[{"start": 3, "end": 4, "globalTid": HERE, "overheadType": 3}],
    )
    assert trace.work.select("pid", "tid", "kind", "name", "is_overhead").rows() == [
        (100, 100, "other", "first", True),
        (100, 100, "other", "Buffer flush (Profiler)", True),
    ]
    assert trace.calls.is_empty()


def test_memory(load: Any) -> None:
    usage = {"start": 1, "globalPid": global_pid(100), "deviceId": 0, "address": -1, "bytes": 512, "memKind": 2}
    trace = load(
        CUDA_GPU_MEMORY_USAGE_EVENTS=[
            {**usage, "memoryOperationType": 0, "name": "x"},
            {**usage, "memoryOperationType": 1},
        ],
        CUDA_UM_GPU_PAGE_FAULT_EVENTS=[
            {"start": 5, "end": 6, "globalPid": global_pid(100), "deviceId": 0, "address": 64, "numberOfPageFaults": 3}
        ],
        CUDA_UM_CPU_PAGE_FAULT_EVENTS=[{"start": 7, "globalPid": global_pid(100), "address": 64, "CpuInstruction": 2}],
    )
    columns = ["event", "device_id", "time_ns", "end_ns", "bytes", "address", "kind", "name", "count"]
    assert trace.memory.select(columns).rows() == [
        ("alloc", 0, 1, None, 512, 2**64 - 1, "device", "x", None),
        ("free", 0, 1, None, 512, 2**64 - 1, "device", None, None),
        ("fault", None, 7, None, None, 64, "managed", "second", None),
        ("fault", 0, 5, 6, None, 64, "managed", None, 3),
    ]


def test_samples_have_their_stack_outermost_first(load: Any) -> None:
    trace = load(
        StringIds=build.strings("main", "f<a;b>", "leaf", "python", "lib;a.so"),
        COMPOSITE_EVENTS=[
            {"id": 1, "start": 5, "cpu": 2, "globalTid": HERE, "cpuCycles": 100},
            {"id": 2, "start": 6, "cpu": 2, "globalTid": HERE, "cpuCycles": 50},
        ],
        SAMPLING_CALLCHAINS=[
            {"id": 1, "symbol": 3, "stackDepth": 0},
            {"id": 1, "symbol": 2, "module": 5, "stackDepth": 1},
            {"id": 1, "symbol": 1, "module": 4, "stackDepth": 2},
            {"id": 9, "symbol": 1, "stackDepth": 0},
        ],
    )
    assert trace.samples.select("time_ns", "cpu", "weight", "stack", "libraries").rows() == [
        (5, 2, 100, "main;f<a,b>;leaf", "python;lib,a.so;?"),
        (6, 2, 50, None, None),
    ]
    assert codes(trace) == {"dangling_data": 1}


def test_metrics_of_gpus(load: Any) -> None:
    base = 0x1000100000000
    trace = load(
        GPU_METRICS=[{"timestamp": 5, "typeId": base + 3, "metricId": 1, "value": 70}],
        TARGET_INFO_GPU_METRICS=[{"typeId": base + 3, "metricId": 1, "metricName": "SMs Active [%]"}],
        TARGET_INFO_GPU=[{"id": 1, "pwGpuId": 3, "name": "H100"}],
    )
    assert trace.counters.select("device_id", "time_ns", "name", "value").rows() == [(1, 5, "SMs Active [%]", 70.0)]


def test_tables_that_nobody_reads_are_one_issue(load: Any) -> None:
    trace = load(SCHED_EVENTS=[{"start": 1, "cpu": 0}] * 3, cudaAPIStats=[{"x": 1}], NVTX_EVENTS=[push(text="x")])
    issue = trace.issues.row(0, named=True)
    assert (issue["code"], issue["count"]) == ("skipped_tables", 4)
    assert "SCHED_EVENTS 3" in issue["message"]


def test_columns_that_other_tools_added_change_nothing(load: Any) -> None:
    trace = load(CUPTI_ACTIVITY_KIND_KERNEL=[{**build.kernel(1, 2, 100, 1), "kernel_name": b"\xff", "name": 7}])
    assert trace.work.select("kind", "full_name").rows() == [("kernel", "third")]
    assert trace.issues.filter(pl.col("code") != "unknown_strings").is_empty()


def test_columns_that_hold_what_they_should_not(load: Any) -> None:
    rows = [push(text="sound"), push(start="12", text=7), push(domainId="x", text=b"\xff"), push(category=2.0)]
    trace = load(NVTX_EVENTS=rows, CUPTI_ACTIVITY_KIND_KERNEL=[{**build.kernel(1, 2, 100, 1), "gridX": 2**40}])
    assert trace.ranges["start_ns"].to_list() == [1, 12, 1, 1]
    assert trace.ranges["name"].to_list() == ["sound", "7", "\ufffd", None]
    assert trace.ranges["category"].to_list() == [None, None, None, "2"]
    assert trace.work["grid_x"].to_list() == [None]
    found = trace.issues.filter(pl.col("code") == "odd_cells")["count"].to_list()
    assert sorted(found) == [1, 1]


def test_start_end_ranges_are_async_and_marks_have_no_end(load: Any) -> None:
    trace = load(NVTX_EVENTS=[push(eventType=START_END, endGlobalTid=HERE), push(eventType=MARK, end=None)])
    assert trace.ranges.select("is_async", "is_mark", "end_tid", "end_ns").rows() == [
        (True, False, None, 9),
        (False, True, None, None),
    ]
