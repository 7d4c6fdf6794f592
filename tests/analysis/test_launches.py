"""Launches by example, and against the file's own SQL on recorded traces."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import polars as pl
import pytest

from analysis.frames import ranges, table
from opspan.analysis import attribute, launches, nest
from opspan.analysis.launches import graph_nodes
from opspan.readers import nsys
from opspan.tables import schema


def calls(*rows: dict, **defaults) -> pl.DataFrame:
    return table("calls", list(rows), **{"rank": 0, "pid": 1, "tid": 1} | defaults)


def work(*rows: dict, **defaults) -> pl.DataFrame:
    return table(
        "work", list(rows), **{"rank": 0, "pid": 1, "kind": "kernel", "start_ns": 500, "end_ns": 600} | defaults
    )


def test_work_belongs_to_the_innermost_range_of_its_call() -> None:
    frame = nest(ranges(("linear", 0, 100), ("addmm", 10, 50)))
    made = calls(
        {"start_ns": 20, "correlation_id": 7},
        {"start_ns": 60, "correlation_id": 8},
        {"start_ns": 100, "correlation_id": 9},
    )

    found = launches(frame, made, work(*({"correlation_id": number} for number in (7, 8, 9, 10, None))))

    assert found.calls["range"].to_list() == [1, 0, None]  # at 100 the range has ended
    assert found.work["call"].to_list() == [0, 1, 2, None, None]
    assert found.work["range"].to_list() == [1, 0, None, None, None]


def test_a_correlation_id_is_unique_in_its_process_only() -> None:
    frame = nest(ranges(("a", 0, 100), {"name": "b", "pid": 2, "start_ns": 0, "end_ns": 100}))
    made = calls({"start_ns": 20, "correlation_id": 7}, {"start_ns": 20, "correlation_id": 7, "pid": 2})

    found = launches(
        frame, made, work({"correlation_id": 7, "pid": 2}, {"correlation_id": 7}, {"correlation_id": 7, "pid": 3})
    )

    assert found.work["range"].to_list() == [1, 0, None]


def test_one_call_may_own_many_works() -> None:
    found = launches(
        nest(ranges(("a", 0, 9))), calls({"start_ns": 2, "correlation_id": 7}), work(*[{"correlation_id": 7}] * 3)
    )

    assert found.work["call"].to_list() == [0, 0, 0]
    assert not found.work["ambiguous"].any()


def test_an_id_that_was_used_again_is_that_of_the_last_call_before() -> None:
    made = calls({"start_ns": 20, "correlation_id": 7}, {"start_ns": 520, "correlation_id": 7})
    ran = work({"correlation_id": 7}, {"correlation_id": 7, "start_ns": 530}, {"correlation_id": 7, "start_ns": 10})

    found = launches(nest(ranges(("a", 0, 9))), made, ran)

    assert found.work["call"].to_list() == [0, 1, 0]
    assert found.work["ambiguous"].all()


def test_an_overlapping_range_still_owns_its_launches_and_an_async_one_only_without_another() -> None:
    epoch = {"name": "epoch", "start_ns": 5, "end_ns": 200, "is_async": True}
    frame = nest(ranges(("phase", 0, 50), ("op", 40, 90), epoch))
    made = calls(*({"start_ns": time} for time in (10, 45, 60, 150)))

    found = launches(frame, made, work())

    assert found.calls["range"].to_list() == [0, 1, 1, 2]


def test_a_replayed_kernel_belongs_to_the_op_that_was_captured() -> None:
    frame = nest(ranges(("capture mm", 0, 10), ("capture relu", 10, 20), ("replay", 100, 200)))
    nodes = [  # made at, number, copy of
        {"start_ns": 5, "graph_node_id": 1},
        {"start_ns": 15, "graph_node_id": 2},
        {"start_ns": 50, "graph_node_id": 11},
        {"start_ns": 51, "graph_node_id": 11, "original_graph_node_id": 1},
        {"start_ns": 52, "graph_node_id": 12, "original_graph_node_id": 2},
        {"start_ns": 53, "graph_node_id": 13, "original_graph_node_id": 14},  # a ring
        {"start_ns": 53, "graph_node_id": 14, "original_graph_node_id": 13},
        {"start_ns": 15, "graph_node_id": 15, "original_graph_node_id": 99},  # its original node is not in the trace
    ]
    made = calls({"start_ns": 110, "correlation_id": 7})
    types = {"rank": pl.Int32, "pid": pl.Int64, "tid": pl.Int64, "start_ns": pl.Int64, "graph_node_id": pl.Int64}
    events = pl.DataFrame(
        [{"rank": 0, "pid": 1, "tid": 1, "original_graph_node_id": None} | node for node in nodes],
        schema=types | {"original_graph_node_id": pl.Int64},
    )
    ran = work(*({"correlation_id": 7, "graph_node_id": node} for node in (11, 12, 13, 15, 77, None)))

    found = launches(frame, made, ran, events)

    assert found.work["launch_range"].to_list() == [2] * 6
    assert found.work["range"].to_list() == [0, 1, 2, 1, 2, 2]


# --- recorded traces


@pytest.mark.slow
def test_every_kernel_of_two_processes_is_on_the_op_that_launched_it(traces_dir: Path) -> None:
    path = traces_dir / "nsys" / "train_fsdp_2gpu.sqlite"
    trace = attribute(nsys.read(path))
    kernels = trace.work.filter(pl.col("kind") == "kernel")
    assert kernels.height == 4010

    found = {
        (row["pid"], row["correlation_id"]): None
        if row["range"] is None
        else (range_["pid"], range_["start_ns"], range_["end_ns"])
        for row in kernels.iter_rows(named=True)
        for range_ in [trace.ranges.row(row["range"] or 0, named=True)]
    }

    expected = launched_by_sql(path)
    assert len(expected) == 3986
    assert {key: value for key, value in found.items() if value is not None} == expected


def launched_by_sql(path: Path) -> dict[tuple[int, int], tuple[int, int, int]]:
    """(pid, correlation id) -> the innermost range around the call of each kernel, by looking at all."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as file:
        of_thread: dict[int, list[tuple[int, int]]] = {}
        for tid, start, end in file.execute("SELECT globalTid, start, end FROM NVTX_EVENTS WHERE eventType = 59"):
            of_thread.setdefault(tid, []).append((start, end))
        called = {}
        for tid, start, number in file.execute(
            "SELECT globalTid, start, correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME"
        ):
            called[tid >> 24, number] = (tid, start)
        found = {}
        for process, number in file.execute("SELECT globalPid, correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL"):
            if (process >> 24, number) not in called:
                continue
            tid, at = called[process >> 24, number]
            around = [(start, -end) for start, end in of_thread.get(tid, ()) if start <= at < end]
            if around:
                start, end = max(around)
                found[process >> 24 & 0xFFFFFF, number] = (process >> 24 & 0xFFFFFF, start, -end)
        return found


def test_every_replay_of_a_recorded_graph_finds_the_capture_of_its_node(traces_dir: Path) -> None:
    trace = nsys.read(traces_dir / "nsys" / "graph_nodes.sqlite")
    # The file has no ranges: one around the making of each of the 24 nodes that were captured.
    nodes = graph_nodes(trace.calls)
    captured = nodes.join(nodes, left_on="graph_node_id", right_on="original_graph_node_id", how="semi").sort(
        "start_ns"
    )
    around = captured.select("rank", "pid", "tid", start_ns=pl.col("start_ns") - 1, end_ns=pl.col("start_ns") + 1)
    assert around.height == 24

    found = launches(nest(schema.conform("ranges", around)), trace.calls, trace.work).work

    replayed = found.filter(pl.col("graph_node_id").is_not_null())
    copies = nodes.drop_nulls("original_graph_node_id").select("graph_node_id", "original_graph_node_id").unique()
    expected = replayed.join(copies, on="graph_node_id", how="left", maintain_order="left")["original_graph_node_id"]
    assert replayed.height == 24_024
    assert captured["graph_node_id"].gather(replayed["range"]).equals(expected, check_names=False)
    assert found["range"].count() == replayed.height
