"""Tiny nvprof databases by hand: any tables with any rows, and one small run as each DB version would have it.

    path = profile(tmp_path / "a.nvvp", {"MARKER": [*marker(1, 10, 20, name=1)]}, texts=["aten::mm, seq = 3"])
    path = run(tmp_path / "b.nvprof", 12)

No file of a real tool is in here; the columns are those that docs/formats/nvprof.md describes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from builders.sqlite import created

Rows = Sequence[Mapping[str, Any]]
Tables = Mapping[str, Rows]  # by their names without CUPTI_ACTIVITY_KIND_

VERSIONS = (8, 9, 11, 12, 14, 16, 18, 20, 22, 23, 26)
MARK, START, END = 1, 2, 4
PID, MAIN, AUTOGRAD = 29051, 1290573632, 3590305536  # the last does not fit a signed number of 32 bits
ZERO_NS = 1_583_975_499_000_000_000

# Columns of a table, and those that came with a version.
COLUMNS: dict[str, dict[int, str]] = {
    "MARKER": {8: "flags timestamp id objectKind objectId name", 9: "domain"},
    "MARKER_DATA": {8: "flags id payloadKind payload color category"},
    "RUNTIME": {8: "cbid start end processId threadId correlationId returnValue"},
    "DRIVER": {8: "cbid start end processId threadId correlationId returnValue"},
    "CONCURRENT_KERNEL": {
        8: "cacheConfig sharedMemoryConfig registersPerThread partitionedGlobalCacheRequested "
        "partitionedGlobalCacheExecuted start end completed deviceId contextId streamId gridX gridY gridZ blockX "
        "blockY blockZ staticSharedMemory dynamicSharedMemory localMemoryPerThread localMemoryTotal correlationId "
        "gridId name",
        11: "queued submitted launchType isSharedMemoryCarveoutRequested sharedMemoryCarveoutRequested",
        12: "sharedMemoryExecuted",
        14: "graphNodeId shmemLimitConfig graphId",
        16: "pAccessPolicyWindow",
        18: "channelID channelType",
        20: "clusterX clusterY clusterZ",
    },
    "MEMCPY": {
        8: "copyKind srcKind dstKind flags bytes start end deviceId contextId streamId correlationId "
        "runtimeCorrelationId",
        14: "graphNodeId graphId",
        18: "channelID channelType",
        26: "copyCount",
    },
    "MEMSET": {
        8: "value bytes start end deviceId contextId streamId correlationId",
        9: "flags memoryKind",
        14: "graphNodeId graphId",
        18: "channelID channelType",
    },
    "SYNCHRONIZATION": {8: "type start end correlationId contextId streamId cudaEventId"},
    "OVERHEAD": {8: "overheadKind objectKind objectId start end"},
    "NAME": {8: "objectKind objectId name"},
    "CONTEXT": {8: "contextId deviceId computeApiKind nullStreamId", 22: "parentContextId isGreenContext"},
    "STREAM": {8: "contextId streamId priority flag correlationId"},
    "DEVICE": {
        8: "flags globalMemoryBandwidth globalMemorySize coreClockRate numMultiprocessors computeCapabilityMajor "
        "computeCapabilityMinor id uuid name"
    },
    "UNIFIED_MEMORY_COUNTER": {8: "counterKind value start end address srcId dstId streamId processId flags"},
    "CUDA_EVENT": {8: "correlationId contextId streamId eventId"},
}
COLUMNS["KERNEL"] = COLUMNS["CDP_KERNEL"] = COLUMNS["CONCURRENT_KERNEL"]
COLUMNS["MEMCPY2"] = {8: COLUMNS["MEMCPY"][8] + " srcDeviceId dstDeviceId"}


def profile(path: Path, tables: Tables, texts: Sequence[str] = (), version: int | None = 12) -> Path:
    """A database with these rows; columns that a row has not are 0, as nvprof's are. `texts` are numbered from 1."""
    connection = created(path)
    connection.execute("CREATE TABLE StringTable(_id_ INTEGER PRIMARY KEY AUTOINCREMENT, value TEXT NOT NULL UNIQUE)")
    connection.executemany("INSERT INTO StringTable VALUES (?, ?)", enumerate(("-- null --", *texts)))
    connection.execute("CREATE TABLE Version(version INTEGER)")
    if version is not None:
        connection.execute("INSERT INTO Version VALUES (?)", (version,))
    for name in COLUMNS:
        names = " ".join(more for first, more in COLUMNS[name].items() if first <= (version or 12)).split()
        declared = ", ".join(f'"{column}" {"BLOB" if column in ("objectId", "payload") else "INT"}' for column in names)
        table = f"CUPTI_ACTIVITY_KIND_{name}"
        connection.execute(f"CREATE TABLE {table}(_id_ INTEGER PRIMARY KEY AUTOINCREMENT, {declared})")
        quoted = ", ".join(f'"{column}"' for column in names)
        values = [[row.get(column, 0) for column in names] for row in tables.get(name, ())]
        connection.executemany(f"INSERT INTO {table} ({quoted}) VALUES ({', '.join('?' * len(names))})", values)
    connection.commit()
    connection.close()
    return path


