"""Findings of recorded files of other people: their figures are computed again, from the file's own JSON or SQL."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections import Counter
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest

import opspan
from opspan.findings import Finding, findings

Spans = list[tuple[int, int]]
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset")


def said(traces_dir: Path, name: str) -> dict[str, Finding]:
    path = traces_dir / name
    if not path.exists():
        pytest.skip(f"{name} is not among the recorded traces")
    return _said(path)


@lru_cache
def _said(path: Path) -> dict[str, Finding]:
    return {finding.rule.id: finding for finding in findings(opspan.load(path).analysed)}


@lru_cache
def events_of(path: Path) -> list[dict[str, Any]]:
    """With begin and end in ns."""
    found = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
    rows = [one for one in (found["traceEvents"] if isinstance(found, dict) else found) if one.get("ph") == "X"]
    for one in rows:
        one["cat"] = str(one.get("cat")).lower()
        one["begin"] = int(one["ts"] * 1000)
        one["end"] = one["begin"] + int(one.get("dur", 0) * 1000)
    return rows


def sql(path: Path, query: str) -> list[tuple]:
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as file:
        return file.execute(query).fetchall()


def together(spans: Spans) -> Spans:
    found: Spans = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        elif end > begin:
            found.append((begin, end))
    return found


def time_in(spans: Spans, whole: Spans) -> int:
    return sum(max(0, min(end, until) - max(begin, since)) for begin, end in together(spans) for since, until in whole)


def steps_of(events: list[dict[str, Any]]) -> Spans:
    return [(one["begin"], one["end"]) for one in events if one["name"].startswith("ProfilerStep#")][:20]


def spans(events: list[dict[str, Any]], *cats: str) -> Spans:
    return [(one["begin"], one["end"]) for one in events if one["cat"] in cats]


def test_steps_that_took_longer(traces_dir: Path) -> None:
    name = "kineto/cpu_only.pt.trace.json.gz"
    found = said(traces_dir, name)["step-outliers"].evidence
    lengths = [end - begin for begin, end in steps_of(events_of(traces_dir / name))]
    assert len(lengths) == 5
    assert found.figures["usual_ns"] == median(lengths)
    assert found.figures["more_ns"] == max(lengths) - median(lengths)
    # The host does one thing after the other: all that took longer is gained. The mean is shorter than the median.
    others = sorted(lengths)[:-1]
    assert found.at_stake_ns == pytest.approx(max(lengths) - sum(others) / 4, rel=0.02)
    assert found.steps == ("ProfilerStep#553",)


@pytest.mark.parametrize("name", ["kineto/rank0_sampled.json.gz", "kineto/rank1_sampled.json.gz"])
def test_collectives_that_nothing_hides(name: str, traces_dir: Path) -> None:
    found = said(traces_dir, name)["communication-or-waiting"].evidence
    assert found.confidence == "possible"  # the file has one of several ranks
    events = events_of(traces_dir / name)
    kernels = [one for one in events if one["cat"] == "kernel"]
    collectives = [one for one in kernels if "nccl" in one["name"].lower()]
    computing = spans([one for one in kernels if one not in collectives], "kernel")
    steps = steps_of(events)
    all_of_it = time_in(spans(kernels, "kernel"), steps)
    assert found.at_stake_ns == all_of_it - time_in(computing, steps)
    assert found.figures["communicating_ns"] == time_in(spans(collectives, "kernel"), steps)
    inside = [one for one in collectives if any(begin <= one["begin"] < end for begin, end in steps)]
    assert found.figures["collectives"] == len(inside)


@pytest.mark.parametrize("name", ["kineto/rank0_sampled.json.gz", "kineto/rank1_sampled.json.gz"])
def test_idle_time_of_steps_by_when_its_end_was_launched(name: str, traces_dir: Path) -> None:
    found = said(traces_dir, name)
    events = events_of(traces_dir / name)
    steps = steps_of(events)
    calls = {one["args"]["correlation"]: one["begin"] for one in events if one["cat"] == "cuda_runtime"}
    work = [one for one in events if one["cat"] in DEVICE]
    busy = together(spans(work, *DEVICE))
    queued, late = 0, 0
    for (_, begin), (end, _) in pairwise(busy):
        launched = [calls.get(one["args"]["correlation"]) for one in work if one["begin"] == end < one["end"]]
        if launched and None not in launched:
            is_queued = min(launched) < begin
            queued += time_in([(begin, end)], steps) * is_queued
            late += time_in([(begin, end)], steps) * (not is_queued)
    assert found["queued"].evidence.at_stake_ns == queued
    # All of it but what waits, and the optimizer, have.
    assert late * 0.5 < found["late-host"].evidence.figures["idle_ns"] <= late


def test_waiting_for_data(traces_dir: Path) -> None:
    name = "kineto/resnet50_memory_without_category.pt.trace.json.gz"
    found = said(traces_dir, name)["data-loading"].evidence
    events = events_of(traces_dir / name)
    loads = [one for one in events if one["name"].startswith("enumerate(DataLoader)")]
    at_work = spans(events, *DEVICE, "runtime")
    steps = steps_of(events)
    loading = time_in(at_work + [(one["begin"], one["end"]) for one in loads], steps) - time_in(at_work, steps)
    # Work that the device still had when a load began would run later.
    assert 0.99 * loading <= (found.at_stake_ns or 0) <= loading
    assert found.ops[0] == loads[0]["name"]


@pytest.mark.slow
def test_an_optimizer_that_goes_one_by_one(traces_dir: Path) -> None:
    name = "kineto/resnet50_memory_without_category.pt.trace.json.gz"
    found = said(traces_dir, name)["optimizer-loop"].evidence
    events = events_of(traces_dir / name)
    optimizers = [one for one in events if one["name"].startswith("Optimizer.step#")]
    times: dict[Any, Spans] = {}
    for one in optimizers:
        times.setdefault(one["tid"], []).append((one["begin"], one["end"]))
    steps = steps_of(events)
    # By when it was launched: the host runs ahead.
    launched = {
        one["args"]["correlation"]
        for one in events
        if one["cat"] == "runtime"
        and all(
            any(begin <= one["begin"] < end for begin, end in spans) for spans in (times.get(one["tid"], []), steps)
        )
    }
    work = [one for one in events if one["cat"] in DEVICE and one["args"]["correlation"] in launched]
    assert found.figures["kernels"] == len(work)
    assert found.figures["steps"] == len(optimizers)


@pytest.mark.parametrize("name", ["vllm_graph_execution"])
def test_a_kernel_that_takes_most(name: str, traces_dir: Path) -> None:
    found = said(traces_dir, f"kineto/{name}.json.gz")["dominating-kernel"].evidence
    events = events_of(traces_dir / f"kineto/{name}.json.gz")
    kernels = [one for one in events if one["cat"] == "kernel" and "nccl" not in one["name"].lower()]
    times: Counter[str] = Counter()
    for one in kernels:
        times[one["name"]] += one["end"] - one["begin"]
    (most, ns), *_ = times.most_common(1)
    assert found.figures["kernel_share"] == pytest.approx(ns / times.total(), abs=1e-6)
    assert found.figures["count"] == sum(one["name"] == most for one in kernels)
    assert found.words == {"kernel": most}


@pytest.mark.parametrize("name", ["infer_2gpu", "train_fsdp_2gpu"])
def test_a_kernel_that_takes_most_by_sql(name: str, traces_dir: Path) -> None:
    found = said(traces_dir, f"nsys/{name}.sqlite")["dominating-kernel"].evidence
    query = """SELECT value, COUNT(*), SUM(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds
        ON demangledName = id WHERE value NOT LIKE '%nccl%' GROUP BY value ORDER BY 3 DESC"""
    rows = sql(traces_dir / f"nsys/{name}.sqlite", query)
    kernel, count, ns = rows[0]
    whole = sum(took for _, _, took in rows)
    assert found.words == {"kernel": kernel}
    assert found.figures == {"ns": ns, "kernel_share": ns / whole, "count": count}


OVERHEAD = """
SELECT start, end FROM PROFILER_OVERHEAD JOIN StringIds ON nameId = id WHERE value NOT LIKE '%command buffer full%'
    AND value NOT LIKE '%lazy function loading%' AND value NOT LIKE '%module loading%' AND end > start
"""


@pytest.mark.parametrize("name", ["cudf_2020", "dlprof_2022", "nvfuser_2024", "torch_lm_2025", "mpi_saxpy_2022"])
def test_what_the_profiler_cost(name: str, traces_dir: Path) -> None:
    finding = said(traces_dir, f"nsys/{name}.sqlite").get("profiler-overhead")
    query = OVERHEAD.replace("start, end", "globalTid, start, end", 1)
    rows = sql(traces_dir / f"nsys/{name}.sqlite", query)
    lasted = own_times(traces_dir / f"nsys/{name}.sqlite")
    # Time before the first work of a device is start-up. A process without a device counts as a whole.
    with_devices = first_work(traces_dir / f"nsys/{name}.sqlite")
    inside = [
        (pid, max(begin, lasted[pid][0]), min(end, lasted[pid][1]))
        for pid, begin, end in ((tid >> 24 & 0xFFFFFF, begin, end) for tid, begin, end in rows)
        if pid in lasted and begin < lasted[pid][1] and (begin if pid in with_devices else end) > lasted[pid][0]
    ]
    # Calls of a thread that has finished all its other work hold up nothing.
    last = last_on_threads(traces_dir / f"nsys/{name}.sqlite")
    held_up = [
        (pid, max(begin, lasted[pid][0]), min(end, lasted[pid][1]))
        for pid, tid, begin, end in ((tid >> 24 & 0xFFFFFF, tid & 0xFFFFFF, begin, end) for tid, begin, end in rows)
        if pid in lasted and begin < last.get((pid, tid), begin) and begin < lasted[pid][1] and end > lasted[pid][0]
    ]
    times = [together([(begin, end) for one, begin, end in held_up if one == pid]) for pid in lasted]
    at_stake = max(sum(end - begin for begin, end in spans) for spans in times)
    if at_stake < 0.02 * max(end - begin for begin, end in lasted.values()):
        assert finding is None  # nearly all of it lies before the first work of a device, and after the run
    else:
        assert finding is not None
        assert finding.evidence.at_stake_ns == at_stake
        assert finding.evidence.figures["times"] == len(inside)


def own_times(path: Path) -> dict[int, tuple[int, int]]:
    """From the first work of a device, where the process used one, to the last event that is not the profiler's own."""
    trace = opspan.load(path)
    first = first_work(path)
    spans = [
        (row["pid"], row["start_ns"], row["end_ns"] or row["start_ns"])
        for frame in (trace.ranges, trace.calls, trace.work)
        for row in frame.to_dicts()
        if not row.get("is_overhead") and row["start_ns"] is not None
    ]
    return {
        pid: (
            first.get(pid, min(begin for one, begin, _ in spans if one == pid)),
            max(end for one, _, end in spans if one == pid),
        )
        for pid in {pid for pid, *_ in spans}
    }


def last_on_threads(path: Path) -> dict[tuple[int, int], int]:
    """When each thread began to do something for the last time, but for what the profiler did there."""
    trace = opspan.load(path)
    rows = [row for frame in (trace.ranges, trace.calls) for row in frame.select("pid", "tid", "start_ns").rows()]
    rows = sorted(row for row in rows if None not in row)
    return {(pid, tid): start for pid, tid, start in rows}


def first_work(path: Path) -> dict[int, int]:
    """When a device began the first work of each process."""
    tables = [name for (name,) in sql(path, "SELECT name FROM sqlite_master")]
    rows = [
        row
        for name in ("KERNEL", "MEMCPY", "MEMSET")
        if f"CUPTI_ACTIVITY_KIND_{name}" in tables
        for row in sql(path, f"SELECT globalPid >> 24, MIN(start) FROM CUPTI_ACTIVITY_KIND_{name} GROUP BY 1")
    ]
    return {pid & 0xFFFFFF: min(start for one, start in rows if one == pid) for pid, _ in rows}


def test_graphs_that_are_wholes(traces_dir: Path) -> None:
    found = said(traces_dir, "nsys/graph_trace_2024.sqlite")["whole-graphs"].evidence
    query = "SELECT COUNT(*), SUM(end - start) FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
    ((count, ns),) = sql(traces_dir / "nsys/graph_trace_2024.sqlite", query)
    assert (found.figures["graphs"], found.figures["ns"]) == (count, ns)


CALLED = """
SELECT globalTid >> 24, start, end FROM CUPTI_ACTIVITY_KIND_RUNTIME JOIN StringIds ON nameId = id WHERE
"""


@pytest.mark.parametrize(
    ("name", "rule", "where"),
    [
        ("mpi_saxpy_2022", "blocking-copies", "value GLOB 'cudaMemcpy_v*'"),
        ("train_fsdp_2gpu", "synchronise", "value GLOB 'cuda*Synchronize_v*'"),
    ],
)
def test_waits_that_let_devices_run_dry(name: str, rule: str, where: str, traces_dir: Path) -> None:
    found = said(traces_dir, f"nsys/{name}.sqlite")[rule].evidence
    first = first_work(traces_dir / f"nsys/{name}.sqlite")
    called = sql(traces_dir / f"nsys/{name}.sqlite", CALLED + where)
    first = {pid: first[pid & 0xFFFFFF] for pid, *_ in called}
    # A wait that was going on when the first work began counts from then on.
    waits = [end - max(begin, first[pid]) for pid, begin, end in called if end > first[pid]]
    assert (found.figures["waits"], found.figures["wait_ns"]) == (len(waits), sum(waits))
    assert 0 < (found.at_stake_ns or 0) <= sum(waits)


def test_work_that_belongs_to_no_op(traces_dir: Path) -> None:
    found = said(traces_dir, "nsys/graph_nodes.sqlite")["unlabelled"].evidence
    tables = ("KERNEL", "MEMCPY", "MEMSET")
    counts = [
        sql(traces_dir / "nsys/graph_nodes.sqlite", f"SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_{name}")
        for name in tables
    ]
    assert sum(count for ((count,),) in counts) == found.figures["kernels"]


def test_ops_without_sizes_and_modules(traces_dir: Path) -> None:
    name = "kineto/event_sync_multi_stream.json.gz"
    found = said(traces_dir, name)
    ops = [one for one in events_of(traces_dir / name) if one["cat"] == "cpu_op"]
    assert not any("Input Dims" in one["args"] for one in ops)
    assert found["no-sizes"].evidence.figures == {"known_share": 0.0, "ops": len(ops)}
    assert found["no-modules"].evidence.figures == {"known_share": 0.0, "ops": len(ops)}


def test_all_of_the_time_where_there_are_no_steps(traces_dir: Path) -> None:
    name = "kineto/compiled_triton.json.gz"
    events = [one for one in events_of(traces_dir / name) if one["cat"] not in ("trace", "none", "overhead")]
    first = min(one["begin"] for one in events if one["cat"] in DEVICE)
    whole = max(one["end"] for one in events) - first
    assert said(traces_dir, name)["no-steps"].evidence.figures == {"time_ns": whole}


def test_launches_that_are_further_apart_than_work_is_long(traces_dir: Path) -> None:
    name = "kineto/b200_eager.json.gz"
    found = said(traces_dir, name)["launch-bound"].evidence.figures
    events = events_of(traces_dir / name)
    work = {}
    for one in events:
        if one["cat"] in DEVICE:
            work.setdefault(one["args"]["correlation"], one)
    calls = [one for one in events if one["cat"] in ("cuda_runtime", "cuda_driver")]
    calls = sorted((one for one in calls if one["args"]["correlation"] in work), key=lambda one: one["begin"])
    lengths = [work[one["args"]["correlation"]] for one in calls]
    assert found["work_ns"] == int(median(one["end"] - one["begin"] for one in lengths))
    apart = []
    for tid in {one["tid"] for one in calls}:
        begins = [one["begin"] for one in calls if one["tid"] == tid]
        apart += [after - before for before, after in pairwise(begins)]
    assert found["apart_ns"] == int(median(apart))


def test_memory_taken_in_the_loop(traces_dir: Path) -> None:
    name = "kineto/mi300_ddp_resnet18.json.gz"
    found = said(traces_dir, name)["allocation"].evidence
    steps = opspan.load(traces_dir / name).steps()
    later = steps.sort("start_ns").select("start_ns", "end_ns").rows()[1:]
    events = events_of(traces_dir / name)
    calls = [one for one in events if one["name"] in ("hipMalloc", "hipFree", "hipHostMalloc", "hipHostFree")]
    inside = [one for one in calls if any(since <= one["begin"] < until for since, until in later)]
    own = [(one["begin"], one["end"]) for one in inside]
    assert (found.figures["calls"], found.figures["wait_ns"]) == (len(own), sum(end - begin for begin, end in own))
    # Work of a device meanwhile is not lost, and the device was idle for few other reasons.
    work = together(spans(events, *DEVICE))
    bare = sum(end - begin for begin, end in together(own)) - time_in(own, work)
    assert found.at_stake_ns == pytest.approx(bare, rel=0.01)
