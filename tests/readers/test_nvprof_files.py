"""Real nvprof files against their own SQL: every row is in a frame or counted, and the times add up."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

import opspan
from opspan import analysis
from opspan.errors import NotATrace
from opspan.trace import Trace

FILES = ("lm_emit_nvtx.sql", "ort_markers.nvvp", "nccl_4gpu.nvvp")

KINDS = {
    "kernel": ("CONCURRENT_KERNEL", "KERNEL", "CDP_KERNEL"),
    "memcpy": ("MEMCPY", "MEMCPY2"),
    "memset": ("MEMSET",),
    "sync": ("SYNCHRONIZATION",),
    "other": ("OVERHEAD",),
}
# Tables that describe the program and its machine, and hold no events.
DESCRIBING = ("CONTEXT", "DEVICE", "DEVICE_ATTRIBUTE", "NAME", "NVLINK", "PCIE", "STREAM")
READ = (*(name for names in KINDS.values() for name in names), "RUNTIME", "DRIVER", "MARKER", "MARKER_DATA")

RANGES = """
SELECT one.timestamp, other.timestamp
FROM CUPTI_ACTIVITY_KIND_MARKER AS one
LEFT JOIN CUPTI_ACTIVITY_KIND_MARKER AS other ON other.id = one.id AND other.flags = 4
WHERE one.flags IN (1, 2)
"""
NAMES_OF_RANGES = """
SELECT value, count(*)
FROM CUPTI_ACTIVITY_KIND_MARKER
JOIN StringTable ON name = StringTable._id_
WHERE flags IN (1, 2)
GROUP BY value
"""
THREADS_OF_CALLS = """
SELECT processId, threadId & 0xffffffff, cbid, count(*), sum(end - start)
FROM CUPTI_ACTIVITY_KIND_RUNTIME
GROUP BY 1, 2, 3
"""
KERNELS = """
SELECT value, deviceId, streamId, count(*), sum(end - start), sum(gridX), sum(registersPerThread)
FROM CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL
JOIN StringTable ON name = StringTable._id_
GROUP BY 1, 2, 3
"""

Both = tuple[Trace, sqlite3.Connection]


@pytest.fixture(scope="module", params=FILES)
def both(request: pytest.FixtureRequest, traces_dir: Path) -> Iterator[Both]:
    path = traces_dir / "nvprof" / request.param
    if not path.is_file():
        pytest.skip(f"{path.name} is not among the recorded traces")
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    yield opspan.load(path), connection
    connection.close()


def of_frame(trace: Trace, frame: pl.DataFrame) -> tuple[int, int, int]:
    """The same on the file's clock."""
    zero = trace.origin_utc_ns or 0
    ends = frame["end_ns"].drop_nulls()
    starts = sum(frame["start_ns"].to_list()) + zero * frame.height  # past 64 bits
    return frame.height, starts, sum(ends.to_list()) + zero * len(ends)


def test_ranges(both: Both) -> None:
    trace, connection = both
    rows = connection.execute(RANGES).fetchall()
    starts, ends = sum(start for start, _ in rows), sum(end for _, end in rows if end is not None)
    assert of_frame(trace, trace.ranges) == (len(rows), starts, ends)


def test_every_range_has_its_name(both: Both) -> None:
    trace, connection = both
    texts = trace.ranges.select(pl.coalesce("text", pl.col("name").cast(pl.String)).alias("text"))
    assert dict(texts.group_by("text").len().rows()) == dict(connection.execute(NAMES_OF_RANGES))


@pytest.mark.parametrize("api", ["runtime", "driver"])
def test_calls(both: Both, api: str) -> None:
    trace, connection = both
    calls = trace.calls.filter(pl.col("api") == f"cuda_{api}")
    assert of_frame(trace, calls) == summed(connection, api.upper())


def summed(connection: sqlite3.Connection, *tables: str) -> tuple[int, int, int]:
    """Rows, sum of starts, sum of ends. Sums of times since 1970 do not fit SQLite's 64 bits."""
    query = "SELECT start, end FROM CUPTI_ACTIVITY_KIND_{}"
    rows = [row for table in tables if has(connection, table) for row in connection.execute(query.format(table))]
    return len(rows), sum(start for start, _ in rows), sum(end for _, end in rows)


