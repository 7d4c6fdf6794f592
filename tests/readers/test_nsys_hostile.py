"""nsys' exports whose cells hold anything at all: a Trace with issues or an OpspanError, never anything else."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import opspan
from builders import nsys as build
from opspan.errors import OpspanError
from opspan.trace import Trace
from tiers import before_release

# Tables that nsys can write, but that a small run lacks.
MORE: dict[str, str] = {
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start end deviceId contextId streamId correlationId globalPid bytes copyKind "
    "srcKind dstKind srcDeviceId dstDeviceId graphNodeId",
    "CUPTI_ACTIVITY_KIND_MEMSET": "start end deviceId contextId streamId correlationId globalPid bytes memKind",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start end deviceId contextId streamId correlationId globalPid graphId",
    "CUDA_GRAPH_NODE_EVENTS": "start end globalTid nameId graphNodeId originalGraphNodeId",
    "OSRT_API": "start end globalTid nameId returnValue nestingLevel",
    "PROFILER_OVERHEAD": "start end globalTid nameId correlationId overheadType",
    "CUDA_GPU_MEMORY_USAGE_EVENTS": "start globalPid deviceId address bytes memKind memoryOperationType correlationId",
    "CUDA_GPU_MEMORY_POOL_EVENTS": "start globalPid deviceId address operationType localMemoryPoolSize",
    "CUDA_UM_CPU_PAGE_FAULT_EVENTS": "start globalPid address CpuInstruction",
    "CUDA_UM_GPU_PAGE_FAULT_EVENTS": "start end globalPid deviceId address numberOfPageFaults faultAccessType",
    "COMPOSITE_EVENTS": "id start cpu globalTid cpuCycles",
    "SAMPLING_CALLCHAINS": "id symbol stackDepth",
    "GPU_METRICS": "timestamp typeId metricId value",
    "TARGET_INFO_GPU_METRICS": "typeId metricId metricName",
    "TARGET_INFO_GPU": "id pwGpuId name busLocation totalMemory smCount",
    "NVTX_PAYLOAD_SCHEMAS": "domainId schemaId name type payloadSize",
    "NVTX_PAYLOAD_SCHEMA_ENTRIES": "domainId schemaId idx type name offset flags arrayOrUnionDetail",
    "DIAGNOSTIC_EVENT": "timestamp source severity text",
}
ODD: list[Any] = [-(2**63), 2**63 - 1, 2**40, -1, 0, 0.5, float("inf"), "text", "", b"\x00\xff", "x" * 100_000, None]


def everything(age: str) -> dict[str, list[dict[str, Any]]]:
    """Rows of every table and column that are read, sound ones where one small run has them."""
    tables = {name: [dict(row) for row in rows] for name, rows in build.tables_of(age).items()}
    for name, by_age in build.COLUMNS.items():
        columns = by_age[max(first for first in by_age if first <= age)].split()
        tables[name] = [{**dict.fromkeys(columns), **row} for row in tables[name]]
    for name, names in MORE.items():
        tables[name] = [dict.fromkeys(names.split(), number) for number in (1, 2)]
    return tables


def loaded(path: Path, tables: Mapping[str, build.Rows]) -> Trace | None:
    try:
        trace = opspan.load(build.export(path, tables))
    except OpspanError as error:
        assert "\n" not in str(error)  # noqa: PT017 - a refusal is as good as a trace
        return None
    trace.events().key_averages().table()
    return trace


@pytest.mark.slow
@pytest.mark.parametrize("age", build.AGES)
@pytest.mark.parametrize("odd", before_release(ODD, kept=6), ids=lambda odd: repr(odd)[:24])
def test_every_cell_may_be_anything(tmp_path: Path, age: str, odd: Any) -> None:
    tables = {name: [dict.fromkeys(row, odd) for row in rows] for name, rows in everything(age).items()}

    trace = loaded(tmp_path / "x.sqlite", tables)

    assert trace is None or not trace.issues.is_empty()


@pytest.mark.slow
@pytest.mark.parametrize("seed", before_release(range(40), kept=10))
def test_some_cells_may_be_anything(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    tables = everything(chance.choice(build.AGES))
    share = chance.choice([0.02, 0.1, 0.4])
    for rows in tables.values():
        for row in rows:
            for column in row:
                if chance.random() < share:
                    row[column] = chance.choice(ODD)

    trace = loaded(tmp_path / "x.sqlite", tables)

    assert trace is None or trace.ranges.height <= len(tables["NVTX_EVENTS"])


@pytest.mark.slow
@pytest.mark.parametrize("table", sorted(everything("2026")))
def test_any_table_may_be_somebody_elses(tmp_path: Path, table: str) -> None:
    tables = everything("2026")
    tables[table] = [{"people": "Ada", "start": "noon"}]

    assert loaded(tmp_path / "x.sqlite", tables) is not None
