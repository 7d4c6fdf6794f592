"""Waits by example, against nested loops in plain Python, and against the files' own figures on recorded traces."""

from __future__ import annotations

import gzip
import json
import sqlite3
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest
from hypothesis import strategies as st

import opspan
import twins
from analysis.frames import maybe_times, places, range_rows, ranges, table
from opspan.analysis import Analysis, launches, nest
from opspan.analysis.waits import ITEM_OPS, WHY, waits
from properties import property_of

KERNEL = {"kind": "kernel", "start_ns": 0, "end_ns": 1000}


def waited(*calls: dict, work: tuple[dict, ...] = (), inside: tuple[tuple, ...] = ()) -> list[dict]:
    """The waits of calls on one thread, if nothing else is said, as dicts."""
    place = {"rank": 0, "pid": 1}
    made = table("calls", list(calls), **place, tid=1)
    frame = nest(ranges(*inside))
    found = launches(frame, made, table("work", list(work), **place))
    return waits(frame, found.calls, found.work).to_dicts()


def call(name: str, start: int | None = 10, end: int | None = 30, **more: object) -> dict:
    return {"name": name, "start_ns": start, "end_ns": end} | more


def copy(copy_from: str | None, copy_to: str | None, number: int = 7) -> dict:
    return {"kind": "memcpy", "correlation_id": number, "copy_from": copy_from, "copy_to": copy_to, "start_ns": 15}


@pytest.mark.parametrize(
    ("why", "names"),
    {
        "synchronise": "cudaDeviceSynchronize cudaStreamSynchronize cudaEventSynchronize cudaStreamSynchronize_ptsz "
        "cuCtxSynchronize cuStreamSynchronize cuEventSynchronize hipDeviceSynchronize hipStreamSynchronize_spt "
        "zeCommandQueueSynchronize zeEventHostSynchronize zeFenceHostSynchronize zeCommandListHostSynchronize "
        "urQueueFinish clFinish synchronizeStream",
        "blocking copy": "cudaMemcpy cudaMemcpy_ptds cudaMemcpy2D cudaMemcpyToSymbol cuMemcpyHtoD cuMemcpyDtoH "
        "hipMemcpy hipMemcpyWithStream hipMemcpyDtoH",
        "allocation": "cudaMalloc cudaMallocHost cudaMallocManaged cudaHostAlloc cuMemAlloc cuMemHostAlloc cuMemCreate "
        "hipMalloc hipHostMalloc hipExtMallocWithFlags zeMemAllocDevice",
        "free": "cudaFree cudaFreeHost cuMemFree cuMemFreeHost cuMemUnmap hipFree hipHostFree zeMemFree",
        "module loading": "cuModuleLoad cuModuleLoadDataEx cuModuleLoadFatBinary cuLibraryLoadData hipModuleLoadData "
        "zeModuleCreate",
        None: "cudaLaunchKernel cudaMemcpyAsync cudaMemcpyPeer cudaMemset cudaMemsetAsync cudaMallocAsync "
        "cudaFreeAsync cudaStreamWaitEvent cudaEventQuery cuMemcpyDtoD cuMemcpyDtoHAsync cuModuleGetLoadingMode "
        "cuModuleUnload cuMemFreeAsync hipMemcpyAsync hipModuleLaunchKernel my_cudaMalloc",
    }.items(),
)
def test_names_say_what_a_call_waits_for(why: str | None, names: str) -> None:
    one_after_the_other = [call(name, 100 * row, 100 * row + 50) for row, name in enumerate(names.split())]

    found = waited(*one_after_the_other)

    assert [row["call"] for row in found] == ([] if why is None else list(range(len(one_after_the_other))))
    assert {row["why"] for row in found} == ({why} if why else set())


def test_a_wait_that_the_tool_recorded_is_no_wait_for_a_device() -> None:
    found = waited(
        call("cudaStreamSynchronize", 0, 50),
        call("Wait: Futex", 10, 20, api="wait"),
        call("Wait: Mutex", 60, 70, api="wait"),
        call("Wait: Mutex", 80, 90, api="osrt"),
        inside=(("aten::item", 55, 100),),
    )
    assert [(row["call"], row["why"], row["range"]) for row in found] == [(0, "synchronise", None), (2, "blocked", 0)]


