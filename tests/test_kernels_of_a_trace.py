"""trace.kernels(): beside files' own SQL and JSON, beside sums of the tables, and on small traces."""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import polars as pl
import pytest

import opspan
from opspan.analysis.kernel_rows import COLUMNS
from opspan.tables import Metadata
from opspan.trace import Trace
from views import sources

SCHEMA = {column.name: column.dtype for column in COLUMNS}
REAL = (
    "nsys/train_fsdp_2gpu.sqlite",
    "nsys/infer_2gpu.sqlite",
    "kineto/rank0_sampled.json.gz",
    "kineto/b200_eager.json.gz",
)

Rows = Iterable[tuple[object, ...]]


def rows_of(frame: pl.DataFrame, *columns: str) -> Counter[tuple[object, ...]]:
    return Counter(frame.select(columns).iter_rows())


def of_nsys(path: Path) -> Rows:
    """start, device, stream, name, call and text of the innermost range, joined by the correlation ids in SQL."""
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True).execute(
        """
        SELECT k.start, k.deviceId, k.streamId, short.value, api.value,
            (SELECT coalesce(n.text, s.value) FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId
             WHERE n.eventType = 59 AND n.globalTid = r.globalTid AND n.start <= r.start AND r.start < n.end
             ORDER BY n.start DESC, n.end LIMIT 1)
        FROM CUPTI_ACTIVITY_KIND_KERNEL k
        JOIN StringIds short ON short.id = k.shortName
        LEFT JOIN CUPTI_ACTIVITY_KIND_RUNTIME r
            ON r.correlationId = k.correlationId AND r.globalTid / 0x1000000 = k.globalPid / 0x1000000
        LEFT JOIN StringIds api ON api.id = r.nameId
        """
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["train_fsdp_2gpu.sqlite", "infer_2gpu.sqlite"])
def test_nsys_kernels_have_the_ops_and_calls_of_its_own_sql(traces_dir: Path, name: str) -> None:
    path = traces_dir / "nsys" / name
    frame = opspan.load(path).kernels()

    expected = Counter(
        (start, device, stream, kernel, call and re.sub(r"_v\d+$", "", call), text and text.split(", ")[0])
        for start, device, stream, kernel, call, text in of_nsys(path)
    )

    assert rows_of(frame, "start_ns", "device_id", "stream_id", "name", "call", "op") == expected
    assert frame["op"].count()


def test_kineto_kernels_have_the_ops_and_shapes_of_its_json(traces_dir: Path) -> None:
    path = traces_dir / "kineto" / "rank0_sampled.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    ranges = [event for event in events if event.get("cat") in ("cpu_op", "user_annotation") and event["ph"] == "X"]
    calls = {event["args"]["correlation"]: event for event in events if event.get("cat") == "cuda_runtime"}
    expected: Counter[tuple[object, ...]] = Counter()
    for kernel in events:
        if kernel.get("cat") == "kernel":
            call = calls[kernel["args"]["correlation"]]
            around = [
                range_
                for range_ in ranges
                if range_["tid"] == call["tid"] and range_["ts"] <= call["ts"] < range_["ts"] + range_["dur"]
            ]
            op = max(around, key=lambda range_: range_["args"].get("Ev Idx", 0))  # torch numbers them as they begin
            sizes = op["args"].get("Input Dims")
            shape = None if sizes is None else json.dumps(sizes)
            expected[kernel["ts"] * 1000, kernel["args"]["stream"], op["name"], shape, call["name"]] += 1

    frame = opspan.load(path).kernels()

    assert frame.height == sum(expected.values()) == 1154
    assert rows_of(frame, "start_ns", "stream_id", "op", "shape", "call") == expected


