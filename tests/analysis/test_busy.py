"""The time of a step by kind, against a count of moments."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from analysis.frames import ranges, table
from opspan.analysis import nest, phases
from opspan.analysis.busy import KINDS, breakdown, devices, overhead_outside_ns
from opspan.analysis.iterations import iterations
from opspan.tables import Metadata, Tables

LAST = 24
KERNELS = ("elementwise", "ncclDevKernel_AllReduce", "ampere_bf16_s16816gemm")
moments = st.integers(0, LAST)
stretch = {"start_ns": moments, "end_ns": moments}
work_rows = st.lists(
    st.fixed_dictionaries(
        {
            **stretch,
            "device_id": st.sampled_from([0, 0, 1, None]),
            "kind": st.sampled_from(["kernel", "kernel", "memcpy", "memset", "sync", "other"]),
            "name": st.sampled_from(KERNELS),
            "is_overhead": st.sampled_from([None, None, True]),
            "grid_x": st.sampled_from([None, 1, 4, 1000]),
        }
    ),
    max_size=7,
)
call_rows = st.lists(
    st.fixed_dictionaries({**stretch, "api": st.sampled_from(["cuda_runtime", "osrt", None])}), max_size=3
)
range_rows = st.lists(
    st.fixed_dictionaries(
        {**stretch, "name": st.sampled_from(["aten::mm", "enumerate(DataLoader)#x"]), "kind": st.just("op")}
    ),
    max_size=3,
)
step_ends = st.lists(moments, max_size=3, unique=True)


def trace_of(work: list[dict], calls: list[dict], marked: list[dict], ends: list[int]) -> Tables:
    steps = [
        {"name": f"ProfilerStep#{number}", "start_ns": start, "end_ns": end, "kind": "step", "tid": 9}
        for number, (start, end) in enumerate(zip(sorted(ends), sorted(ends)[1:], strict=False))
    ]
    where = {"rank": 0, "pid": 1}
    return Tables(
        (Metadata(source="test", paths=()),),
        ranges=phases(nest(ranges(*marked, *steps))),
        calls=table("calls", calls, **where, tid=1),
        work=table("work", work, **where, block_x=32, grid_y=1, grid_z=1),
        devices=table("devices", [{"rank": 0, "device_id": 0, "multiprocessors": 4}]),
    )


def on(rows: list[dict], moment: int) -> bool:
    return any(row["start_ns"] <= moment < row["end_ns"] for row in rows)


def own(work: list[dict]) -> list[dict]:
    return [row for row in work if not row["is_overhead"]]


def kinds_at(work: list[dict], calls: list[dict], marked: list[dict], moment: int) -> set[str]:
    busy = [row for row in work if row["kind"] in ("kernel", "memcpy", "memset") and not row["is_overhead"]]
    kernels = [row for row in busy if row["kind"] == "kernel"]
    sets = {
        "busy": busy,
        "computing": [row for row in kernels if not row["name"].startswith("nccl")],
        "communicating": [row for row in kernels if row["name"].startswith("nccl")],
        "copying": [row for row in busy if row["kind"] == "memcpy"],
        "filling": [row for row in busy if row["kind"] == "memset"],
        "calling": [row for row in calls if row["api"] == "cuda_runtime"],
        "loading": [row for row in marked if row["name"].startswith("enumerate")],
        "ops": marked,
    }
    return {name for name, rows in sets.items() if on(rows, moment)}


@given(work_rows, call_rows, range_rows, step_ends)
def test_each_moment_of_a_step_is_counted_where_it_belongs(
    work: list[dict], calls: list[dict], marked: list[dict], ends: list[int]
) -> None:
    # Ranges that overlap are async, and no part of a breakdown: here each has a thread of its own.
    marked = [{**row, "tid": 20 + number} for number, row in enumerate(marked)]
    trace = trace_of(work, calls, marked, ends)
    steps = iterations(trace.ranges)
    of_process = breakdown(trace, steps)
    assert of_process.height == max(steps.height, 1 if own(work) or calls or marked else 0)
    for row in of_process.iter_rows(named=True):
        assert sum(row[f"{kind}_ns"] for kind in KINDS) == row["time_ns"]
    for row, step in zip(of_process.to_dicts() if steps.height else [], steps.to_dicts(), strict=False):
        counted = dict.fromkeys(KINDS, 0)
        for moment in range(step["start_ns"], step["end_ns"]):
            found = kinds_at(work, calls, marked, moment)
            counted[next((kind for kind in KINDS if kind in found), "other")] += 1
        assert {kind: row[f"{kind}_ns"] for kind in KINDS} == counted
    if of_process.height and not ends and not marked:
        times = [(row["start_ns"], row["end_ns"]) for row in (*own(work), *calls)]
        assert of_process["time_ns"].item() == max(max(end for _, end in times) - min(start for start, _ in times), 0)
    for row in devices(trace, steps).to_dicts():
        mine = [one for one in work if one["device_id"] == row["device_id"]]
        start, end = 0, LAST
        if row["step"] is not None:
            start, end = steps.filter(pl.col("step") == row["step"]).select("start_ns", "end_ns").row(0)
        check_device(row, mine, start, end)


def check_device(row: dict, work: list[dict], start: int, end: int) -> None:
    at = [kinds_at(work, [], [], moment) for moment in range(start, end)]
    copies = {"copying", "filling"}
    assert row["busy_ns"] == sum("busy" in found for found in at)
    assert row["idle_ns"] == row["time_ns"] - row["busy_ns"]
    assert row["kernel_ns"] == sum(bool(found & {"computing", "communicating"}) for found in at)
    assert row["computing_ns"] == sum("computing" in found for found in at)
    assert row["communicating_ns"] == sum("communicating" in found for found in at)
    assert row["copying_ns"] == sum(bool(found & copies) for found in at)
    assert row["exposed_communicating_ns"] == sum("communicating" in found and "computing" not in found for found in at)
    assert row["exposed_copying_ns"] == sum(
        bool(found & copies) and not found & {"computing", "communicating"} for found in at
    )
    kernels = [
        one
        for one in work
        if one["kind"] == "kernel" and not one["is_overhead"] and start <= one["start_ns"] < end
        if one["end_ns"] > one["start_ns"]
    ]
    ns = [one["end_ns"] - one["start_ns"] for one in kernels]
    assert row["work_ns"] == sum(ns)
    assert row["tensor_core_ns"] == sum(n for n, one in zip(ns, kernels, strict=True) if "16816" in one["name"])
    shaped = [one for one in work if one["kind"] == "kernel" and not one["is_overhead"] and one["grid_x"]]
    shaped = [one for one in shaped if one["end_ns"] > one["start_ns"] and row["device_id"] == 0]
    blocks = [sum(one["grid_x"] for one in shaped if on([one], moment)) for moment in range(start, end)]
    assert row["sm_ns"] == (sum(min(1, count / 4) for count in blocks) if shaped else None)


def test_what_the_profiler_did_before_and_after_is_no_time_of_the_run() -> None:
    run = [{"start_ns": 100, "end_ns": 200, "kind": "kernel", "device_id": 0}]
    overhead = [
        {"start_ns": start, "end_ns": end, "kind": "other", "is_overhead": True}
        for start, end in ((0, 50), (40, 95), (190, 210), (500, 900))
    ]
    trace = trace_of([*run, *overhead], [{"start_ns": 90, "end_ns": 100, "api": "cuda_runtime"}], [], [])

    assert (trace.begin_ns("ranges", "calls", "work"), trace.duration_ns()) == (90, 110)
    assert breakdown(trace, iterations(trace.ranges))["time_ns"].to_list() == [110]
    assert devices(trace, iterations(trace.ranges)).select("busy_ns", "idle_ns").rows() == [(100, 10)]
    # 0 to 90, 200 to 210, and 500 to 900
    assert overhead_outside_ns(trace) == 500
