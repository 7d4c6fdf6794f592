"""One run, as nsys of each age would have written it: what is read is the same, but for what an age did not keep."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import opspan
from builders import nsys as build
from opspan.trace import Trace


@pytest.fixture(scope="module", params=build.AGES)
def age(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def trace(age: str, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return opspan.load(build.run(tmp_path_factory.mktemp("run") / "run.sqlite", age))


def test_every_age_is_told_by_its_content(trace: Trace) -> None:
    assert trace.metadata.source == "nsys"


def test_ranges(trace: Trace) -> None:
    columns = [
        "pid",
        "tid",
        "end_tid",
        "start_ns",
        "end_ns",
        "name",
        "text",
        "domain",
        "category",
        "is_async",
        "is_mark",
    ]
    assert trace.ranges.select(columns).rows() == [
        (100, 100, None, 10, 90, "aten::mm", "aten::mm, seq = 4, op_id = 7", None, "loss", False, False),
        (100, 100, None, 20, 60, "ncclAllReduce", None, "NCCL", None, False, False),
        (200, 200, 201, 30, 70, "step", None, None, None, True, False),
        (200, 200, None, 35, None, "here", None, None, None, False, True),
        (200, 200, None, 80, None, "open", None, None, None, False, False),
    ]
    assert trace.ranges["id"].to_list() == [0, 1, 2, 3, 4]


def test_labels_and_payloads(trace: Trace) -> None:
    columns = ["kind", "seq", "op_id", "color", "payload_int", "source"]
    assert trace.ranges.select(columns).rows() == [
        ("op", 4, 7, 0xFF00FF00, None, "nvtx"),
        ("unknown", None, None, None, None, "nvtx"),
        ("user", None, None, None, -5, "nvtx"),
        ("user", None, None, None, None, "nvtx"),
        ("user", None, None, None, None, "nvtx"),
    ]


def test_calls_of_two_processes_keep_their_process(trace: Trace) -> None:
    columns = ["pid", "tid", "start_ns", "end_ns", "name", "api", "correlation_id", "return_code"]
    assert trace.calls.select(columns).rows() == [
        (100, 100, 22, 25, "cudaLaunchKernel", "cuda_runtime", 1, 0),
        (200, 200, 32, 36, "cudaLaunchKernel", "cuda_driver", 1, 1),
    ]


def test_work(trace: Trace) -> None:
    columns = ["pid", "device_id", "stream_id", "start_ns", "end_ns", "kind", "name", "full_name", "correlation_id"]
    assert trace.work.select(columns).rows() == [
        (100, 0, 7, 40, 50, "kernel", "gemm", "void gemm<float>(int)", 1),
        (200, 1, 7, 45, 52, "kernel", "gemm", "void gemm<float>(int)", 1),
        (100, 0, 7, 53, 55, "sync", "Stream sync", None, 2),
    ]
    sizes = ["grid_x", "grid_y", "block_x", "registers", "static_shared_bytes", "is_overhead"]
    assert trace.work.select(sizes).row(0) == (8, 1, 128, 32, 1024, False)


def test_threads_have_the_name_that_the_program_gave_them(trace: Trace) -> None:
    assert trace.threads.select("pid", "tid", "name").rows() == [
        (100, 100, "main"),
        (200, 200, None),
        (200, 201, "worker"),
    ]


def test_processes_that_no_list_names_are_there_too(trace: Trace, age: str) -> None:
    named = None if age == "2019" else "python"
    assert trace.processes.select("pid", "name").sort("pid").rows() == [(100, named), (200, None)]


def test_metadata(trace: Trace, age: str) -> None:
    product, schema = build.VERSIONS.get(age, (None, None))
    assert trace.metadata.tool_version == product
    assert trace.metadata.options["schema_version"] == schema
    assert trace.origin_utc_ns == (None if age == "2019" else build.UTC_NS)
    assert trace.metadata.options.get("command_line") == (None if age < "2023" else "python 'my train.py'")
    assert "secret" not in str(trace.metadata)


def test_the_only_issue_is_the_open_range(trace: Trace) -> None:
    assert trace.issues.select("code", "count").rows() == [("open_ranges", 1)]


@pytest.mark.parametrize("kind", ["parquetdir", "arrowdir"])
def test_folders_hold_what_the_database_holds(age: str, trace: Trace, kind: str, tmp_path: Path) -> None:
    path = build.folder(tmp_path / kind, build.tables_of(age), kind)
    other = opspan.load(path)
    for name, frame in trace.frames.items():
        columns = pl.selectors.exclude("path")
        assert other.frames[name].select(columns).equals(frame.select(columns)), name