def test_rpd_kernels_have_the_calls_of_its_own_sql(traces_dir: Path) -> None:
    path = traces_dir / "rocpd" / "torch_autograd.rpd"
    joined = sqlite3.connect(f"file:{path}?mode=ro", uri=True).execute(
        """
        SELECT o.start, o.end, o.gpuId, call.string
        FROM rocpd_op o
        JOIN rocpd_api_ops ao ON ao.op_id = o.id
        JOIN rocpd_api a ON a.id = ao.api_id
        JOIN rocpd_string call ON call.id = a.apiName_id
        JOIN rocpd_string type ON type.id = o.opType_id
        WHERE type.string NOT LIKE 'Copy%' AND type.string NOT LIKE '%Memset%'
        """
    )
    assert rows_of(opspan.load(path).kernels(), "start_ns", "end_ns", "device_id", "call") == Counter(joined)


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_sums_are_those_of_the_tables(traces_dir: Path, name: str) -> None:
    trace = opspan.load(traces_dir / name)
    frame = trace.kernels(copies=True)

    for by, column, total in (
        ("kernel", "name", "device_ns"),
        ("module", "module", "self_device_ns"),
        ("step", "step", "self_device_ns"),
        ("name", "op", "self_device_ns"),
    ):
        placed = frame if by == "kernel" else frame.filter(pl.col("op").is_not_null())
        ours = placed.group_by(pl.col(column).cast(pl.String)).agg(pl.sum("duration_ns")).rows()
        table = trace.table(by).rows.group_by(pl.col(column if by != "name" else "name").cast(pl.String))
        expected = {key: ns for key, ns in table.agg(pl.sum(total)).rows() if ns}
        assert {key: ns for key, ns in ours if ns} == expected, by


def test_a_vtune_result_without_a_gpu_has_an_empty_frame_of_the_same_types(traces_dir: Path) -> None:
    frame = opspan.load(traces_dir / "vtune" / "r001hs_2024" / "r001hs").kernels()
    assert (frame.height, dict(frame.schema)) == (0, SCHEMA)


def test_an_empty_trace_has_an_empty_frame_of_the_same_types() -> None:
    frame = Trace((Metadata("nothing"),)).kernels(copies=True)
    assert (frame.height, dict(frame.schema)) == (0, SCHEMA)


def test_every_column_is_filled_from_one_row_of_the_trace(tmp_path: Path) -> None:
    trace = opspan.load(sources.nsys(tmp_path / "run.sqlite"))
    frame = trace.kernels()

    assert dict(frame.schema) == SCHEMA
    assert frame["start_ns"].is_sorted()
    assert frame.filter(kind="kernel").height == frame.height == trace.work.filter(kind="kernel").height
    first = frame.row(0, named=True)
    expected = {"op": "aten::addmm", "shape": "[[3], [2, 4], [4, 3]]", "step": "ProfilerStep#0", "phase": "forward"}
    assert {key: first[key] for key in expected} == expected
    assert first["duration_ns"] == first["end_ns"] - first["start_ns"] == 111
    assert trace.ranges.filter(id=first["range_id"])["name"].item() == "aten::addmm"
    assert trace.calls.filter(id=first["call_id"])["name"].item() == first["call"]
    assert trace.work.filter(id=first["id"])["name"].item() == first["name"]
    backward = frame.filter(phase="backward")
    assert backward["op"].unique().to_list() == ["LinearBackward0"]


def test_copies_come_only_if_asked_for_and_waits_never(tmp_path: Path) -> None:
    trace = opspan.load(sources.nsys(tmp_path / "run.sqlite"))
    kinds = set(trace.kernels(copies=True)["kind"])
    assert "memcpy" in kinds
    assert "memcpy" not in set(trace.kernels()["kind"])
    assert "sync" in set(trace.work["kind"])
    assert "sync" not in kinds


def built(ranges: list[dict], work: list[dict], calls: list[dict] = (), functions: list[dict] = ()) -> Trace:  # type: ignore[assignment]
    frames = {"ranges": ranges, "work": work, "calls": list(calls), "functions": list(functions)}
    place = {"rank": 0, "pid": 1}
    tables = {
        name: pl.DataFrame(
            [
                place | ({"tid": 1} if name != "work" else {}) | ({"is_mark": False} if name == "ranges" else {}) | row
                for row in rows
            ],
            infer_schema_length=None,
        )
        for name, rows in frames.items()
        if rows
    }
    return Trace((Metadata("built"),), **tables)


KERNEL = {"name": "gemm", "kind": "kernel", "device_id": 0, "stream_id": 7, "start_ns": 60, "end_ns": 70}


