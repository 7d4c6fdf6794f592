"""Real VTune results against their own SQL: every row is in a frame or counted, and the times add up."""

from __future__ import annotations

import sqlite3
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

import opspan
from opspan.trace import Trace

FILES = ("r001hs_2013/r001hs", "r000cc_2015", "r010hs_tasks/r010hs", "r000hs_2022/r000hs", "r001hs_2024/r001hs")
VERSIONS = {
    "r001hs_2013/r001hs": "3.62",
    "r000cc_2015": "8.102",
    "r010hs_tasks/r010hs": "9.211",
    "r000hs_2022/r000hs": "9.246",
}
# The text that the file has as the name of the model, and VTune's name of the microarchitecture.
PROCESSORS = {
    "r001hs_2013/r001hs": ("AMD Opteron(tm) Processor 6172", None),
    "r000cc_2015": ("Intel(R) Xeon(R) CPU E5-2620 v3 @ 2.40GHz", "haswell_server"),
    "r010hs_tasks/r010hs": ("Intel(R) Xeon(R) CPU E5-2630 v4 @ 2.20GHz", "broadwell_server"),
    "r000hs_2022/r000hs": ("Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz", "skylake_server"),
    "r001hs_2024/r001hs": ("Intel(R) Core(TM) i7-8750H CPU @ 2.20GHz", "skylake"),
}

TASKS = """
SELECT coalesce(d.name, ''), tt.name, p.pid, th.thread_id,
       1199145600000000000 + t.start_tsc / 10, 1199145600000000000 + t.end_tsc / 10
FROM task_data t
JOIN dd_task k ON k.rowid = t.attr
LEFT JOIN dd_task_type tt ON tt.rowid = k.type
LEFT JOIN dd_domain d ON d.rowid = tt.domain
LEFT JOIN dd_band b ON b.rowid = t.__bucket_idx
LEFT JOIN dd_thread th ON th.rowid = b.dd_thread
LEFT JOIN dd_process p ON p.rowid = th.process
ORDER BY t.start_tsc
"""
FRAMES = """
SELECT d.name, 1199145600000000000 + f.start_tsc / 10, 1199145600000000000 + f.end_tsc / 10
FROM frame_data f
JOIN dd_frame k ON k.rowid = f.attr
JOIN dd_domain d ON d.rowid = k.domain
ORDER BY f.start_tsc
"""
REGIONS = """
SELECT d.name, 1199145600000000000 + i.start_tsc / 10, 1199145600000000000 + i.end_tsc / 10
FROM region_data i
JOIN dd_region r ON r.rowid = i.attr
JOIN dd_domain d ON d.rowid = r.domain
ORDER BY i.start_tsc
"""
SAMPLES = """
SELECT p.pid, th.thread_id, count(*), sum(c.duration / 10)
FROM cpu_data c
JOIN dd_band b ON b.rowid = c.__bucket_idx
JOIN dd_thread th ON th.rowid = b.dd_thread
JOIN dd_process p ON p.rowid = th.process
GROUP BY 1, 2
ORDER BY 1, 2
"""
LEAVES = """
SELECT f.name, count(*)
FROM cpu_data c
JOIN dd_sample s ON s.rowid = c.attr
JOIN dd_callsite cs ON cs.rowid = s.callsite
JOIN dd_code_location l ON l.rowid = cs.code_loc
JOIN dd_function_range r ON r.rowid = l.func_range
JOIN dd_function_instance i ON i.rowid = r.func_inst
JOIN dd_function f ON f.rowid = i.function
WHERE i.type <> 2
GROUP BY 1
"""
FRAMES_OF_SITES = """
WITH RECURSIVE up(site, at, depth) AS (
    SELECT rowid, rowid, 0 FROM dd_callsite
    UNION ALL
    SELECT up.site, coalesce(c.parent, c.parent_raw), up.depth + 1
    FROM up
    JOIN dd_callsite c ON c.rowid = up.at
    WHERE coalesce(c.parent, c.parent_raw) > 0
)
SELECT s.rowid, f.name, coalesce(m.bin_path, '?')
FROM up
JOIN dd_sample s ON s.callsite = up.site
JOIN dd_callsite cs ON cs.rowid = up.at
JOIN dd_code_location l ON l.rowid = cs.code_loc
JOIN dd_function_range r ON r.rowid = l.func_range
JOIN dd_function_instance i ON i.rowid = r.func_inst
JOIN dd_function f ON f.rowid = i.function
LEFT JOIN dd_module_segment g ON g.rowid = i.mod_seg
LEFT JOIN dd_module_file m ON m.rowid = g.mod_file
WHERE i.type <> 2 OR coalesce(cs.parent, cs.parent_raw, -1) <= 0
ORDER BY s.rowid, up.depth DESC
"""
WAITS = """
SELECT p.pid, th.thread_id, replace(t.name, '%', 'Wait: '), replace(o.name, '%', ''),
       1199145600000000000 + w.start_tsc / 10, 1199145600000000000 + w.end_tsc / 10
FROM wait_data w
JOIN dd_wait k ON k.rowid = w.attr
JOIN dd_sync_object o ON o.rowid = k.sync_object
JOIN dd_sync_object_type t ON t.rowid = o.type
JOIN dd_thread_state s ON s.rowid = k.thread_state AND s.name = '%Wait'
JOIN dd_band b ON b.rowid = w.__bucket_idx
JOIN dd_thread th ON th.rowid = b.dd_thread
JOIN dd_process p ON p.rowid = th.process
ORDER BY w.start_tsc
"""
USAGE = """
SELECT 1199145600000000000 + c.start_tsc / 10, u.value
FROM cpu_usage_data c
JOIN dd_cpu_usage u ON u.rowid = c.attr
ORDER BY 1
"""
MARKER = "SELECT utc_time * 100, sys_tsc FROM dd_marker_info"
EVENTS = """
SELECT name FROM sqlite_master
WHERE type = 'table' AND name NOT GLOB 'dd_*' AND name NOT GLOB '_*' AND name NOT GLOB 'sqlite_*'
  AND name NOT GLOB '*_agg_band'
"""
READ = {"task_data", "wait_data", "frame_data", "region_data", "cpu_data_agg_data", "cpu_usage_data"}
ELAPSED = {"global_elapsed_time_data", "elapsed_time_data"}

