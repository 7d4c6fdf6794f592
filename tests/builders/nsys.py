"""Tiny nsys exports by hand: any tables with any columns, and one small run as each age of nsys would have written it.

    path = export(tmp_path / "a.sqlite", {"NVTX_EVENTS": [{"start": 1, "end": 2, "eventType": 59, "text": "x"}]})
    path = run(tmp_path / "b.sqlite", "2022")

No file of a real tool is in here; the column lists are those that docs/formats/nsys.md describes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from builders.sqlite import created

Rows = Sequence[Mapping[str, Any]]
Tables = Mapping[str, Rows]

PUSH_POP, START_END, MARK, CATEGORY, THREAD, DOMAIN, DOMAIN_END = 59, 60, 34, 33, 39, 75, 76
TYPES = {
    "text": "TEXT",
    "value": "TEXT",
    "name": "TEXT",
    "label": "TEXT",
    "jsonText": "TEXT",
    "binaryData": "TEXT",
    "doubleValue": "REAL",
}


def tid(pid: int, thread: int | None = None) -> int:
    """A globalTid as nsys numbers it on its first machine."""
    return 1 << 48 | pid << 24 | (pid if thread is None else thread)


def global_pid(pid: int) -> int:
    return tid(pid, 0)


def export(path: Path, tables: Tables, columns: Mapping[str, str] | None = None) -> Path:
    """A database with these rows. A table's columns are those of its rows, or as said."""
    connection = created(path)
    for name, rows in tables.items():
        names = (columns or {}).get(name, "").split() or list(dict.fromkeys(key for row in rows for key in row))
        declared = ", ".join(f'"{column}" {TYPES.get(column, "INTEGER")}' for column in names)
        connection.execute(f'CREATE TABLE "{name}" ({declared})')
        holes = ", ".join("?" * len(names))
        values = [[row.get(column) for column in names] for row in rows]
        connection.executemany(f'INSERT INTO "{name}" VALUES ({holes})', values)
    connection.commit()
    connection.close()
    return path


def folder(path: Path, tables: Tables, kind: str) -> Path:
    """The same as `nsys export --type parquetdir` or `arrowdir` lays it out: unsigned columns where ids are."""
    path.mkdir()
    for name, rows in tables.items():
        names = list(dict.fromkeys(key for row in rows for key in row))
        frame = pl.DataFrame([[row.get(column) for row in rows] for column in names], schema=names, orient="col")
        frame = frame.with_columns(pl.col(column).cast(pl.UInt64) for column in names if column.startswith("global"))
        if kind == "parquetdir":
            frame.write_parquet(path / f"{name}.parquet")
        else:
            frame.write_ipc_stream(path / f"{name}.arrow")
    return path


def strings(*texts: str) -> Rows:
    """StringIds from 1 on."""
    return [{"id": number, "value": text} for number, text in enumerate(texts, 1)]


def payload(domain: int, schema: int, raw: bytes) -> bytes:
    """binaryData as nsys writes it: a header of 32 bytes, then the payload."""
    return struct.pack("<IIIIQQ", domain, 0, schema, 0, len(raw), 32 + len(raw)) + raw


# --- one run, as each age would have written it

AGES = ("2019", "2022", "2023", "2025", "2026")

# Columns of a table by the first age that has them so.
NVTX = (
    "start end eventType rangeId category color text globalTid endGlobalTid textId domainId uint64Value int64Value "
    "doubleValue uint32Value int32Value floatValue jsonTextId jsonText"
)
KERNEL_OLD = (
    "start end deviceId contextId streamId correlationId globalPid demangledName shortName launchType "
    "registersPerThread gridX gridY gridZ blockX blockY blockZ staticSharedMemory dynamicSharedMemory graphNodeId"
)
KERNEL = KERNEL_OLD.replace("streamId", "greenContextId streamId").replace("shortName", "shortName mangledName")
RUNTIME = "start end eventClass globalTid correlationId nameId returnValue"
SYNC = "start end deviceId contextId streamId correlationId globalPid syncType eventId"
COLUMNS: dict[str, dict[str, str]] = {
    "NVTX_EVENTS": {"2019": NVTX, "2025": f"{NVTX} binaryData"},
    "CUPTI_ACTIVITY_KIND_RUNTIME": {"2019": RUNTIME, "2022": f"{RUNTIME} callchainId"},
    "CUPTI_ACTIVITY_KIND_KERNEL": {"2019": KERNEL_OLD, "2022": f"{KERNEL_OLD} mangledName", "2023": KERNEL},
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": {
        "2019": SYNC,
        "2025": SYNC.replace("syncType", "deprecatedSyncType syncType") + " eventSyncId",
    },
}
# Tables that were added later, with the first age that has them.
LATER = {
    "PROCESSES": "2022",
    "TARGET_INFO_SESSION_START_TIME": "2022",
    "ENUM_NSYS_EVENT_TYPE": "2022",
    "EXPORT_META_DATA": "2022",
    "META_DATA_EXPORT": "2023",
    "META_DATA_CAPTURE": "2023",
}
GONE = {"EXPORT_META_DATA": "2023"}

