"""Replays of graphs in a file of several ranks."""

from __future__ import annotations

from pathlib import Path

import opspan
from builders import nsys
from builders.graphs import Graph, Op, capture

NAMES = ["cudaStreamBeginCapture", "cudaLaunchKernel", "cudaStreamEndCapture", "cudaGraphLaunch", "gemm"]
OPS = {11: ("aten::mm", "aten::relu"), 13: ("aten::bmm", "aten::tanh")}  # by pid


def two_ranks(path: Path, has_captures: bool) -> Path:
    """Two ranks in one file of nsys capture graphs of as many kernels, by different ops, and replay them."""
    ranges, calls, kernels = [], [], []
    for pid, ops in OPS.items():
        thread = nsys.tid(pid)
        for number, op in enumerate(ops):
            begin = 10 * pid + 2 * number
            ranges.append(
                {"start": begin, "end": begin + 2, "eventType": nsys.PUSH_POP, "text": op, "globalTid": thread}
            )
        called = [(-1, 1), (1, 2), (3, 2), (5, 3), (500, 4)] if has_captures else [(500, 4)]
        for order, (offset, name) in enumerate(called, 5 - len(called)):
            start = 10 * pid + offset
            calls.append({"start": start, "end": start, "globalTid": thread, "correlationId": order, "nameId": name})
        for number in range(2):
            place = {"deviceId": 0, "streamId": pid, "globalPid": nsys.global_pid(pid), "correlationId": 4}
            kernels.append({"start": 900 + number, "end": 901 + number, "shortName": 5, "demangledName": 5, **place})
    tables = {"StringIds": nsys.strings(*NAMES), "NVTX_EVENTS": ranges, "CUPTI_ACTIVITY_KIND_RUNTIME": calls}
    ranks = [{"globalTid": nsys.tid(pid), "rank": rank} for rank, pid in enumerate(OPS)]
    return nsys.export(path, {**tables, "CUPTI_ACTIVITY_KIND_KERNEL": kernels, "MPI_RANKS": ranks})


def replayed(trace: opspan.Trace) -> list[tuple[int, str, str]]:
    rows = trace.work.join(trace.ranges, left_on="replayed_range_id", right_on="id", how="left")
    return [(rank, name, str(how)) for rank, name, how in rows.select("rank", "name_right", "replay").iter_rows()]


def of_own_rank(how: str) -> list[tuple[int, str, str]]:
    return [(rank, op, how) for rank, ops in enumerate(OPS.values()) for op in ops]


def test_a_process_replays_only_its_own_captures(tmp_path: Path) -> None:
    assert replayed(opspan.load(two_ranks(tmp_path / "a.sqlite", has_captures=True))) == of_own_rank("order")


def test_recordings_of_captures_belong_to_the_rank_in_their_name(tmp_path: Path) -> None:
    folder = tmp_path / "captures"
    for rank, ops in enumerate(OPS.values()):
        capture(folder / f"graph_capture_rank_{rank}.json.gz", Graph(tuple(Op(op, ("gemm",)) for op in ops)))

    trace = opspan.load(two_ranks(tmp_path / "a.sqlite", has_captures=False), captures=folder)

    assert replayed(trace) == of_own_rank("unique")
