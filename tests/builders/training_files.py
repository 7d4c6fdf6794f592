"""The runs of training.py as files: what torch.profiler and nsys would have written of them, a file a rank.

kineto_files(folder, training.run(plan)) -> paths, in the order of the ranks
nsys_files(folder, training.run(plan))
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import opspan
from builders import kineto, nsys
from builders.training import run
from builders.training_plan import MULTIPROCESSORS, STREAMS, Moment, Plan, Range, Run, collective_args, pid_of

US = 1000
_COPIES = {"Memcpy HtoD": 1, "Memcpy DtoH": 2, "Memcpy PtoP": 10}
_MEMORY = {"Pageable": 0, "Pinned": 1, "Device": 2}
DEVICE_BYTES = 1 << 34
_GPU = {"name": "Some GPU", "totalGlobalMem": DEVICE_BYTES, "computeMajor": 9, "computeMinor": 0}


def load(folder: Path, plan: Plan, source: str = "kineto") -> opspan.Trace:
    write = {"kineto": kineto_files, "nsys": nsys_files}[source]
    folder.mkdir(exist_ok=True)
    return opspan.load(*write(folder, run(plan)))


def kineto_files(folder: Path, made: Run) -> list[Path]:
    return [_kineto(folder / f"rank{rank:02}.json", made.of(rank), rank) for rank in range(made.plan.ranks)]


def _kineto(path: Path, made: Run, rank: int) -> Path:
    pid = pid_of(rank)
    events: list[dict[str, Any]] = []
    for row in made.ranges:
        where = (row.name, pid + row.tid, row.start / US, (row.end - row.start) / US, pid)
        if row.kind in ("module", "function"):
            name = f"nn.Module: {row.name}" if row.kind == "module" else row.name
            events.append(kineto.span("python_function", name, *where[1:], **_python(row)))
            continue
        args: dict[str, Any] = {"External id": row.number, "Record function id": 0, "Ev Idx": row.number}
        if row.seq is not None:
            args |= {"Sequence number": row.seq, "Fwd thread id": int(row.is_backward)}
        if row.sizes is not None and row.types is not None:
            args |= {"Input Dims": json.loads(row.sizes), "Input type": json.loads(row.types)}
        events.append(kineto.span("user_annotation" if row.kind == "user" else "cpu_op", *where, **args))
    for call in made.calls:
        span = (call.name, pid + call.tid, call.start / US, (call.end - call.start) / US, pid)
        events.append(kineto.span("cuda_runtime", *span, cbid=211, correlation=call.correlation))
    for work in made.work:
        name, category = work.name, "kernel"
        if work.kind == "overhead":
            times = (work.start / US, (work.end - work.start) / US)
            events.append(kineto.span("overhead", name, pid + work.stream, *times, pid))
            continue
        device, stream = divmod(work.stream, STREAMS)
        args = {"device": device, "context": 1, "stream": stream, "correlation": work.correlation}
        if work.sides:
            name, category = f"{name} ({' -> '.join(work.sides)})", "gpu_memcpy"
            args["bytes"] = work.bytes
        else:
            args |= {"grid": [work.blocks, 1, 1], "block": [256, 1, 1], "registers per thread": 32}
        if work.collective:
            args |= collective_args(made.plan, work)
        span = (name, stream, work.start / US, (work.end - work.start) / US, device)
        events.append(kineto.span(category, *span, **args))
    events += map(_memory, made.memory)
    group = {"backend": "nccl", "rank": rank, "world_size": made.plan.ranks}
    devices = [{"id": device, **_GPU, "numSms": MULTIPROCESSORS} for device in _devices(made)]
    head = {"deviceProperties": devices, "distributedInfo": group}
    return kineto.write(path, kineto.document(events, **head))


def _devices(made: Run) -> range:
    return range(1 + max((work.stream // STREAMS for work in made.work), default=0))


def _python(row: Range) -> dict[str, Any]:
    ids = {"Python id": row.number, "Python parent id": row.parent}
    return ids | ({"Python module id": row.number} if row.kind == "module" else {})


def _memory(row: Moment) -> dict[str, Any]:
    totals = {"Total Reserved": row.reserved, "Total Allocated": row.allocated}
    event = kineto.allocation(row.at / US, row.bytes, row.address)
    return event | {"pid": pid_of(row.rank), "tid": pid_of(row.rank) + row.tid, "args": event["args"] | totals}


def nsys_files(folder: Path, made: Run) -> list[Path]:
    return [_nsys(folder / f"rank{rank:02}.sqlite", made.of(rank), rank) for rank in range(made.plan.ranks)]


def _nsys(path: Path, made: Run, rank: int) -> Path:
    pid = pid_of(rank)
    texts: dict[str, int] = {}

    def text(name: str) -> int:
        return texts.setdefault(name, len(texts) + 1)

    ranges: list[dict[str, Any]] = []
    for row in made.ranges:
        if row.kind == "function":
            continue  # nsys' ranges are the program's own
        label = row.name
        label += "" if row.seq is None else f", seq = {row.seq}"
        label += f", op_id = {row.number}" if row.kind == "op" else ""
        label += f", fwd_tid = {pid + row.forward_tid}" if row.is_backward else ""
        label += f", class = {row.name.split('_')[0]}" if row.kind == "module" else ""
        label += f", sizes = {row.sizes}" if row.sizes else ""
        times = {"start": row.start, "end": row.end, "eventType": nsys.PUSH_POP, "text": label, "domainId": 0}
        ranges.append({**times, "globalTid": nsys.tid(pid, pid + row.tid)})
    calls = [
        {
            "start": row.start,
            "end": row.end,
            "eventClass": 0,
            "globalTid": nsys.tid(pid, pid + row.tid),
            "correlationId": row.correlation,
            "nameId": text(f"{row.name}_v7000"),
            "returnValue": 0,
        }
        for row in made.calls
    ]
    kernels, copies, overhead = [], [], []
    for work in made.work:
        if work.kind == "overhead":
            thread = nsys.tid(pid, pid + work.stream)
            overhead.append({"start": work.start, "end": work.end, "globalTid": thread, "nameId": text(work.name)})
            continue
        device, stream = divmod(work.stream, STREAMS)
        row_ = nsys.kernel(work.start, work.end, pid, work.correlation, device) | {"streamId": stream}
        if work.sides is None:
            name = text(work.name)
            kernels.append(row_ | {"demangledName": name, "shortName": name, "gridX": work.blocks, "blockX": 256})
            continue
        kept = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid")
        sides = dict(zip(("srcKind", "dstKind"), (_MEMORY[side] for side in work.sides), strict=True))
        copies.append({key: row_[key] for key in kept} | {"bytes": work.bytes, "copyKind": _COPIES[work.name]} | sides)
    tables: dict[str, nsys.Rows] = {
        "NVTX_EVENTS": ranges,
        "CUPTI_ACTIVITY_KIND_RUNTIME": calls,
        "CUPTI_ACTIVITY_KIND_KERNEL": kernels,
        "CUPTI_ACTIVITY_KIND_MEMCPY": copies,
        "PROFILER_OVERHEAD": overhead,
        "StringIds": nsys.strings(*texts),
        "TARGET_INFO_GPU": [
            {"id": device, "name": "Some GPU", "smCount": MULTIPROCESSORS, "totalMemory": DEVICE_BYTES}
            for device in _devices(made)
        ],
        "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": nsys.UTC_NS}],
        "META_DATA_EXPORT": nsys.tables_of("2026")["META_DATA_EXPORT"],
    }
    return nsys.export(path, {name: rows for name, rows in tables.items() if rows})
