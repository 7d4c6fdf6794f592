"""rocpd: both forms by hand, and real files against their own SQL."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import opspan
from builders.rocpd import rocprof, rpd
from opspan.analysis import attribute
from opspan.trace import Trace


def rows(frame: pl.DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    texts = [name for name, dtype in frame.schema.items() if dtype in (pl.Categorical, pl.Enum)]
    return frame.with_columns(pl.col(texts).cast(pl.String)).select(columns).rows()


def issues(trace: Trace) -> dict[str, int]:
    return dict(rows(trace.issues, "code", "count"))


@pytest.mark.parametrize("joined", [False, True])
def test_rocprof_has_markers_calls_kernels_copies_of_every_run(joined: bool, tmp_path: Path) -> None:
    trace = opspan.load(rocprof(tmp_path / "run.db", joined))

    assert rows(trace.ranges, "pid", "tid", "start_ns", "end_ns", "name", "kind", "seq", "op_id", "sizes") == [
        (100 + run, 200 + run, 1000, 5000, "aten::mm", "op", 3, 7, "[[2, 4], [4, 2]]") for run in (0, 1)
    ]
    assert rows(trace.calls, "pid", "name", "api") == [
        (100 + run, name, "hip_runtime") for run in (0, 1) for name in ("hipLaunchKernel", "hipMemcpy")
    ]
    kernels = trace.work.filter(pl.col("kind") == "kernel")
    assert rows(kernels, "pid", "device_id", "stream_id", "full_name", "grid_x", "block_x", "dynamic_shared_bytes") == [
        (100 + run, run, 4, "gemm(float)", 4, 256, 64) for run in (0, 1)
    ]
    copies = trace.work.filter(pl.col("kind") == "memcpy")
    assert rows(copies, "device_id", "bytes", "copy_from", "copy_to") == [
        (run, 4096, "host", "device") for run in (0, 1)
    ]
    assert rows(trace.memory, "device_id", "event", "bytes") == [(run, "alloc", 64) for run in (0, 1)]
    assert rows(trace.processes, "pid", "parent_pid", "command_line") == [
        (100 + run, 1, "python train.py") for run in (0, 1)
    ]
    assert rows(trace.threads, "pid", "tid", "name") == [(100 + run, 200 + run, "main") for run in (0, 1)]
    assert rows(trace.devices, "device_id", "name") == [(0, "MI300X"), (1, "MI300X")]
    assert (trace.metadata.source, trace.metadata.host) == ("rocpd", "box")
    assert issues(trace) == {"skipped_tables": 2}  # pmc_event

    work = attribute(trace).work
    assert rows(work.sort("pid", "start_ns"), "pid", "kind", "range") == [
        (100, "kernel", 0), (100, "memcpy", None), (101, "kernel", 1), (101, "memcpy", None)
    ]  # fmt: skip


LAUNCHED = {"WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "1f2e", "HF_TOKEN": "hf_secret"}


def test_a_process_is_the_rank_that_its_launcher_told_it(tmp_path: Path) -> None:
    told = [{**LAUNCHED, "RANK": rank, "LOCAL_RANK": rank} for rank in ("3", "1")]

    trace = opspan.load(rocprof(tmp_path / "run.db", environments=told))

    assert [(one.rank, one.rank_by, one.told.local_rank, one.told.run) for one in trace.ranks] == [
        (1, "RANK", 1, "torchrun 1f2e"),
        (3, "RANK", 3, "torchrun 1f2e"),
    ]
    assert {one.told.world_size for one in trace.ranks} == {4}
    for name in ("ranges", "calls", "work", "threads", "processes"):
        assert rows(trace.frames[name].unique(["rank", "pid"]).sort("rank"), "rank", "pid") == [(1, 101), (3, 100)]
    assert "hf_secret" not in str(trace.ranks)


@pytest.mark.parametrize("said", ["{", [], {"RANK": "1"}, {"RANK": "x", "WORLD_SIZE": "2"}, {"RANK": {}}, None])
def test_an_environment_that_says_nothing_is_one_rank(said: object, tmp_path: Path) -> None:
    trace = opspan.load(rocprof(tmp_path / "run.db", environments=[said, said]))

    assert [(one.rank, one.rank_by, one.told.rank) for one in trace.ranks] == [(0, "order", None)]


def test_rpd_has_ops_with_what_its_tools_found_and_graphs(tmp_path: Path) -> None:
    trace = opspan.load(rpd(tmp_path / "run.rpd"))

    assert rows(trace.ranges, "tid", "name", "kind", "seq", "op_id", "sizes") == [
        (100, "aten::linear", "op", 3, 8, "[[2, 4]]"),
        (101, "AddmmBackward0", "backward", 3, 9, None),
    ]
    assert rows(trace.calls, "name", "correlation_id", "payload_json") == [
        ("hipLaunchKernel", 12, None),
        ("hipGraphLaunch", 14, '{"args":"in a graph"}'),
        ("hipMemcpyAsync", 15, None),
    ]
    assert rows(trace.work, "device_id", "stream_id", "kind", "name", "correlation_id", "bytes", "grid_x") == [
        (0, 0, "kernel", "gemm", 12, None, 4),
        (1, 0, "kernel", "gemm", 14, None, None),
        (1, 0, "other", "Task", 14, None, None),
        (0, 1, "memcpy", "CopyHostToDevice", 15, 4096, None),
    ]
    assert rows(trace.counters, "time_ns", "name", "value") == [(1000, "gpu 0 sclk", 134.0)]
    assert trace.issues.is_empty()
    attributed = attribute(trace)
    assert attributed.work["range"].to_list() == [0, 1, 1, 0]
    assert rows(attributed.ranges, "forward", "link") == [(None, None), (0, "linked")]


@pytest.mark.parametrize("number", [0, 1])
def test_op_1_and_thread_1_are_some_and_0_is_none(tmp_path: Path, number: int) -> None:
    label = f"AddmmBackward0, seq = 3, op_id = {number}, fwd_tid = {number}"
    with closing(sqlite3.connect(rocprof(tmp_path / "run.db"))) as database, database:
        (table,) = one(database, "SELECT min(name) FROM sqlite_master WHERE name LIKE 'rocpd_region_%'")
        database.execute(f"UPDATE {table} SET extdata = json_object('message', ?) WHERE id = 1", [label])
    with closing(sqlite3.connect(rpd(tmp_path / "run.rpd"))) as database, database:
        database.execute("UPDATE rocpd_string SET string = ? WHERE string LIKE 'AddmmBackward0%'", [label])

    of_rocprof, of_rpd = (opspan.load(tmp_path / name).ranges for name in ("run.db", "run.rpd"))

    backward = pl.col("name") == "AddmmBackward0"
    assert rows(of_rocprof.filter(backward), "seq", "op_id", "forward_tid") == [(3, number or None, number or None)]
    assert rows(of_rpd.filter(backward), "seq", "op_id") == [(3, number or None)]


def test_what_a_call_says_of_one_kernel_is_not_said_of_several_in_whatever_order(tmp_path: Path) -> None:
    path = rpd(tmp_path / "run.rpd")
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE rocpd_api_ops SET api_id = 12 WHERE op_id = 23")

    work = opspan.load(path).work

    assert rows(work, "correlation_id", "grid_x") == [(12, None), (14, None), (12, None), (15, None)]


def test_a_real_rpd_file_holds_what_its_sql_says(traces_dir: Path) -> None:
    path = traces_dir / "rocpd" / "torch_autograd.rpd"
    trace = opspan.load(path)
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
        marked = one(database, "SELECT count(*), sum(end - start) FROM api WHERE apiName = 'UserMarker'")
        called = one(database, "SELECT count(*), sum(end - start) FROM api WHERE apiName <> 'UserMarker'")
        worked = one(database, "SELECT count(*), sum(end - start) FROM rocpd_op")
        seqs = one(database, "SELECT count(*), sum(seq) FROM autograd WHERE seq <> ''")
        names = dict(database.execute("SELECT autogradName, count(*) FROM autograd GROUP BY 1"))
        copied = one(
            database, "SELECT count(*) FROM rocpd_op JOIN rocpd_string s ON s.id = opType_id AND string LIKE 'Copy%'"
        )
        monitored = one(database, "SELECT count(*), sum(value) FROM rocpd_monitor")
        skipped = one(database, "SELECT count(*) FROM ext_callstack")
    assert sums(trace.ranges) == marked
    assert sums(trace.calls) == called
    assert sums(trace.work) == worked
    assert (trace.ranges["seq"].count(), trace.ranges["seq"].sum()) == seqs
    found = dict(trace.ranges["name"].cast(pl.String).value_counts().rows())
    assert {name: found[name] for name in names} == names
    assert trace.work.filter(pl.col("kind") == "memcpy").height == copied[0]
    assert (trace.counters.height, trace.counters["value"].sum()) == monitored
    assert issues(trace) == {"skipped_tables": skipped[0]}
    # The tracer gives every op the call that it came from.
    assert attribute(trace).work["call"].null_count() == 0


def test_a_real_rpd_file_with_an_empty_size_has_nothing_odd(traces_dir: Path) -> None:
    path = traces_dir / "rocpd" / "matmul_result_large.rpd"
    if not path.is_file():
        pytest.skip(f"{path.name} is not among the recorded traces")
    assert opspan.load(path).issues.is_empty()


@pytest.mark.parametrize("table", ["rocpd_copyapi", "rocpd_kernelapi", "rocpd_monitor"])
def test_what_rpd_does_not_know_is_an_empty_text(tmp_path: Path, table: str) -> None:
    path = rpd(tmp_path / "run.rpd")
    unknown = {"rocpd_copyapi": "size", "rocpd_kernelapi": "gridX", "rocpd_monitor": "value"}[table]
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"UPDATE {table} SET {unknown} = ''")

    trace = opspan.load(path)

    assert trace.issues.is_empty()
    assert trace.work["bytes"].null_count() == (4 if table == "rocpd_copyapi" else 3)

    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"UPDATE {table} SET {unknown} = 'none'")
    assert "odd_cells" in issues(opspan.load(path))


def test_a_real_rocprof_file_holds_what_its_sql_says(traces_dir: Path) -> None:
    path = traces_dir / "rocpd" / "rocprofv3.db"
    trace = opspan.load(path)
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
        called = dict(database.execute("SELECT name, count(*) FROM regions GROUP BY 1"))
        kernels = {name: (count, total) for name, count, total in database.execute(
            "SELECT name, count(*), sum(duration) FROM kernels GROUP BY 1"
        )}  # fmt: skip
        launched = sorted(database.execute(
            "SELECT k.start, r.start FROM kernels k JOIN regions r ON r.stack_id = k.stack_id"
        ))  # fmt: skip
        blocks = one(database, "SELECT sum(grid_x / workgroup_x) FROM kernels")
    assert dict(trace.calls["name"].cast(pl.String).value_counts().rows()) == called
    took = trace.work.group_by(pl.coalesce("full_name", "name").cast(pl.String)).agg(
        pl.len(), (pl.col("end_ns") - pl.col("start_ns")).sum()
    )
    assert {name: (count, total) for name, count, total in took.rows()} == kernels
    work = attribute(trace).work
    found = zip(work["start_ns"], trace.calls["start_ns"].gather(work["call"]), strict=True)
    assert sorted(found) == launched
    assert trace.work["grid_x"].sum() == blocks[0]
    # The arguments of calls are not read. What describes the run is nothing that is missing.
    assert trace.issues["message"].str.contains("rocpd_arg").to_list() == [True]
    assert not trace.issues["message"].str.contains("rocpd_info").any()
    assert trace.devices.height == 8


def sums(frame: pl.DataFrame) -> tuple[int, int]:
    return frame.height, (frame["end_ns"] - frame["start_ns"]).sum()


def one(database: sqlite3.Connection, sql: str) -> tuple[Any, ...]:
    row: tuple[Any, ...] = database.execute(sql).fetchone()
    return row