# --- rows


def of_thread(tid: int = MAIN, pid: int = PID) -> dict[str, Any]:
    return {"objectKind": 2, "objectId": struct.pack("<III", pid, tid, 0)}


def of_process(pid: int = PID) -> dict[str, Any]:
    # The bytes after the pid are arbitrary.
    return {"objectKind": 1, "objectId": struct.pack("<III", pid, 0, 0xEDBADE50)}


def marker(number: int, start: int, end: int | None = None, *, name: int = 0, **more: Any) -> list[dict[str, Any]]:
    """The two rows of a range, or its first alone."""
    whose = {**of_thread(), **more}
    begun = {"flags": START, "timestamp": ZERO_NS + start, "id": number, "name": name, **whose}
    ended = {**begun, "flags": END, "timestamp": ZERO_NS + (end or 0), "name": 0, "domain": 0}
    return [begun, ended] if end is not None else [begun]


def call(correlation: int, start: int, end: int, cbid: int = 211, tid: int = MAIN) -> dict[str, Any]:
    signed = struct.unpack("<i", struct.pack("<I", tid))[0]
    times = {"start": ZERO_NS + start, "end": ZERO_NS + end}
    return {"cbid": cbid, "processId": PID, "threadId": signed, "correlationId": correlation, **times}


def on_gpu(correlation: int, start: int, end: int, **more: Any) -> dict[str, Any]:
    times = {"start": ZERO_NS + start, "end": ZERO_NS + end}
    return {"contextId": 1, "streamId": 7, "correlationId": correlation, **times, **more}


# --- one run: an op and its backward on another thread, each launching a kernel; copies, fills, a wait, overhead

TEXTS = (
    "python train.py --epochs 1",
    "Tesla V100",
    "mm, seq = 4",
    "MmBackward, seq = 4",
    "_Z4gemmIfEvPT_i",
    "opspan",
    "here",
)


def tables_of() -> dict[str, Rows]:
    size = {"gridX": 8, "gridY": 1, "gridZ": 1, "blockX": 128, "blockY": 1, "blockZ": 1, "registersPerThread": 32}
    return {
        "NAME": [{**of_process(), "name": 1}],
        "MARKER": [
            *marker(1, 0, 90, name=3),
            {**marker(2, 15, name=7)[0], "flags": MARK},
            *marker(3, 100, 190, name=4, **of_thread(AUTOGRAD)),
        ],
        "RUNTIME": [
            call(1, 10, 20),
            call(2, 110, 120, tid=AUTOGRAD),
            call(3, 121, 122, cbid=41, tid=AUTOGRAD),
            call(4, 123, 124, cbid=51, tid=AUTOGRAD),
            call(5, 125, 180, cbid=131, tid=AUTOGRAD),
        ],
        "DRIVER": [call(6, 1, 2, cbid=332)],
        "CONCURRENT_KERNEL": [on_gpu(1, 30, 40, name=5, **size), on_gpu(2, 130, 150, name=5, **size)],
        "MEMCPY": [on_gpu(3, 151, 152, copyKind=2, srcKind=3, dstKind=1, bytes=8)],
        "MEMSET": [on_gpu(4, 153, 154, bytes=168, memoryKind=3)],
        "SYNCHRONIZATION": [on_gpu(5, 126, 179, type=3)],
        "OVERHEAD": [{"overheadKind": 1 << 17, **of_process(), "start": ZERO_NS + 3, "end": ZERO_NS + 5}],
        "CONTEXT": [{"contextId": 1, "deviceId": 0, "computeApiKind": 1, "nullStreamId": 7}],
        "DEVICE": [
            {
                "id": 0,
                "name": 2,
                "uuid": bytes(range(16)),
                "globalMemorySize": 16914055168,
                "globalMemoryBandwidth": 898048000,
                "coreClockRate": 1530000,
                "numMultiprocessors": 80,
                "computeCapabilityMajor": 7,
                "computeCapabilityMinor": 0,
            }
        ],
    }


def run(path: Path, version: int) -> Path:
    return profile(path, tables_of(), TEXTS, version)


# Every source goes through the tests of tests/readers/samples.py with these files.
SAMPLES = {"of version 26": lambda folder: run(folder / "run.nvvp", 26)}
