"""Shares of idle time, attributed time and waiting are those of a file's own rows, read by SQL and as JSON."""

from __future__ import annotations

import bisect
import gzip
import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

import opspan
from opspan.analysis import Analysis
from opspan.questions import Options, question

# Work has process, device, start, end, and the start of its launch; other rows have process, start, end.
NSYS_PID, NSYS_TABLES = "globalPid / 0x1000000", ("KERNEL", "MEMCPY", "MEMSET")
NSYS_WORK = f"""
    SELECT {NSYS_PID}, deviceId, w.start, w.end, c.start
    FROM CUPTI_ACTIVITY_KIND_{{}} AS w
    LEFT JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS c
      ON c.correlationId = w.correlationId AND c.globalTid / 0x1000000 = {NSYS_PID}
"""
NSYS_ELSE = (
    "SELECT globalTid / 0x1000000, start, coalesce(end, start) FROM NVTX_EVENTS",
    "SELECT globalTid / 0x1000000, start, end FROM CUPTI_ACTIVITY_KIND_RUNTIME",
    f"SELECT {NSYS_PID}, start, end FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
)
NVPROF_TABLES = ("CONCURRENT_KERNEL", "MEMCPY", "MEMSET")
NVPROF_WORK = """
    SELECT 0, deviceId, w.start, w.end, min(c.start)
    FROM CUPTI_ACTIVITY_KIND_{} AS w
    LEFT JOIN (
      SELECT correlationId, start FROM CUPTI_ACTIVITY_KIND_RUNTIME
      UNION ALL
      SELECT correlationId, start FROM CUPTI_ACTIVITY_KIND_DRIVER
    ) AS c USING (correlationId)
    GROUP BY w._id_
"""
NVPROF_ELSE = (
    "SELECT 0, timestamp, timestamp FROM CUPTI_ACTIVITY_KIND_MARKER",
    "SELECT 0, start, end FROM CUPTI_ACTIVITY_KIND_RUNTIME",
    "SELECT 0, start, end FROM CUPTI_ACTIVITY_KIND_DRIVER",
    "SELECT 0, start, end FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
)
ROCPD_WORK = """
    SELECT 0, gpuId, o.start, o.end, a.start
    FROM rocpd_op AS o
    LEFT JOIN rocpd_api_ops AS j ON j.op_id = o.id
    LEFT JOIN rocpd_api AS a ON a.id = j.api_id
"""
ROCPD_ELSE = ("SELECT 0, start, end FROM rocpd_api",)
QUERIES = {
    "nsys/infer_2gpu.sqlite": ([NSYS_WORK.format(table) for table in NSYS_TABLES], NSYS_ELSE),
    "nsys/nvfuser_2025.sqlite": ([NSYS_WORK.format(table) for table in NSYS_TABLES], NSYS_ELSE),
    "nsys/torch_lm_2025.sqlite": ([NSYS_WORK.format(table) for table in NSYS_TABLES], NSYS_ELSE),
    "nsys/train_fsdp_2gpu.sqlite": ([NSYS_WORK.format(table) for table in NSYS_TABLES], NSYS_ELSE),
    "nvprof/lm_emit_nvtx.sql": ([NVPROF_WORK.format(table) for table in NVPROF_TABLES], NVPROF_ELSE),
    "nvprof/nccl_4gpu.nvvp": ([NVPROF_WORK.format(table) for table in NVPROF_TABLES], NVPROF_ELSE),
    "rocpd/matmul_result_large.rpd": ([ROCPD_WORK], ROCPD_ELSE),
    "rocpd/torch_autograd.rpd": ([ROCPD_WORK], ROCPD_ELSE),
}
WHY = ("host_ns", "launch_ns", "queued_ns", "unknown_ns")
MATCHED_STREAM = 203  # a stream that has the same number of collectives on both ranks of the sampled job


class Work(NamedTuple):
    start: int
    end: int
    called: int | None


def work_and_times(path: Path, name: str) -> tuple[dict[tuple[int, int], list[Work]], dict[int, tuple[int, int]]]:
    """The work of each device of each process, and when each process began and ended."""
    of_work, of_others = QUERIES[name]
    work: dict[tuple[int, int], list[Work]] = defaultdict(list)
    times: dict[int, list[int]] = defaultdict(list)
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as file:
        for query in of_work:
            for pid, device, *row in file.execute(query):
                work[pid, device].append(Work(*row))
                times[pid] += row[:2]
        for query in of_others:
            for pid, start, end in file.execute(query):
                times[pid] += (start, end)
    return work, {pid: (min(known), max(known)) for pid, known in times.items()}


def idle_times(work: Iterable[Work], begin: int, end: int) -> dict[str, int]:
    """The idle time of a device by reason, and what lies before its first work."""
    sums = dict.fromkeys((*WHY, "before_work_ns"), 0)
    rows = sorted((one for one in work if one.end > one.start), key=lambda one: one.start)
    calls: dict[int, list[int]] = defaultdict(list)
    for row in rows:
        calls[row.start] += [] if row.called is None else [row.called]
    at = begin
    for row in rows:
        if row.start > at:
            called = min(calls[row.start], default=None)
            if at == begin:
                sums["before_work_ns"] += row.start - at
            if called is None or called > row.start:
                sums["unknown_ns"] += row.start - at
            elif called < at:
                sums["queued_ns"] += row.start - at
            else:
                sums["host_ns"] += called - at
                sums["launch_ns"] += row.start - called
        at = max(at, row.end)
    sums["unknown_ns"] += end - at
    return sums