Both = tuple[Trace, sqlite3.Connection, Path]


@pytest.fixture(scope="module", params=FILES)
def both(request: pytest.FixtureRequest, traces_dir: Path) -> Iterator[Both]:
    folder = traces_dir / "vtune" / request.param
    if not folder.is_dir():
        pytest.skip(f"{request.param} is not among the recorded traces")
    connection = sqlite3.connect(f"file:{folder}/sqlite-db/dicer.db?mode=ro&immutable=1", uri=True)
    yield opspan.load(folder), connection, folder
    connection.close()


def has(connection: sqlite3.Connection, table: str) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone() is not None


def rows(connection: sqlite3.Connection, query: str, table: str) -> list[tuple]:
    return connection.execute(query).fetchall() if has(connection, table) else []


def utc(trace: Trace, frame: pl.DataFrame) -> pl.DataFrame:
    times = [name for name in ("start_ns", "end_ns", "time_ns") if name in frame.columns]
    return frame.with_columns(pl.col(times) + trace.origin_utc_ns).sort(times[0], maintain_order=True)


@pytest.mark.slow
def test_tasks(both: Both) -> None:
    trace, connection, _ = both
    tasks = utc(trace, trace.ranges.filter(~pl.col("is_async")))
    found = tasks.select(pl.col("domain").fill_null(""), "name", "pid", "tid", "start_ns", "end_ns").rows()
    assert found == rows(connection, TASKS, "task_data")


def test_frames_and_regions(both: Both) -> None:
    trace, connection, _ = both
    found = utc(trace, trace.ranges.filter(pl.col("is_async")))
    expected = rows(connection, FRAMES, "frame_data") + rows(connection, REGIONS, "region_data")
    assert found.select("name", "start_ns", "end_ns").rows() == sorted(expected, key=lambda row: row[1])


def test_the_monotonic_clock_is_that_of_the_marker(both: Both) -> None:
    trace, connection, _ = both
    ((utc_ns, monotonic_ns),) = connection.execute(MARKER)
    assert trace.metadata.clock == "CLOCK_MONOTONIC_RAW"
    assert trace.origin_utc_ns == utc_ns - monotonic_ns


def test_user_mode_samples(both: Both) -> None:
    trace, connection, _ = both
    taken = trace.samples.filter(pl.col("event") == "Samples")
    found = taken.group_by("pid", "tid").agg(pl.len(), pl.col("weight").sum()).sort("pid", "tid").rows()
    assert found == rows(connection, SAMPLES, "cpu_data")


def test_the_innermost_function_is_that_of_the_sample(both: Both) -> None:
    trace, connection, _ = both
    expected = dict(rows(connection, LEAVES, "cpu_data"))
    if not expected:
        return
    leaves = trace.samples.select(pl.col("stack").cast(pl.String).str.split(";").list.last().alias("leaf"))
    found = dict(leaves.group_by("leaf").len().rows())
    # Loops are left out, so a function may have more samples than are in none of its loops.
    assert all(found[name.replace(";", ",")] >= count for name, count in expected.items())
    assert sum(found.values()) == trace.samples.height
    assert not any(name.startswith("[Loop") for name in found)


