"""Events of a trace: from tables as readers make them, through the analysis."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from opspan.errors import UsageError
from opspan.events import DeviceType, EventList, Microseconds
from opspan.tables import Metadata
from opspan.trace import Trace

MARK = {"is_mark": True}


def frame(*rows: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame([{"rank": 0, "pid": 1, "tid": 1, **row} for row in rows], infer_schema_length=None)


def ranged(name: str | None, start: int, end: int | None, kind: str = "op", **more: Any) -> dict[str, Any]:
    return {"name": name, "start_ns": start, "end_ns": end, "kind": kind, **more}


def launched(correlation: int, at: int, **more: Any) -> dict[str, Any]:
    return {"name": "cudaLaunchKernel", "start_ns": at, "end_ns": at + 1, "correlation_id": correlation, **more}


def ran(correlation: int, start: int, end: int, kind: str = "kernel", **more: Any) -> dict[str, Any]:
    row = {"kind": kind, "name": "gemm", "start_ns": start, "end_ns": end, "correlation_id": correlation}
    return {"device_id": 0, "stream_id": 7, **row, **more}


def events(
    ranges: list[dict[str, Any]], calls: list[dict[str, Any]] | None = None, work: list[dict[str, Any]] | None = None
) -> EventList:
    frames = {
        name: frame(*({"id": number, **row} for number, row in enumerate(rows)))
        for name, rows in (("ranges", ranges), ("calls", calls), ("work", work))
        if rows
    }
    if "work" in frames:
        frames["work"] = frames["work"].drop("tid")
    ranks = {row.get("rank", 0) for row in [*ranges, *(work or ())]}
    return Trace(tuple(Metadata("test") for _ in ranks), **frames).events()


def test_ranges_of_every_kind_are_events_and_marks_are_not() -> None:
    kinds = ["op", "backward", "engine", "user", "module", "step", "script", "unknown"]
    rows = [ranged(kind, 10 * at, 10 * at + 5, kind) for at, kind in enumerate(kinds)]

    listed = events([*rows, ranged("mark", 3, None, "user", is_mark=True)])

    assert [event.name for event in listed] == kinds
    assert [event.scope for event in listed] == [0, 1, 0, 7, 7, 7, 2, 0]
    assert [event.is_user_annotation for event in listed] == [kind in ("user", "module", "step") for kind in kinds]


def test_a_kernel_counts_once_for_its_op_and_all_around_it_and_has_a_row_of_its_own() -> None:
    listed = events(
        [ranged("outer", 0, 100), ranged("aten::mm", 10, 50), ranged("aten::add", 60, 70)],
        [launched(1, 20), launched(2, 62)],
        [ran(1, 200, 230), ran(2, 240, 250, full_name="void add<float>(int)")],
    )
    outer, mm, add, gemm, second = listed

    assert [event.self_device_time_total for event in listed] == [0, *map(Microseconds, (30, 10, 30, 10))]
    assert outer.device_time_total == Microseconds(40)
    assert mm.kernels == [("gemm", 0, Microseconds(30))]
    assert add.kernels[0].name == second.name == "void add<float>(int)"
    assert gemm.device_type == DeviceType.CUDA
    assert (gemm.thread, gemm.linked_correlation_id) == (7, mm.id)
    lines = listed.key_averages().table().splitlines()
    assert lines[-2:] == ["Self CPU time total: 0.100us", "Self CUDA time total: 0.040us"]


def test_without_work_there_is_no_device() -> None:
    listed = events([ranged("aten::mm", 0, 10)])

    assert listed[0].use_device is None
    assert "CUDA" not in str(listed)


def test_waits_and_the_profilers_own_work_are_no_events() -> None:
    listed = events([], [], [ran(1, 0, 9, kind="sync"), ran(2, 0, 9, is_overhead=True), ran(3, 0, 9, kind="memset")])

    assert [(event.name, event.activity_type) for event in listed] == [("gemm", "gpu_memset")]


def test_work_of_an_async_range_goes_to_the_range_around_it() -> None:
    listed = events(
        [
            ranged("outer", 0, 100),
            ranged("inner", 10, 50),
            ranged("overlaps", 40, 60),
            ranged("alone", 200, 300, is_async=True),
        ],
        [launched(1, 55), launched(2, 250)],
        [ran(1, 300, 310), ran(2, 320, 340)],
    )
    averages = {average.key: average for average in listed.key_averages()}

    assert [event.is_async for event in listed[:4]] == [False, False, True, True]
    assert averages["outer"].device_time_total == Microseconds(10)
    assert averages["overlaps"].device_time_total == averages["alone"].device_time_total == 0
    assert averages["gemm"].device_time_total == Microseconds(30)
    assert [len(event.kernels) for event in listed[:3]] == [1, 0, 0]


def test_an_open_range_ends_with_the_trace() -> None:
    listed = events([ranged("open", 0, None), ranged("inside", 5, 30)])

    assert listed[0].cpu_time_total == Microseconds(30)
    assert listed[1].cpu_parent is listed[0]


def test_a_backward_op_knows_the_thread_of_its_forward() -> None:
    listed = events(
        [
            ranged("aten::mm", 0, 10, seq=4, tid=3),
            ranged("MmBackward0", 20, 30, "backward", seq=4, tid=9, forward_tid=3),
        ]
    )

    assert [(event.thread, event.fwd_thread, event.sequence_nr) for event in listed] == [(3, None, 4), (9, 3, 4)]


def test_shapes_are_as_torch_has_them() -> None:
    listed = events([ranged("aten::cat", 0, 10, sizes="[[[2, 3], [4]], [5]]"), ranged("aten::t", 20, 30)])

    assert [event.input_shapes for event in listed] == [[[], [5]], []]
    assert listed[0].structured_input_shapes == [[[2, 3], [4]], [5]]
    assert "[[], [5]]" in listed.key_averages(group_by_input_shapes=True).table()


def test_steps_share_a_name_and_keep_their_number_in_the_trace_name() -> None:
    listed = events([ranged(f"ProfilerStep#{step}", 10 * step, 10 * step + 9, "step") for step in range(3)])

    assert [average.count for average in listed.key_averages()] == [3]
    assert [event.trace_name for event in listed] == [f"ProfilerStep#{step}" for step in range(3)]


def test_ranks_are_nodes_where_there_are_several() -> None:
    one = events([ranged("a", 0, 10)])
    two = events([ranged("a", 0, 10), ranged("a", 0, 10, rank=1)])

    assert "Node ID" not in str(one)
    assert [average.node_id for average in two.key_averages()] == [0, 1]
    assert "Node ID" in str(two)


def test_an_xpu_is_called_so() -> None:
    devices = pl.DataFrame({"rank": [0], "device_id": [0], "kind": ["xpu"]})
    work = frame({"id": 0, **ran(1, 0, 10)}).drop("tid")

    listed = Trace((Metadata("test"),), work=work, devices=devices).events()

    assert listed[0].device_type == DeviceType.XPU
    assert "XPU" in str(listed)


def test_an_empty_trace_is_an_empty_list() -> None:
    assert str(Trace((Metadata("test"),)).events()) == ""


@pytest.mark.parametrize("name", ["a, seq = 3", "{}", "\x00", "né" * 40])
def test_names_are_shown_as_they_are(name: str) -> None:
    shown = name if len(name) < 52 else name[:52] + "..."

    assert shown in events([ranged(name, 0, 10)]).table()


@pytest.mark.parametrize("averaged", [False, True])
def test_an_unknown_column_to_sort_by_names_those_there_are(averaged: bool) -> None:
    listed = events([ranged("aten::mm", 0, 1_000)])
    shown = listed.key_averages() if averaged else listed

    with pytest.raises(UsageError, match="no column 'foo' to sort by; expected one of cpu_time_total, self_cpu"):
        shown.table(sort_by="foo")
    with pytest.raises(AttributeError, match="did you mean self_cpu_time_total\\?"):  # torch raises the same error
        shown.table(sort_by="self_cpu_total")