def loaded(traces_dir: Path, *names: str) -> Analysis:
    for name in names:
        if not (traces_dir / name).exists():
            pytest.skip(f"{name} is not among the recorded traces")
    return opspan.load(*(traces_dir / name for name in names)).analysed


@pytest.mark.parametrize("name", QUERIES)
def test_idle_time_and_its_reasons(name: str, traces_dir: Path) -> None:
    found = loaded(traces_dir, name)
    work, times = work_and_times(traces_dir / name, name)
    sums = dict.fromkeys((*WHY, "before_work_ns"), 0)
    for (pid, _), rows in work.items():
        for why, ns in idle_times(rows, *times[pid]).items():
            sums[why] += ns
    reasons = {why: sums[why] for why in WHY}
    for by in ("op", "module", "function", "device"):
        rows = question("idle").rows_of(found, Options(by))
        assert {why: rows[why].sum() for why in WHY} == reasons, by
        assert rows["time_ns"].sum() == sum(reasons.values())
    row = question("summary").answer_of(found, Options()).rows.row(0, named=True)
    assert row["device_time_ns"] == sum(times[pid][1] - times[pid][0] for pid, _ in work)
    assert (row["idle_ns"], row["before_work_ns"]) == (sum(reasons.values()), sums["before_work_ns"])
    assert row["busy_ns"] == row["device_time_ns"] - row["idle_ns"]


@pytest.mark.parametrize("name", ["nsys/torch_lm_2025.sqlite", "nsys/train_fsdp_2gpu.sqlite"])
def test_time_that_belongs_to_a_range(name: str, traces_dir: Path) -> None:
    found = loaded(traces_dir, name)
    of_work = " UNION ALL ".join(
        f"SELECT {NSYS_PID} AS pid, start, end, correlationId FROM CUPTI_ACTIVITY_KIND_{table}" for table in NSYS_TABLES
    )
    launched = f"""
        SELECT c.globalTid, c.start, w.end - w.start
        FROM ({of_work}) AS w
        JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS c
          ON c.correlationId = w.correlationId AND c.globalTid / 0x1000000 = w.pid
    """
    ranges = "SELECT globalTid, start, end FROM NVTX_EVENTS WHERE end > start ORDER BY start"
    begins: dict[int, list[int]] = defaultdict(list)
    ends: dict[int, list[int]] = defaultdict(list)
    with closing(sqlite3.connect(f"file:{traces_dir / name}?mode=ro", uri=True)) as file:
        for tid, start, end in file.execute(ranges):
            begins[tid].append(start)
            ends[tid].append(max(end, ends[tid][-1] if ends[tid] else 0))
        rows = file.execute(launched).fetchall()
        (whole,) = file.execute(f"SELECT sum(end - start) FROM ({of_work})").fetchone()
    inside = [
        ns for tid, at, ns in rows if (place := bisect.bisect_right(begins[tid], at)) and ends[tid][place - 1] >= at
    ]
    known = found.coverage
    assert (known.work_in_range.ns, known.work_in_range.of_ns) == (sum(inside), whole)
    assert known.work_in_range.count == len(inside)
    assert (known.work_with_call.ns, known.work_with_call.count) == (sum(ns for *_, ns in rows), len(rows))


def test_waiting_of_ranks_that_only_some_collectives_match(traces_dir: Path) -> None:
    names = [f"kineto/rank{rank}_sampled.json.gz" for rank in (0, 1)]
    found = loaded(traces_dir, *names)
    lasted: list[list[int]] = []
    every = 0
    for name in names:
        with gzip.open(traces_dir / name) as file:
            events = [one for one in json.load(file)["traceEvents"] if one.get("name", "").startswith("ncclKernel")]
        every += sum(int(one["dur"]) * 1000 for one in events)
        events.sort(key=lambda one: one["ts"])
        lasted.append([int(one["dur"]) * 1000 for one in events if one["args"]["stream"] == MATCHED_STREAM])
    pairs = list(zip(*lasted, strict=True))
    took = sum(map(sum, pairs))
    waited = took - sum(2 * min(pair) for pair in pairs)
    assert took < every
    answer = question("comm").answer_of(found, Options("group"))
    (row,) = answer.rows.to_dicts()
    assert (row["time_ns"], row["matched_ns"], row["waiting_ns"]) == (every, took, waited)
    (shown,) = (one for one in answer.fields if one.title == "Waiting")
    assert shown.cells(answer.rows) == [f"{100 * waited / took:.1f}%"] == ["0.8%"]


def test_waiting_of_two_devices(traces_dir: Path) -> None:
    """One of the kernels of each device sends and receives, and nothing says with whom."""
    name = "nsys/train_fsdp_2gpu.sqlite"
    found = loaded(traces_dir, name)
    query = """
        SELECT deviceId, k.end - k.start
        FROM CUPTI_ACTIVITY_KIND_KERNEL AS k JOIN StringIds ON id = shortName
        WHERE value LIKE 'nccl%'
        ORDER BY k.start
    """
    lasted: dict[int, list[int]] = defaultdict(list)
    with closing(sqlite3.connect(f"file:{traces_dir / name}?mode=ro", uri=True)) as file:
        for device, ns in file.execute(query):
            lasted[device].append(ns)
    pairs = list(zip(lasted[0][1:], lasted[1][1:], strict=True))
    rows = {row["device_id"]: row for row in question("comm").rows_of(found, Options("rank")).to_dicts()}
    for device in (0, 1):
        took = sum(pair[device] for pair in pairs)
        assert rows[device]["matched_ns"] == took < rows[device]["time_ns"] == sum(lasted[device])
        assert rows[device]["waiting_ns"] == took - sum(map(min, pairs))