def test_kernels_without_ops_or_calls_say_nothing_of_them() -> None:
    frame = built([], [KERNEL]).kernels()
    row = frame.row(0, named=True)
    assert (row["name"], row["duration_ns"], row["stream_id"]) == ("gemm", 10, 7)
    known = {"id", "rank", "device_id", "stream_id", "kind", "name", "start_ns", "end_ns", "duration_ns"}
    assert {name for name, value in row.items() if value is not None} == known


def test_stacks_are_the_ones_that_were_recorded_and_a_backward_op_has_its_forward_ops() -> None:
    ranges = [
        {
            "id": 0,
            "name": "aten::mm",
            "kind": "op",
            "seq": 5,
            "start_ns": 0,
            "end_ns": 10,
            "stack": "train.py(1): main\nnet.py(2): forward",
        },
        {"id": 1, "name": "MmBackward0", "kind": "backward", "seq": 5, "tid": 2, "start_ns": 20, "end_ns": 30},
    ]
    work = [KERNEL | {"named_range_id": 0}, KERNEL | {"named_range_id": 1, "start_ns": 80, "end_ns": 85}]
    frame = built(ranges, work).kernels()
    assert frame["op"].to_list() == ["aten::mm", "MmBackward0"]
    assert frame["stack"].to_list() == ["train.py(1): main\nnet.py(2): forward"] * 2


def test_stacks_are_put_together_of_functions_that_were_traced() -> None:
    functions = [
        {"id": 0, "name": "train.py(1): main", "start_ns": 0, "end_ns": 100},
        {"id": 1, "parent_id": 0, "name": "net.py(2): forward", "start_ns": 1, "end_ns": 50},
        {"id": 2, "parent_id": 0, "name": "net.py(2): forward", "start_ns": 51, "end_ns": 99},
    ]
    ranges = [
        {"id": 0, "name": "aten::mm", "kind": "op", "start_ns": 10, "end_ns": 20},
        {"id": 1, "name": "aten::mm", "kind": "op", "start_ns": 60, "end_ns": 70},
    ]
    work = [KERNEL | {"named_range_id": 0}, KERNEL | {"named_range_id": 1, "start_ns": 80}]
    assert (
        built(ranges, work, functions=functions).kernels()["stack"].to_list()
        == ["train.py(1): main\nnet.py(2): forward"] * 2
    )


def test_a_replayed_graph_has_ops_of_its_capture_and_the_step_of_its_launch() -> None:
    ranges = [
        {"id": 0, "name": "aten::mm", "kind": "op", "sizes": "[[2, 2]]", "start_ns": 10, "end_ns": 20},
        {"id": 1, "name": "ProfilerStep#3", "kind": "step", "start_ns": 100, "end_ns": 200},
    ]
    calls = [
        {"id": 0, "name": "cudaGraphAddKernelNode", "start_ns": 12, "end_ns": 13, "graph_node_id": 9},
        {"id": 1, "name": "cudaGraphLaunch", "start_ns": 110, "end_ns": 115, "correlation_id": 4},
    ]
    work = [KERNEL | {"start_ns": 120, "end_ns": 150, "correlation_id": 4, "graph_node_id": 9}]
    row = built(ranges, work, calls).kernels().row(0, named=True)
    assert (row["op"], row["shape"], row["range_id"]) == ("aten::mm", "[[2, 2]]", 0)
    assert (row["step"], row["call"], row["launch_range_id"]) == ("ProfilerStep#3", "cudaGraphLaunch", 1)


def test_a_graph_that_was_recorded_as_a_whole_is_a_row() -> None:
    frame = built([], [KERNEL | {"kind": "graph", "name": "graph 5"}, KERNEL | {"kind": "sync"}]).kernels()
    assert frame["kind"].to_list() == ["graph"]


def test_the_profilers_own_work_is_left_out() -> None:
    assert built([], [KERNEL | {"is_overhead": True}]).kernels().is_empty()


def test_pandas_has_the_same_rows(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = opspan.load(sources.nsys(tmp_path / "run.sqlite")).kernels()
    pandas = frame.to_pandas()
    assert list(pandas.columns) == frame.columns
    assert pandas["duration_ns"].dtype == "int64"
    assert pandas["op"].astype(object).where(pandas["op"].notna(), None).tolist() == frame["op"].to_list()
