"""Small sources that have something of everything: what views and the verbs over them are tested on."""

from __future__ import annotations

from pathlib import Path

from builders.capture import BACKWARD, MODULE, OP, STEP, USER, Capture
from builders.nsys import MARK, PUSH_POP, START_END, export, global_pid, kernel, strings, tid

HOSTILE = 'a";</script>\x1b[31m\n\\\u2028,=é'
PID, BACK = 100, 101
UTC_NS = 1_700_000_000_000_000_000


def nsys(path: Path, scale: int = 1) -> Path:
    """Two steps of forward and backward on two threads, kernels, a copy, a wait, an overlapping range, a mark.

    Times are multiplied by `scale`.
    """
    ranges, calls, kernels = [], [], []

    def range_(start: int, end: int | None, text: str, thread: int = PID, kind: int = PUSH_POP) -> None:
        ranges.append(
            {"start": start, "end": end, "eventType": kind, "text": text, "globalTid": tid(PID, thread), "domainId": 0}
        )

    def launch(start: int, at: int, took: int, thread: int = PID) -> None:
        number = len(calls) + 1
        where = {"globalTid": tid(PID, thread), "correlationId": number}
        calls.append({"start": start, "end": start + 3, "eventClass": 0, "nameId": 2, "returnValue": 0, **where})
        kernels.append(kernel(start=at, end=at + took, pid=PID, correlation=number))

    for step, begin in enumerate((1_000, 6_000)):
        range_(begin, begin + 4_000, f"ProfilerStep#{step}")
        range_(begin + 100, begin + 900, f"aten::linear, seq = {step}, op_id = {step + 1}, sizes = [[2, 4], [3, 4]]")
        range_(begin + 200, begin + 600 + step, "aten::addmm, seq = 9999, op_id = 77, sizes = [[3], [2, 4], [4, 3]]")
        launch(begin + 300, begin + 700, 111)
        launch(begin + 320, begin + 820, 57)
        range_(begin + 2_000, begin + 2_700, f"LinearBackward0, seq = {step}, op_id = {step + 50}", BACK)
        launch(begin + 2_100, begin + 2_300, 199, BACK)
    range_(1_150, 5_500, "overlapping", kind=START_END)
    range_(1_160, None, "here", kind=MARK)
    range_(10_200, 10_300, HOSTILE)
    kernels.append(kernel(start=10_400, end=10_450, pid=PID, correlation=4_711))  # nobody's
    for rows in (ranges, calls, kernels):
        for row in rows:
            row.update({name: row[name] * scale for name in ("start", "end") if row.get(name) is not None})
    copy = {"deviceId": 0, "contextId": 1, "streamId": 8, "correlationId": 1, "globalPid": global_pid(PID)}
    return export(
        path,
        {
            "StringIds": strings("unused", "cudaLaunchKernel_v7000", "void gemm<float>(int)", "gemm", "python"),
            "NVTX_EVENTS": ranges,
            "CUPTI_ACTIVITY_KIND_RUNTIME": calls,
            "CUPTI_ACTIVITY_KIND_KERNEL": kernels,
            "CUPTI_ACTIVITY_KIND_MEMCPY": [
                {"start": 1_900 * scale, "end": 1_950 * scale, "bytes": 4096, "copyKind": 1, "srcKind": 0, "dstKind": 2}
                | copy
            ],
            "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": [
                {"start": 2_000 * scale, "end": 2_900 * scale, "syncType": 3, **copy}
            ],
            "ThreadNames": [{"nameId": 5, "priority": 20, "globalTid": tid(PID)}],
            "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": UTC_NS}],
        },
    )


def capture(path: Path) -> Path:
    """A model's step with module, payloads of every kind, a counter, an async range; and events that were lost."""
    made = Capture(pid=PID, lost=3)
    main, back = made.thread(PID, "main"), made.thread(BACK, "autograd")
    main.range("ProfilerStep#7", 1_000, 9_000, source=2, category=STEP)
    main.range("Net.layer", 1_100, 5_000, source=2, category=MODULE)
    main.torch("aten::linear", 1_200, 3_000, seq=5, op_id=1, sizes="[[2, 4], [3, 4]]")
    main.torch("aten::addmm", 1_300, 2_000, seq=5, op_id=2, sizes="[[3], [2, 4], [4, 3]]")
    back.torch("AddmmBackward0", 5_500, 7_000, seq=5, op_id=3, category=BACKWARD, forward=PID)
    back.torch("aten::mm", 5_600, 6_100, op_id=4, category=OP)
    main.range(HOSTILE, 7_100, 7_200, value=(1 << 64) - 1, unsigned=True)
    ratio = main.range("ratio", 7_300, 7_400, value=float("nan"))
    main.attribute(ratio, "args", "x = 1")
    main.range("frame", 7_500, 7_900, kind=2, source=USER, identity=9)
    main.counter(8_000, "loss", 0.25)
    return made.write(path)