def test_a_wait_says_where_it_was_and_for_how_long() -> None:
    found = waited(
        call("cudaLaunchKernel", 0, 5),
        call("cudaStreamSynchronize", 20, 50),
        work=({"kind": "kernel", "start_ns": 10, "end_ns": 40},),
        inside=(("outer", 0, 100), ("inner", 15, 60)),
    )

    place = {"rank": 0, "pid": 1, "tid": 1, "start_ns": 20, "end_ns": 50}
    assert found == [{"call": 1, **place, "wait_ns": 30, "why": "synchronise", "range": 1, "busy_ns": 20}]


def test_a_trace_without_calls_has_no_waits() -> None:
    assert waited() == []


@pytest.mark.parametrize(
    ("name", "copied", "expected"),
    [
        ("cudaMemcpyAsync", [("device", "pageable")], True),
        ("cudaMemcpyAsync", [("pageable", "device")], True),
        ("cuMemcpyDtoHAsync", [("device", "pageable")], True),
        ("hipMemcpyAsync", [("device", "device"), ("device", "pageable")], True),
        ("cudaMemcpyAsync", [("device", "pinned")], False),
        ("cudaMemcpyAsync", [("device", "device")], False),
        ("cudaMemcpyAsync", [("device", None)], False),
        ("cudaMemcpyAsync", [], False),
        ("cudaGraphLaunch", [("device", "pageable")], False),
        ("cudaMemcpy", [("device", "pinned")], True),
        ("cudaMemcpy", [("device", "device")], False),
        ("cudaMemcpy", [("device", "device"), ("pinned", "device")], True),
        ("cudaMemcpy", [("device", None)], True),
        ("cudaMemcpy", [], True),
    ],
)
def test_whether_a_copy_blocks_depends_on_the_memory(name: str, copied: list[tuple], expected: bool) -> None:
    found = waited(call(name, correlation_id=7), work=tuple(copy(*sides) for sides in copied))

    assert [row["why"] for row in found] == ["blocking copy"] * expected


@pytest.mark.parametrize("op", ITEM_OPS)
def test_what_waits_in_an_item_is_an_item_however_deep(op: str) -> None:
    names = ["cudaStreamSynchronize", "cudaMemcpyAsync", "cudaMalloc", "cuLibraryLoadData"]
    made = [call(name, 10 * row + 20, 10 * row + 25, correlation_id=row) for row, name in enumerate(names)]

    found = waited(
        *made,
        call("cudaStreamSynchronize", 95, 98),
        work=(copy("device", "pageable", 1),),
        inside=((op, 0, 90), ("inner", 5, 80)),
    )

    assert [row["why"] for row in found] == ["item", "item", "allocation", "module loading", "synchronise"]


class TestNested:
    def test_only_the_outermost_counts(self) -> None:
        found = waited(call("cudaMalloc", 10, 30), call("cuMemAlloc", 12, 28), call("cuCtxSynchronize", 13, 14))

        assert [(row["call"], row["why"]) for row in found] == [(0, "allocation")]

    def test_of_two_with_the_same_times_the_first(self) -> None:
        assert [row["call"] for row in waited(call("cuMemFree"), call("cudaFree"), call("hipFree", 30, 40))] == [0, 2]

    def test_of_two_that_begin_together_the_longer_one(self) -> None:
        assert [row["call"] for row in waited(call("cuMemFree", 10, 20), call("cudaFree", 10, 30))] == [1]

    def test_a_call_without_a_begin_hides_nothing(self) -> None:
        assert len(waited(call("cudaMalloc", None, 90), call("cuMemAlloc", 10, 20))) == 2

    def test_a_call_that_does_not_wait_hides_nothing(self) -> None:
        found = waited(
            call("cudaLaunchKernel", 0, 50), call("cuModuleLoadData", 10, 20), call("cudaMemcpyAsync", 5, 30)
        )

        assert [row["why"] for row in found] == ["module loading"]

    @pytest.mark.parametrize("other", [{"tid": 2}, {"pid": 2}, {"rank": 1}])
    def test_threads_are_apart(self, other: dict) -> None:
        assert len(waited(call("cudaMalloc", 0, 50), call("cuMemAlloc", 10, 20, **other))) == 2

    def test_threads_that_are_not_known_are_apart(self) -> None:
        assert len(waited(call("cudaMalloc", 0, 50, tid=None), call("cuMemAlloc", 10, 20, tid=None))) == 2

    def test_a_call_that_did_not_return_hides_nothing(self) -> None:
        found = waited(call("cudaMalloc", 0, None), call("cuMemAlloc", 10, 20))

        assert [row["wait_ns"] for row in found] == [None, 10]

    def test_backtraces_are_the_same_call_again(self) -> None:
        backtrace = call("cudaMemcpy", 9, 31, api="cuda_backtrace")

        assert [row["call"] for row in waited(backtrace, call("cudaMemcpy"))] == [1]
        assert waited(backtrace, call("cudaMemcpy", correlation_id=7), work=(copy("device", "device"),)) == []