def has(connection: sqlite3.Connection, table: str) -> bool:
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    return connection.execute(query, (f"CUPTI_ACTIVITY_KIND_{table}",)).fetchone() is not None


def test_threads_of_calls(both: Both) -> None:
    from opspan.readers.nvprof.cbids import RUNTIME

    trace, connection = both
    calls = trace.calls.filter(pl.col("api") == "cuda_runtime")
    found = calls.group_by("pid", "tid", "name").agg(pl.len(), (pl.col("end_ns") - pl.col("start_ns")).sum())
    expected = [(pid, tid, RUNTIME[cbid], *rest) for pid, tid, cbid, *rest in connection.execute(THREADS_OF_CALLS)]
    assert sorted(found.rows()) == sorted(expected)


@pytest.mark.parametrize("kind", KINDS)
def test_work(both: Both, kind: str) -> None:
    trace, connection = both
    assert of_frame(trace, trace.work.filter(pl.col("kind") == kind)) == summed(connection, *KINDS[kind])


def test_kernels_by_name_and_stream(both: Both) -> None:
    from opspan.formats.demangle import demangled

    trace, connection = both
    kernels = trace.work.filter(pl.col("kind") == "kernel")
    found = kernels.group_by("full_name", "device_id", "stream_id").agg(
        pl.len(),
        (pl.col("end_ns") - pl.col("start_ns")).sum(),
        pl.col("grid_x").sum(),
        pl.col("registers").sum(),
    )
    expected = [(demangled(name), *rest) for name, *rest in connection.execute(KERNELS)]
    assert sorted(found.rows()) == sorted(expected)
    assert not any(name.startswith("_Z") for name, *_ in expected)


def test_nothing_is_uncounted(both: Both) -> None:
    trace, connection = both
    names = connection.execute("SELECT name FROM sqlite_master WHERE name LIKE 'CUPTI_ACTIVITY_KIND_%'")
    rest = [name for (name,) in names if name.removeprefix("CUPTI_ACTIVITY_KIND_") not in (*READ, *DESCRIBING)]
    rows = sum(connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in rest)
    counted = trace.issues.filter(pl.col("code") == "skipped_tables")["count"].sum()
    assert counted == rows
    assert set(trace.issues["code"].cast(pl.String)) <= {"skipped_tables"}


def test_every_work_has_its_call(both: Both) -> None:
    trace, _ = both
    analysed = analysis.attribute(trace)
    found = analysis.coverage(analysed.ranges, analysed.calls, analysed.work)
    assert found.work_with_call.count == found.work_with_call.of > 0
    assert found.ambiguous_work == 0


def test_every_backward_op_of_the_transformer_has_its_forward(traces_dir: Path) -> None:
    path = traces_dir / "nvprof" / "lm_emit_nvtx.sql"
    if not path.is_file():
        pytest.skip(f"{path.name} is not among the recorded traces")
    ranges = analysis.attribute(opspan.load(path)).ranges
    links = dict(ranges["link"].cast(pl.String).drop_nulls().value_counts().rows())
    # The last two have no forward op at all: AccumulateGrad, and the root of the graph.
    assert links == {"linked": 108, "no seq": 28, "made by the backward itself": 1}
    linked = ranges.filter(pl.col("forward").is_not_null())
    forward = ranges[linked["forward"]]
    assert (linked["seq"] == forward["seq"]).all()
    assert (linked["tid"] != forward["tid"]).all()
    assert (linked["start_ns"] >= forward["end_ns"]).all()


def test_a_session_holds_no_data(traces_dir: Path) -> None:
    path = traces_dir / "nvprof" / "session.xml.nvvp"
    if not path.is_file():
        pytest.skip(f"{path.name} is not among the recorded traces")
    with pytest.raises(NotATrace, match="session of the Visual Profiler"):
        opspan.load(path)


def test_faults_of_processors_are_points_in_time_and_no_issue(traces_dir: Path) -> None:
    path = traces_dir / "nvprof" / "cpu_faults.prof"
    if not path.is_file():
        pytest.skip(f"{path.name} is not among the recorded traces")
    trace = opspan.load(path)
    faults = trace.memory.filter(pl.col("name").cast(pl.String) == "CPU page fault")
    assert (faults.height, faults["end_ns"].count()) == (118, 0)
    assert trace.memory.filter(pl.col("event") == "transfer")["end_ns"].null_count() == 0
    assert trace.issues.is_empty()