def records_of(folder: Path) -> list[tuple]:
    file = folder / "sqlite-db" / "pmu_data" / "end_tsc" / "0"
    return list(struct.iter_unpack("<Q7i3qd4x", file.read_bytes())) if file.is_file() else []


def test_each_function_of_a_stack_has_its_library(both: Both) -> None:
    """The SQL finds a module through the function. opspan finds it through the place in the code."""
    trace, connection, folder = both
    stacks: dict[int, list[tuple[str, str]]] = {}
    for sample, name, path in connection.execute(FRAMES_OF_SITES):
        stacks.setdefault(sample, []).append((name.replace(";", ","), path))
    sampled = [attr for (attr,) in rows(connection, "SELECT attr FROM cpu_data", "cpu_data")]
    sampled += [record[1] for record in records_of(folder)]
    expected = Counter(tuple(stacks[attr]) for attr in sampled if attr in stacks)
    stack, libraries = (trace.samples[name].cast(pl.String).str.split(";") for name in ("stack", "libraries"))
    pairs = zip(stack.drop_nulls().to_list(), libraries.drop_nulls().to_list(), strict=True)
    found = Counter(tuple(zip(functions, paths, strict=True)) for functions, paths in pairs)
    assert found == expected
    assert stack.null_count() == libraries.null_count()


def test_hardware_samples_of_the_container(both: Both) -> None:
    trace, _, folder = both
    records = records_of(folder)
    taken = trace.samples.filter(pl.col("event") != "Samples")
    counted = trace.counters.filter(~pl.col("name").is_in(["busy processors", "collecting"]))
    assert taken.height + counted.height == len(records)
    assert taken["weight"].sum() + int(counted["value"].sum()) == sum(record[9] for record in records)
    if taken.height:
        expected = sorted(1199145600000000000 + record[0] // 10 for record in records)
        assert utc(trace, taken)["time_ns"].to_list() == expected


def test_busy_processors(both: Both) -> None:
    trace, connection, _ = both
    busy = utc(trace, trace.counters.filter(pl.col("name") == "busy processors"))
    assert busy.select("time_ns", "value").rows() == rows(connection, USAGE, "cpu_usage_data")


def test_waits(both: Both) -> None:
    trace, connection, _ = both
    calls = utc(trace, trace.calls)
    object_of = pl.col("payload_json").str.json_path_match("$.object")
    found = calls.select("pid", "tid", "name", object_of, "start_ns", "end_ns").rows()
    assert found == rows(connection, WAITS, "wait_data")
    assert trace.waits("why")["count"].sum() == len(found)


def test_nothing_is_uncounted(both: Both) -> None:
    trace, connection, _ = both
    tables = [
        name for (name,) in connection.execute(EVENTS) if name not in READ | ELAPSED and "temp" not in name.lower()
    ]
    rest = sum(connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables)
    assert trace.issues.filter(pl.col("code") == "skipped_tables")["count"].sum() == rest
    assert set(trace.issues["code"].cast(pl.String)) <= {"skipped_tables", "no_tasks", "collection_paused"}


def test_the_result_with_tasks(traces_dir: Path) -> None:
    folder = traces_dir / "vtune" / "r010hs_tasks" / "r010hs"
    if not folder.is_dir():
        pytest.skip("r010hs_tasks is not among the recorded traces")
    trace = opspan.load(folder)
    assert trace.ranges.height == 81
    assert trace.ranges["tid"].n_unique() == 21
    assert set(trace.ranges["domain"].cast(pl.String)) == {"my domain"}
    named = trace.threads.filter(pl.col("name") == "my main")
    assert named.select("pid", "tid").rows() == [(1520690, 1520690)]
    assert trace.metadata.options["command_line"] == "./list-pmla --iterations=1M --threads=20 --parts=80"
    assert (trace.metadata.host, trace.metadata.tool_version) == ("granger1", "2020 Update 2")
    assert trace.issues.is_empty()
    assert len(opspan.load_vtune(folder)) == 81


@pytest.mark.parametrize("name", PROCESSORS)
def test_the_processor(traces_dir: Path, name: str) -> None:
    folder = traces_dir / "vtune" / name
    if not folder.is_dir():
        pytest.skip(f"{name} is not among the recorded traces")
    options = opspan.load(folder).metadata.options
    assert (options["processor"], options.get("microarchitecture")) == PROCESSORS[name]


@pytest.mark.parametrize("name", VERSIONS)
def test_schema_versions(traces_dir: Path, name: str) -> None:
    folder = traces_dir / "vtune" / name
    if not folder.is_dir():
        pytest.skip(f"{name} is not among the recorded traces")
    assert opspan.load(folder).metadata.options["schema_version"] == VERSIONS[name]