class TestBusy:
    def busy(self, *work: dict, **more: object) -> int | None:
        (found,) = waited(call("cudaDeviceSynchronize", 100, 200, **more), work=tuple(KERNEL | one for one in work))
        return found["busy_ns"]

    def test_time_that_several_works_cover_counts_once(self) -> None:
        works = [(90, 120), (110, 130), (115, 118), (130, 140), (150, 160), (190, 300)]
        # Work on another device or stream as well.
        assert self.busy(*({"start_ns": a, "end_ns": b, "stream_id": a, "device_id": a % 2} for a, b in works)) == 60

    def test_work_of_other_processes_does_not_count(self) -> None:
        assert self.busy({"pid": 2}, {"start_ns": 120, "end_ns": 130}) == 10
        assert self.busy({"pid": 2}) == 0

    def test_waits_and_the_profiler_are_no_work(self) -> None:
        assert self.busy({"kind": "sync"}, {"is_overhead": True}, {"kind": "memset", "end_ns": 110}) == 10

    def test_it_is_not_known_where_nothing_says_what_ran(self) -> None:
        assert self.busy() is None
        assert self.busy({"kind": "sync"}) is None
        assert self.busy({}, {"pid": None}) is None
        assert self.busy({}, pid=None) is None
        assert self.busy({}, end_ns=None) is None

    def test_work_of_no_length_or_without_an_end_does_not_count(self) -> None:
        odd = [{"start_ns": 150, "end_ns": 150}, {"start_ns": 190, "end_ns": 110}, {"end_ns": None}]
        assert self.busy(*odd, {"start_ns": 100, "end_ns": 101}) == 1


def test_odd_times() -> None:
    times = [(30, 10), (5, 5), (None, 7), (7, None), (-(2**63), twins.LAST)]
    found = waited(*(call("cudaFree", start, end, tid=row) for row, (start, end) in enumerate(times)), work=(KERNEL,))

    assert [row["wait_ns"] for row in found] == [0, 0, None, None, twins.LAST]
    assert [row["busy_ns"] for row in found] == [0, 0, None, None, 1000]


# --- in plain Python

MEMORY = st.sampled_from(["pageable", "device", "device", "pinned", None])
IDS = st.sampled_from([1, 2, 3, 4, None])
call_rows = st.lists(
    st.fixed_dictionaries(
        {
            **places,
            "start_ns": maybe_times,
            "end_ns": maybe_times,
            "correlation_id": IDS,
            "name": st.sampled_from(list(twins.WAITS)),
            "api": st.sampled_from(["cuda_runtime", "cuda_runtime", None, "cuda_backtrace"]),
        }
    ),
    max_size=10,
)
work_rows = st.lists(
    st.fixed_dictionaries(
        {
            "rank": places["rank"],
            "pid": st.sampled_from([1, 1, 1, 1, 2, 2, None]),
            "start_ns": maybe_times,
            "end_ns": maybe_times,
            "correlation_id": IDS,
            "kind": st.sampled_from(["kernel", "memcpy", "memcpy", "sync", None]),
            "is_overhead": st.sampled_from([False, None, False, True]),
            "copy_from": MEMORY,
            "copy_to": MEMORY,
        }
    ),
    max_size=8,
)


def named_ranges() -> st.SearchStrategy[list[dict]]:
    names = st.sampled_from(["aten::item", "aten::add", None])
    return range_rows(6).flatmap(
        lambda rows: st.tuples(*(names.map(lambda name, row=row: row | {"name": name}) for row in rows)).map(list)
    )


@property_of(named_ranges(), call_rows, work_rows, few=150, many=600)
def test_waits(given: list[dict], calls: list[dict], work: list[dict]) -> None:
    frame = nest(table("ranges", given))
    made = launches(frame, table("calls", calls), table("work", work))

    found = waits(frame, made.calls, made.work)

    assert found.schema["why"] == WHY
    assert found.to_dicts() == twins.waits(frame.to_dicts(), made.calls.to_dicts(), made.work.to_dicts())


# --- recorded traces


def recorded(traces_dir: Path, name: str) -> tuple[Path, pl.DataFrame]:
    path = traces_dir / name
    if not path.exists():
        pytest.skip(f"{name} is not among the recorded traces")
    return path, Analysis(opspan.load(path)).waits


