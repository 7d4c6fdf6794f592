"""Replays of graphs in a file of several ranks."""

from __future__ import annotations

from pathlib import Path

import opspan
from builders import nsys


def test_a_process_replays_only_its_own_captures(tmp_path: Path) -> None:
    """Two ranks in one file of nsys capture graphs of as many kernels, by different ops."""
    names = ["cudaStreamBeginCapture", "cudaLaunchKernel", "cudaStreamEndCapture", "cudaGraphLaunch", "gemm"]
    ops = {11: ("aten::mm", "aten::relu"), 13: ("aten::bmm", "aten::tanh")}
    ranges, calls, kernels = [], [], []
    for pid, (first, second) in ops.items():
        thread = nsys.tid(pid)
        for number, op in enumerate((first, second)):
            begin = 10 * pid + 2 * number
            ranges.append(
                {"start": begin, "end": begin + 2, "eventType": nsys.PUSH_POP, "text": op, "globalTid": thread}
            )
        for order, (offset, name) in enumerate([(-1, 1), (1, 2), (3, 2), (5, 3), (500, 4)]):
            start = 10 * pid + offset
            calls.append({"start": start, "end": start, "globalTid": thread, "correlationId": order, "nameId": name})
        for number in range(2):
            place = {"deviceId": 0, "streamId": pid, "globalPid": nsys.global_pid(pid), "correlationId": 4}
            kernels.append({"start": 900 + number, "end": 901 + number, "shortName": 5, "demangledName": 5, **place})
    tables = {"StringIds": nsys.strings(*names), "NVTX_EVENTS": ranges, "CUPTI_ACTIVITY_KIND_RUNTIME": calls}
    ranks = [{"globalTid": nsys.tid(pid), "rank": rank} for rank, pid in enumerate(ops)]
    file = nsys.export(tmp_path / "a.sqlite", {**tables, "CUPTI_ACTIVITY_KIND_KERNEL": kernels, "MPI_RANKS": ranks})

    rows = opspan.load(file).work.join(opspan.load(file).ranges, left_on="replayed_range_id", right_on="id", how="left")

    assert rows.select("rank", "name_right").rows() == [
        (0, "aten::mm"),
        (0, "aten::relu"),
        (1, "aten::bmm"),
        (1, "aten::tanh"),
    ]
    assert set(rows["replay"]) == {"order"}
