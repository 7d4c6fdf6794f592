"""One run, as nvprof of each DB version would have written it, and what single rows and columns mean."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import opspan
from builders import nvprof as build
from builders.nvprof import AUTOGRAD, MAIN, PID, ZERO_NS, call, marker, of_process, of_thread, on_gpu
from opspan.errors import NotATrace, NotReadable
from opspan.readers import nvprof
from opspan.trace import Trace


@pytest.fixture(scope="module", params=build.VERSIONS)
def trace(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return opspan.load(build.run(tmp_path_factory.mktemp("run") / "run.sql", request.param))


@pytest.fixture
def load(tmp_path: Path) -> Any:
    def read(*texts: str, **tables: build.Rows) -> Trace:
        return opspan.load(build.profile(tmp_path / "x.nvprof", tables, texts))

    return read


def codes(trace: Trace) -> dict[str, int]:
    return dict(trace.issues.select(pl.col("code").cast(pl.String), "count").rows())


# --- every version


def test_ranges_of_every_version(trace: Trace) -> None:
    assert trace.metadata.source == "nvprof"
    columns = ["pid", "tid", "end_tid", "start_ns", "end_ns", "name", "text", "kind", "seq", "is_mark", "is_async"]
    assert trace.ranges.select(columns).rows() == [
        (PID, MAIN, None, 0, 90, "mm", "mm, seq = 4", "op", 4, False, False),
        (PID, MAIN, None, 15, None, "here", None, "user", None, True, False),
        (PID, AUTOGRAD, None, 100, 190, "MmBackward", "MmBackward, seq = 4", "backward", 4, False, False),
    ]


def test_calls_of_every_version(trace: Trace) -> None:
    columns = ["pid", "tid", "start_ns", "end_ns", "name", "api", "correlation_id", "return_code"]
    assert trace.calls.select(columns).rows() == [
        (PID, MAIN, 10, 20, "cudaLaunchKernel", "cuda_runtime", 1, 0),
        (PID, AUTOGRAD, 110, 120, "cudaLaunchKernel", "cuda_runtime", 2, 0),
        (PID, AUTOGRAD, 121, 122, "cudaMemcpyAsync", "cuda_runtime", 3, 0),
        (PID, AUTOGRAD, 123, 124, "cudaMemsetAsync", "cuda_runtime", 4, 0),
        (PID, AUTOGRAD, 125, 180, "cudaStreamSynchronize", "cuda_runtime", 5, 0),
        (PID, MAIN, 1, 2, "cuDeviceGetPCIBusId", "cuda_driver", 6, 0),
    ]


def test_work_of_every_version(trace: Trace) -> None:
    columns = ["pid", "device_id", "stream_id", "start_ns", "end_ns", "kind", "name", "full_name", "correlation_id"]
    assert trace.work.select(columns).rows() == [
        (PID, 0, 7, 30, 40, "kernel", "gemm", "void gemm<float>(float*, int)", 1),
        (PID, 0, 7, 130, 150, "kernel", "gemm", "void gemm<float>(float*, int)", 2),
        (PID, 0, 7, 151, 152, "memcpy", "Memcpy DtoH", None, 3),
        (PID, 0, 7, 153, 154, "memset", "Memset", None, 4),
        (PID, 0, 7, 126, 179, "sync", "Stream sync", None, 5),
        (PID, None, None, 3, 5, "other", "Instrumentation (Profiler)", None, None),
    ]
    assert trace.work["is_overhead"].to_list() == [False] * 5 + [True]
    sizes = ["grid_x", "block_x", "registers", "graph_node_id", "graph_id"]
    assert trace.work.select(sizes).row(0) == (8, 128, 32, None, None)
    assert trace.work.select("bytes", "copy_from", "copy_to").rows()[2] == (8, "device", "pageable")


def test_the_rest_of_every_version(trace: Trace) -> None:
    assert trace.metadata.origin_utc_ns == ZERO_NS
    assert trace.metadata.options["command_line"] == "python train.py --epochs 1"
    assert trace.metadata.options["db_version"] in build.VERSIONS
    assert trace.processes.select("pid", "name", "command_line").rows() == [
        (PID, "python", "python train.py --epochs 1")
    ]
    assert trace.threads.select("pid", "tid").rows() == [(PID, MAIN), (PID, AUTOGRAD)]
    columns = ["device_id", "name", "uuid", "memory_bytes", "multiprocessors", "capability", "clock_hz"]
    uuid = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert trace.devices.select(columns).rows() == [(0, "Tesla V100", uuid, 16914055168, 80, "7.0", 1_530_000_000)]
    assert trace.issues.is_empty()


# --- markers


def test_ends_find_their_starts_by_id_and_never_by_name(load: Any) -> None:
    first, second = marker(1, 10, 90, name=1), marker(2, 20, 30, name=2)
    trace = load("outer", "inner", MARKER=[first[0], second[0], second[1], first[1]])
    assert trace.ranges.select("name", "start_ns", "end_ns").rows() == [("outer", 0, 80), ("inner", 10, 20)]


def test_a_range_without_an_end_is_open_and_an_end_without_a_start_counted(load: Any) -> None:
    trace = load("a", MARKER=[*marker(1, 10, name=1), marker(2, 0, 30)[1]])
    assert trace.ranges.select("name", "end_ns").rows() == [("a", None)]
    assert codes(trace) == {"open_ranges": 1, "end_without_start": 1}


def test_an_id_that_is_used_again_pairs_in_order(load: Any) -> None:
    trace = load("a", "b", MARKER=[*marker(1, 10, 20, name=1), *marker(1, 30, 45, name=2), marker(1, 0, 50)[1]])
    assert trace.ranges.select("name", "start_ns", "end_ns").rows() == [("a", 0, 10), ("b", 20, 35)]
    assert codes(trace) == {"end_without_start": 1}


def test_of_an_id_that_is_used_twice_and_ended_once_the_first_range_has_the_end(load: Any) -> None:
    trace = load("a", "b", MARKER=[*marker(1, 10, 20, name=1), *marker(1, 30, name=2)])
    assert trace.ranges.select("name", "start_ns", "end_ns").rows() == [("a", 0, 10), ("b", 20, None)]
    assert codes(trace) == {"open_ranges": 1}


def test_a_range_that_another_thread_ends_is_async(load: Any) -> None:
    rows = marker(1, 10, 20, name=1)
    trace = load("a", MARKER=[rows[0], {**rows[1], **of_thread(AUTOGRAD)}])
    assert trace.ranges.select("tid", "end_tid", "is_async").rows() == [(MAIN, AUTOGRAD, True)]


def test_a_range_of_a_process_is_of_no_thread(load: Any) -> None:
    trace = load("a", MARKER=marker(1, 10, 20, name=1, **of_process()))
    assert trace.ranges.select("pid", "tid", "is_async").rows() == [(PID, None, True)]


def test_an_end_before_its_start_is_null_and_counted(load: Any) -> None:
    trace = load("a", MARKER=marker(1, 10, 5, name=1))
    assert trace.ranges["end_ns"].to_list() == [None]
    assert codes(trace)["negative_duration"] == 1


def test_flags_of_locks_are_counted(load: Any) -> None:
    trace = load("a", MARKER=[{**marker(1, 10, name=1)[0], "flags": 8}])
    assert trace.ranges.is_empty()
    assert codes(trace) == {"unknown_units": 1}


def test_a_text_in_another_domain_is_no_label(load: Any) -> None:
    texts = ("x, seq = 3", "mine", "pytorch")
    rows = [row for n, domain in enumerate((0, 2, 3), 1) for row in marker(n, n, 9, name=1, domain=domain)]
    trace = load(*texts, MARKER=rows)
    assert trace.ranges["name"].to_list() == ["x", "x, seq = 3", "x"]
    assert trace.ranges["seq"].to_list() == [3, None, 3]
    assert trace.ranges["domain"].to_list() == [None, "mine", "pytorch"]


def test_nodes_of_torch_0_4_are_named_as_a_person_would(load: Any) -> None:
    raw = "N5torch8autograd9GraphRootE"
    trace = load(raw, "mul", MARKER=[*marker(1, 1, 9, name=1), *marker(2, 2, 3, name=2)])
    columns = ["name", "text", "kind", "seq"]
    assert trace.ranges.select(columns).rows() == [
        ("torch::autograd::GraphRoot", raw, "backward", None),
        ("mul", None, "user", None),
    ]


def data(
    number: int, kind: int, payload: bytes, *, flags: int = 2, color: int = 0, category: int = 0
) -> dict[str, Any]:
    return {
        "flags": flags,
        "id": number,
        "payloadKind": kind,
        "payload": payload,
        "color": color,
        "category": category,
    }


def test_colours_categories_and_payloads(load: Any) -> None:
    trace = load(
        "a",
        MARKER=[row for n in range(1, 6) for row in marker(n, n, 9, name=1)],
        MARKER_DATA=[
            data(1, 1, struct.pack("<Q", 7), color=0xFF00FF00 - (1 << 32), category=3),
            data(2, 4, struct.pack("<q", -7), flags=1, color=5),
            data(3, 0, struct.pack("<d", 0.5)),
            data(4, 1, bytes(8)),
            data(9, 1, bytes(8)),
        ],
    )
    columns = ["color", "category", "payload_uint", "payload_int", "payload_float"]
    assert trace.ranges.select(columns).rows() == [
        (0xFF00FF00, "3", 7, None, None),
        (None, None, None, -7, None),
        (0, None, None, None, 0.5),
        (0, None, None, None, None),
        (None, None, None, None, None),
    ]
    assert codes(trace) == {"dangling_data": 1}


def test_our_own_labels_have_their_fields_in_payload_and_category(load: Any) -> None:
    trace = load(
        "opspan",
        "aten::mm, sizes = [[2, 3]]",
        "my range",
        MARKER=[*marker(1, 1, 9, name=2, domain=1), *marker(2, 2, 8, name=3, domain=1)],
        MARKER_DATA=[
            data(1, 4, struct.pack("<q", 5), category=1),
            data(2, 4, struct.pack("<q", 5), category=4),
        ],
    )
    columns = ["name", "kind", "seq", "sizes", "category", "payload_int", "domain"]
    assert trace.ranges.select(columns).rows() == [
        ("aten::mm", "op", 5, "[[2, 3]]", None, None, "opspan"),
        ("my range", "user", None, None, None, 5, "opspan"),
    ]


# --- calls and work


def test_a_call_without_a_name_shows_its_number_and_is_counted(load: Any) -> None:
    trace = load(RUNTIME=[call(1, 1, 2, cbid=9999), call(2, 3, 4, cbid=13)], DRIVER=[call(3, 5, 6, cbid=307)])
    assert trace.calls["name"].to_list() == ["cbid 9999", "cudaLaunch", "cuLaunchKernel"]
    assert codes(trace) == {"unknown_functions": 1}
    assert "cbid 9999" in trace.issues["message"][0]


@pytest.mark.parametrize("table", ["CONCURRENT_KERNEL", "KERNEL", "CDP_KERNEL"])
def test_kernels_are_read_from_every_table(load: Any, table: str) -> None:
    trace = load("_Z3addPf", **{table: [on_gpu(1, 10, 20, name=1)]})
    assert trace.work.select("kind", "name", "full_name", "pid").rows() == [("kernel", "add", "add(float*)", None)]


def test_names_that_cannot_be_demangled_stay_and_are_counted(load: Any) -> None:
    # The third would be more than 2^60 characters.
    hostile = "_Z1f1aIiiE" + "S_IS0_S0_E" + "".join(f"S_IS{chr(49 + n)}_S{chr(49 + n)}_E" for n in range(9))
    hostile += "".join(f"S_IS{chr(65 + n)}_S{chr(65 + n)}_E" for n in range(26))
    texts = ("_Z", "volta_sgemm_32x128_nn", hostile)
    rows = [on_gpu(number, 10, 20, name=number) for number in (1, 2, 3, 1)]
    trace = load(*texts, CONCURRENT_KERNEL=rows)
    assert trace.work["name"].to_list() == ["_Z", "volta_sgemm_32x128_nn", "f", "_Z"]
    assert trace.work["full_name"].to_list() == [*texts, "_Z"]
    assert codes(trace) == {"mangled_names": 3}


def test_peer_copies_name_the_other_device(load: Any) -> None:
    row = on_gpu(1, 10, 20, copyKind=10, deviceId=1, srcDeviceId=1, dstDeviceId=2, srcKind=3, dstKind=3)
    trace = load(MEMCPY2=[row])
    columns = ["name", "device_id", "peer_device_id", "copy_from"]
    assert trace.work.select(columns).rows() == [("Memcpy PtoP", 1, 2, "device")]


def test_a_wait_for_a_whole_context_has_its_device_and_no_stream(load: Any) -> None:
    wait = on_gpu(1, 10, 20, type=4)
    trace = load(SYNCHRONIZATION=[{**wait, "streamId": -1}], CONTEXT=[{"contextId": 1, "deviceId": 3}])
    assert trace.work.select("name", "device_id", "stream_id").rows() == [("Context sync", 3, None)]


def test_unified_memory(load: Any) -> None:
    times = {"start": ZERO_NS, "end": ZERO_NS + 9, "processId": PID, "address": 4096}
    rows = [
        {**times, "counterKind": 1, "value": 65536, "dstId": 2},
        {**times, "counterKind": 4, "value": 3, "srcId": 1, "address": -4096},  # SQLite has no unsigned integers
        {**times, "counterKind": 5, "value": 1},
    ]
    trace = load(UNIFIED_MEMORY_COUNTER=rows)
    columns = ["pid", "device_id", "time_ns", "end_ns", "event", "bytes", "count", "name", "address"]
    assert trace.memory.select(columns).rows() == [
        (PID, 2, 0, 9, "transfer", 65536, None, "Unified HtoD", 4096),
        (PID, 1, 0, 9, "fault", None, 3, "GPU page fault", 2**64 - 4096),
    ]
    assert codes(trace) == {"skipped_tables": 1}


@pytest.mark.parametrize("end", [0, 7, ZERO_NS - 1, ZERO_NS + 1, None])
def test_what_happens_at_a_point_in_time_has_no_end_whatever_stands_there(load: Any, end: int | None) -> None:
    times = {"start": ZERO_NS, "end": end, "processId": PID, "address": 4096, "value": 1}
    # Faults of processors, thrashing, and memory that is used from afar.
    trace = load(UNIFIED_MEMORY_COUNTER=[{**times, "counterKind": kind} for kind in (3, 5, 7)])
    assert trace.memory.select("event", "time_ns", "end_ns", "bytes").rows() == [("fault", 0, None, None)]
    assert codes(trace) == {"skipped_tables": 2}


def test_other_unified_memory_that_ends_before_it_begins_is_counted(load: Any) -> None:
    times = {"start": ZERO_NS, "end": ZERO_NS - 1, "processId": PID, "value": 1}
    trace = load(UNIFIED_MEMORY_COUNTER=[{**times, "counterKind": kind} for kind in (1, 2, 4, 8)])
    assert codes(trace) == {"negative_duration": 4}


def test_rows_without_a_time_are_counted(load: Any) -> None:
    trace = load(
        "a",
        MARKER=[{**marker(1, 10, name=1)[0], "timestamp": 0}],
        CONCURRENT_KERNEL=[{**on_gpu(1, 10, 20), "start": 0, "end": 0}, on_gpu(1, 10, 20)],
    )
    assert (trace.ranges.height, trace.work.height) == (0, 1)
    assert trace.issues.select(pl.col("code").cast(pl.String), "count").rows() == [("no_time", 1), ("no_time", 1)]


def test_work_of_several_processes_cannot_be_told_apart_and_says_so(load: Any) -> None:
    other = {**call(1, 3, 4), "processId": PID + 1}
    trace = load(RUNTIME=[call(1, 1, 2), other], CONCURRENT_KERNEL=[on_gpu(1, 10, 20)])
    assert trace.work["pid"].to_list() == [None]
    assert codes(trace) == {"unknown_process": 1}


def test_threads_and_streams_are_named_where_the_program_did(load: Any) -> None:
    trace = load(
        "worker",
        RUNTIME=[call(1, 1, 2)],
        NAME=[{**of_thread(), "name": 1}, {"objectKind": 5, "objectId": bytes(12), "name": 1}],
        CONTEXT=[{"contextId": 1, "deviceId": 0, "nullStreamId": 7}],
        STREAM=[{"contextId": 1, "streamId": 7, "priority": -2, "flag": 3}],
        DEVICE=[{"id": 0, "uuid": b""}],
    )
    assert trace.threads.select("tid", "name").rows() == [(MAIN, "worker")]
    assert json.loads(trace.devices["attributes_json"][0]) == {
        "contexts": [
            {"context_id": 1, "default_stream_id": 7, "streams": [{"stream_id": 7, "priority": -2, "flags": 3}]}
        ]
    }
    assert codes(trace) == {"skipped_tables": 1}


def test_a_name_of_an_object_of_no_kind_names_nothing_and_is_counted(load: Any) -> None:
    trace = load("worker", RUNTIME=[call(1, 1, 2)], NAME=[{**of_thread(), "objectKind": None, "name": 1}])
    assert trace.threads["name"].to_list() == [None]
    assert codes(trace) == {"skipped_tables": 1}


def test_tables_that_are_not_read_are_counted(load: Any) -> None:
    trace = load(CUDA_EVENT=[{"eventId": 1}, {"eventId": 2}])
    assert trace.issues.select(pl.col("code").cast(pl.String), "count").rows() == [("skipped_tables", 2)]


# --- which files


def test_a_database_may_have_any_name(tmp_path: Path) -> None:
    assert opspan.load(build.run(tmp_path / "trace.json", 14)).metadata.source == "nvprof"


@pytest.mark.parametrize(
    "head", [b'<?xml version="1.0"?>\n<session version="2" name="x">', b'<session version="2">'], ids=["xml", "bare"]
)
def test_a_session_of_the_visual_profiler_is_refused_with_a_sentence(tmp_path: Path, head: bytes) -> None:
    path = tmp_path / "x.nvvp"
    path.write_bytes(head)
    for source in (None, "nvprof"):
        with pytest.raises(NotATrace, match=r"session of the Visual Profiler.*no data; write a database with `nvprof"):
            opspan.load(path, source=source)


def test_a_raw_file_is_refused_with_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "x.nvprof"
    path.write_bytes(b"\x8a\x00\x01" * 100)
    with pytest.raises(NotATrace, match=r"raw files of nvprof.*--export-profile"):
        opspan.load_nvprof(path)


def test_paths_that_are_no_file(tmp_path: Path) -> None:
    with pytest.raises(NotReadable):
        opspan.load_nvprof(tmp_path)
    with pytest.raises(NotReadable):
        opspan.load_nvprof(tmp_path / "missing.nvvp")


def test_other_databases_are_not_nvprofs(tmp_path: Path) -> None:
    from builders import nsys

    path = nsys.run(tmp_path / "x.sqlite", "2022")
    assert not nvprof.sniff(path, path.read_bytes()[:100])
    with pytest.raises(NotATrace, match="none of nvprof's tables"):
        opspan.load(path, source="nvprof")


def test_every_table_may_have_no_rows(tmp_path: Path) -> None:
    trace = opspan.load(build.profile(tmp_path / "x.nvprof", {}, version=None))
    assert all(frame.is_empty() for frame in trace.frames.values())


def test_every_cell_may_be_null(tmp_path: Path) -> None:
    tables = {name: [dict.fromkeys(" ".join(columns.values()).split())] for name, columns in build.COLUMNS.items()}
    trace = opspan.load(build.profile(tmp_path / "x.nvprof", tables))
    assert trace.ranges.is_empty()
    assert trace.calls.is_empty()
    assert trace.work.is_empty()


@pytest.mark.parametrize("odd", [-(2**63), 2**63 - 1, 0.5, "text", b"\x00\xff", "x" * 100_000])
def test_every_cell_may_be_anything(tmp_path: Path, odd: Any) -> None:
    tables = {name: [dict.fromkeys(" ".join(columns.values()).split(), odd)] for name, columns in build.COLUMNS.items()}
    path = build.profile(tmp_path / "x.nvprof", tables)
    assert not opspan.load(path).issues.is_empty()
    opspan.load_nvprof(path).key_averages().table()