CALLED = """
CREATE TEMP VIEW called AS
    SELECT start, end, correlationId, value AS name FROM CUPTI_ACTIVITY_KIND_RUNTIME JOIN StringIds ON nameId = id;
CREATE TEMP VIEW waited AS
    SELECT start, end, 'synchronise' AS why FROM called WHERE name GLOB 'cuda*Synchronize_v*'
    UNION ALL SELECT start, end, 'allocation' FROM called WHERE name GLOB 'cudaMalloc_v*'
        OR name GLOB 'cudaHostAlloc_v*' OR name IN ('cuMemCreate', 'cuMemMap', 'cuMemSetAccess')
    UNION ALL SELECT start, end, 'free' FROM called WHERE name GLOB 'cudaFree_v*'
        OR name IN ('cuMemUnmap', 'cuMemRelease')
    UNION ALL SELECT start, end, 'module loading' FROM called WHERE name = 'cuLibraryLoadData'
    UNION ALL SELECT start, end, 'blocking copy' FROM called WHERE name GLOB 'cudaMemcpy_v*' OR correlationId IN
        (SELECT correlationId FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE srcKind = 0 OR dstKind = 0);
CREATE TEMP VIEW ran AS
    SELECT start, end FROM CUPTI_ACTIVITY_KIND_KERNEL
    UNION ALL SELECT start, end FROM CUPTI_ACTIVITY_KIND_MEMCPY
    UNION ALL SELECT start, end FROM CUPTI_ACTIVITY_KIND_MEMSET;
CREATE TEMP TABLE busy AS
    WITH seen AS (SELECT start, end, MAX(end) OVER
            (ORDER BY start ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM ran),
        parts AS (SELECT start, end, SUM(before IS NULL OR start > before) OVER
            (ORDER BY start ROWS UNBOUNDED PRECEDING) AS part FROM seen)
    SELECT MIN(start) AS start, MAX(end) AS end FROM parts GROUP BY part;
"""
SUMS = "SELECT why, COUNT(*), SUM(end - start) FROM waited GROUP BY why"
BUSY = """
SELECT why, SUM(MIN(waited.end, busy.end) - MAX(waited.start, busy.start)) FROM waited JOIN busy
    ON busy.start < waited.end AND busy.end > waited.start WHERE why IN ('synchronise', 'free') GROUP BY why
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["torch_lm_2025.sqlite", "graph_nodes.sqlite"])
def test_sums_of_waits_are_those_of_the_files_own_sql(name: str, traces_dir: Path) -> None:
    path, found = recorded(traces_dir, f"nsys/{name}")
    grouped = found.group_by("why").agg(pl.len(), pl.col("wait_ns").sum(), pl.col("busy_ns").sum())

    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as file:
        file.executescript(CALLED)
        sums = {why: (count, took) for why, count, took in file.execute(SUMS)}
        busy = dict(file.execute(BUSY))

    assert len(sums) >= 4
    assert {why: (count, took) for why, count, took, _ in grouped.iter_rows()} == sums
    assert {why: ns for why, _, _, ns in grouped.iter_rows() if why in ("synchronise", "free") and ns} == busy


def test_waits_of_a_torch_trace_are_those_of_its_json(traces_dir: Path) -> None:
    path, found = recorded(traces_dir, "kineto/ns_resolution.pt.trace.json.gz")
    events = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)["traceEvents"]
    names = [event for event in events if event.get("name") == "cudaDeviceSynchronize"]

    expected = [int(event["dur"] * 1000) for event in names]

    assert found.select("why", "wait_ns").rows() == [("synchronise", took) for took in expected]
    assert expected == [89_171_621]


def test_values_that_a_torch_trace_fetches_are_items(traces_dir: Path) -> None:
    path, found = recorded(traces_dir, "kineto/rank0_sampled.json.gz")
    events = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)["traceEvents"]
    copied = {
        event["args"]["correlation"]
        for event in events
        if event.get("cat") == "gpu_memcpy" and "Pageable" in event["name"]
    }
    calls = [event for event in events if event.get("cat") == "cuda_runtime" and event["args"]["correlation"] in copied]
    items = [event for event in events if event.get("name") == "aten::item"]
    fetches = [
        sum(one["tid"] == call["tid"] and one["ts"] <= call["ts"] < one["ts"] + one["dur"] for one in items) > 0
        for call in sorted(calls, key=lambda event: event["ts"])
    ]

    assert found.sort("start_ns")["why"].to_list() == ["item" if fetch else "blocking copy" for fetch in fetches]
    assert sum(fetches) == 3
