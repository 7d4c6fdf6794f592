"""Real exports of many versions, against their own SQL: every row is in a frame or counted, and the times add up."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

import opspan
from opspan.trace import Trace

FILES = """train_fsdp_2gpu infer_2gpu nvfuser_2025 nvfuser_2024 pyprof_2024 mpi_saxpy_2022 push_pop_and_start_end_2022
graph_trace_2024 torch_lm_2025 cudf_2020 dlprof_2022 graph_nodes open_ranges""".split()

CALLS = {
    "CUPTI_ACTIVITY_KIND_RUNTIME": ("cuda_runtime", "cuda_driver", "cuda_backtrace"),
    "OSRT_API": ("osrt",),
    "CUDNN_EVENTS": ("cudnn",),
    "CUBLAS_EVENTS": ("cublas",),
    "CUDA_GRAPH_EVENTS": ("cuda_graph",),
}
WORK = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "kernel",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "memcpy",
    "CUPTI_ACTIVITY_KIND_MEMSET": "memset",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "sync",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "graph",
}
OVERHEAD = ("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD")
# Tables that describe the file, its machine, or other tables, and hold no events.
DESCRIBING = ("ENUM_", "TARGET_INFO_", "META_DATA_", "ANALYSIS_", "NVTX_PAYLOAD_", "EXPORT_META_DATA")
DESCRIBING_NAMES = {"StringIds", "ThreadNames", "PROCESSES", "ProcessStreams", "UnwindMethodType", "DomainStrings"}
DESCRIBING_NAMES |= {"MemcpyOperationStrings", "DIAGNOSTIC_EVENT", "SAMPLING_CALLCHAINS"}
RANGES_AND_MARKS = "SELECT count(*), sum(start), sum(end) FROM NVTX_EVENTS WHERE eventType IN (34, 59, 60, 70, 71)"


@pytest.fixture(scope="module", params=FILES)
def both(request: pytest.FixtureRequest, traces_dir: Path) -> Iterator[tuple[Trace, sqlite3.Connection]]:
    path = traces_dir / "nsys" / f"{request.param}.sqlite"
    if not path.is_file():
        pytest.skip(f"{path.name} is not among the recorded traces")
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    yield opspan.load(path), connection
    connection.close()


Both = tuple[Trace, sqlite3.Connection]


def has(connection: sqlite3.Connection, table: str) -> bool:
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    return connection.execute(query, (table,)).fetchone() is not None


def of_sql(connection: sqlite3.Connection, table: str, query: str = "") -> tuple[int, int, int]:
    """Rows, sum of starts, sum of ends."""
    if not has(connection, table):
        return 0, 0, 0
    rows = connection.execute(query or f"SELECT count(*), sum(start), sum(end) FROM {table}").fetchone()
    return tuple(value or 0 for value in rows)


def of_frame(frame: pl.DataFrame) -> tuple[int, int, int]:
    return frame.height, frame["start_ns"].sum() or 0, frame["end_ns"].sum() or 0


@pytest.mark.slow
def test_ranges_and_marks(both: Both) -> None:
    trace, connection = both
    assert of_frame(trace.ranges) == of_sql(connection, "NVTX_EVENTS", RANGES_AND_MARKS)


def test_calls(both: Both) -> None:
    trace, connection = both
    for table, apis in CALLS.items():
        assert of_frame(trace.calls.filter(pl.col("api").is_in(apis))) == of_sql(connection, table), table


def test_work(both: Both) -> None:
    trace, connection = both
    for table, kind in WORK.items():
        assert of_frame(trace.work.filter(pl.col("kind") == kind)) == of_sql(connection, table), table
    overhead = [of_sql(connection, table) for table in OVERHEAD]
    assert of_frame(trace.work.filter("is_overhead")) == tuple(map(sum, zip(*overhead, strict=True)))


def test_bytes_of_copies(both: Both) -> None:
    trace, connection = both
    query = "SELECT sum(bytes) FROM CUPTI_ACTIVITY_KIND_MEMCPY"
    expected = connection.execute(query).fetchone()[0] if has(connection, "CUPTI_ACTIVITY_KIND_MEMCPY") else None
    assert (trace.work.filter(pl.col("kind") == "memcpy")["bytes"].sum() or None) == expected


def test_samples(both: Both) -> None:
    trace, connection = both
    rows = (
        connection.execute("SELECT count(*), sum(cpuCycles) FROM COMPOSITE_EVENTS").fetchone()
        if has(connection, "COMPOSITE_EVENTS")
        else (0, None)
    )
    assert (trace.samples.height, trace.samples["weight"].sum() or None) == tuple(rows)


def test_nothing_is_uncounted(both: Both) -> None:
    trace, connection = both
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    rows = {name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in names}
    events = {name: n for name, n in rows.items() if name not in DESCRIBING_NAMES and not name.startswith(DESCRIBING)}

    described = 0  # names of domains, threads and categories
    if has(connection, "NVTX_EVENTS"):
        described = rows["NVTX_EVENTS"] - of_sql(connection, "NVTX_EVENTS", RANGES_AND_MARKS)[0]
    codes = ("skipped_tables", "no_time", "unknown_units")
    counted = trace.issues.filter(pl.col("code").is_in(codes))["count"].sum()
    frames = (trace.ranges, trace.calls, trace.work, trace.memory, trace.samples, trace.counters)

    assert sum(frame.height for frame in frames) + counted + described == sum(events.values())


def test_names_are_those_of_the_file(both: Both) -> None:
    trace, connection = both
    if not has(connection, "CUPTI_ACTIVITY_KIND_KERNEL"):
        pytest.skip("no kernels in this file")
    join = "CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON StringIds.id = demangledName"
    query = f"SELECT value, count(*) FROM {join} GROUP BY 1"
    kernels = trace.work.filter(pl.col("kind") == "kernel").group_by(pl.col("full_name").cast(pl.String)).len()
    assert dict(kernels.rows()) == dict(connection.execute(query).fetchall())


def test_processes_and_threads_of_every_row_are_listed(both: Both) -> None:
    trace, _ = both
    for frame in (trace.ranges, trace.calls):
        threads = frame.select("pid", "tid").unique().drop_nulls()
        assert threads.join(trace.threads, on=["pid", "tid"], how="anti").is_empty()
    assert set(trace.work["pid"].drop_nulls()) <= set(trace.processes["pid"])
    assert set(trace.work["device_id"].drop_nulls()) <= set(trace.devices["device_id"])


def test_a_node_of_a_graph_leads_back_to_where_it_was_made(traces_dir: Path) -> None:
    trace = opspan.load(traces_dir / "nsys" / "graph_nodes.sqlite")
    made = trace.calls.filter(pl.col("graph_node_id").is_not_null())
    run = trace.work.filter(pl.col("graph_node_id").is_not_null()).select("pid", "graph_node_id").unique()

    cloned = run.join(made, on=["pid", "graph_node_id"]).filter(pl.col("original_graph_node_id").is_not_null())
    origins = cloned.join(made, left_on=["pid", "original_graph_node_id"], right_on=["pid", "graph_node_id"])

    assert run.join(made, on=["pid", "graph_node_id"], how="anti").is_empty()
    assert cloned.height == origins.height > 0


@pytest.mark.parametrize("others", [False, True], ids=["kernels", "all work"])
def test_work_without_a_process_is_of_that_of_its_correlation_id(
    others: bool, traces_dir: Path, tmp_path: Path
) -> None:
    whole = traces_dir / "nsys" / "torch_lm_2025.sqlite"  # two processes
    shutil.copyfile(whole, tmp_path / "run.sqlite")
    tables = [table for table, kind in WORK.items() if others or kind == "kernel"]
    with sqlite3.connect(tmp_path / "run.sqlite") as database:
        there = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        for table in tables:
            if table in there:
                database.execute(f"ALTER TABLE {table} DROP COLUMN globalPid")

    found, expected = opspan.load(tmp_path / "run.sqlite"), opspan.load(whole)

    assert found.work["pid"].equals(expected.work["pid"])
    assert found.analysed.attributed.work["range"].equals(expected.analysed.attributed.work["range"])