EVENT_TYPES = {
    "NvtxCategory": 33,
    "NvtxMark": 34,
    "NvtxThread": 39,
    "NvtxPushPopRange": 59,
    "NvtxStartEndRange": 60,
    "NvtxDomainCreate": 75,
    "NvtxDomainDestroy": 76,
}
VERSIONS = {"2022": ("2022.4.2.1", "3.0.0"), "2023": ("2023.4.4.54", "3.7.2"), "2025": ("2025.1.3.140", "3.17.2")}
VERSIONS["2026"] = ("2026.2.1.210", "3.25.0")

# Two processes with the same correlation id, a range in the default domain, one of a library with a registered text.
ONE, OTHER = 100, 200
UTC_NS = 1_700_000_000_000_000_000


def tables_of(age: str) -> dict[str, Rows]:
    product, schema = VERSIONS.get(age, (None, None))
    facts = [{"name": "EXPORT_PRODUCT_VERSION", "value": product}, {"name": "EXPORT_SCHEMA_VERSION", "value": schema}]
    found: dict[str, Rows] = {
        "StringIds": strings(
            "ncclAllReduce", "cudaLaunchKernel_v7000", "void gemm<float>(int)", "gemm", "python", "worker"
        ),
        "NVTX_EVENTS": [
            {"start": 5, "eventType": DOMAIN, "text": "NCCL", "globalTid": tid(ONE), "domainId": 1},
            {"start": 6, "eventType": CATEGORY, "category": 3, "text": "loss", "globalTid": tid(ONE), "domainId": 0},
            {"start": 7, "eventType": THREAD, "text": "main", "globalTid": tid(ONE), "domainId": 0},
            {
                "start": 10,
                "end": 90,
                "eventType": PUSH_POP,
                "category": 3,
                "color": 0xFF00FF00,
                "text": "aten::mm, seq = 4, op_id = 7",
                "globalTid": tid(ONE),
                "domainId": 0,
            },
            {"start": 20, "end": 60, "eventType": PUSH_POP, "textId": 1, "globalTid": tid(ONE), "domainId": 1},
            {
                "start": 30,
                "end": 70,
                "eventType": START_END,
                "text": "step",
                "globalTid": tid(OTHER),
                "endGlobalTid": tid(OTHER, 201),
                "domainId": 0,
                "int64Value": -5,
            },
            {"start": 35, "eventType": MARK, "text": "here", "globalTid": tid(OTHER), "domainId": 0},
            {"start": 80, "eventType": PUSH_POP, "text": "open", "globalTid": tid(OTHER), "domainId": 0},
        ],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [
            {
                "start": 22,
                "end": 25,
                "eventClass": 0,
                "globalTid": tid(ONE),
                "correlationId": 1,
                "nameId": 2,
                "returnValue": 0,
            },
            {
                "start": 32,
                "end": 36,
                "eventClass": 1,
                "globalTid": tid(OTHER),
                "correlationId": 1,
                "nameId": 2,
                "returnValue": 1,
            },
        ],
        "CUPTI_ACTIVITY_KIND_KERNEL": [
            kernel(start=40, end=50, pid=ONE, correlation=1),
            kernel(start=45, end=52, pid=OTHER, correlation=1, device=1),
        ],
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": [
            {
                "start": 53,
                "end": 55,
                "deviceId": 0,
                "contextId": 1,
                "streamId": 7,
                "correlationId": 2,
                "globalPid": global_pid(ONE),
                "syncType": 3,
            }
        ],
        "ThreadNames": [
            {"nameId": 5, "priority": 20, "globalTid": tid(ONE)},
            {"nameId": 6, "globalTid": tid(OTHER, 201)},
        ],
        "PROCESSES": [{"globalPid": global_pid(ONE), "pid": ONE, "name": "python"}],
        "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": UTC_NS}],
        "ENUM_NSYS_EVENT_TYPE": [{"id": number, "name": name, "label": name} for name, number in EVENT_TYPES.items()],
        "EXPORT_META_DATA": facts,
        "META_DATA_EXPORT": facts,
        "META_DATA_CAPTURE": [
            {"name": "PROCESS_0:COMMAND", "value": "python"},
            {"name": "PROCESS_0:ARGUMENT_0", "value": "my train.py"},
            {"name": "PROCESS_0:ENVIRONMENT_VARIABLE", "value": "TOKEN=secret"},
        ],
    }
    return {name: rows for name, rows in found.items() if _is_there(name, age)}


def kernel(
    start: int, end: int, pid: int, correlation: int, device: int = 0, node: int | None = None
) -> dict[str, Any]:
    sizes = dict.fromkeys(("gridY", "gridZ", "blockY", "blockZ"), 1)
    return {
        "start": start,
        "end": end,
        "deviceId": device,
        "contextId": 1,
        "streamId": 7,
        "correlationId": correlation,
        "globalPid": global_pid(pid),
        "demangledName": 3,
        "shortName": 4,
        "registersPerThread": 32,
        "gridX": 8,
        "blockX": 128,
        **sizes,
        "staticSharedMemory": 1024,
        "dynamicSharedMemory": 0,
        "graphNodeId": node,
    }


def run(path: Path, age: str) -> Path:
    columns = {}
    for name, by_age in COLUMNS.items():
        columns[name] = by_age[max(first for first in by_age if first <= age)]
    return export(path, tables_of(age), columns)


def _is_there(name: str, age: str) -> bool:
    return LATER.get(name, AGES[0]) <= age and age < GONE.get(name, "9999")


# Every source goes through the tests of tests/readers/samples.py with these files.
SAMPLES = {"of 2026": lambda folder: run(folder / "run.sqlite", "2026")}
