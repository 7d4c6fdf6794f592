"""Reads memory events of GPUs into the table memory: allocations, pools, page faults of unified memory."""

from __future__ import annotations

import polars as pl

from opspan.formats.columns import named
from opspan.readers.nsys import tables
from opspan.readers.nsys.export import Export, pid_of
from opspan.tables.schema import MEMORY_EVENT, empty

OPERATIONS = {0: "alloc", 1: "free"}


def read(export: Export) -> pl.DataFrame:
    readers = {
        tables.MEMORY_USAGE: _usage,
        tables.MEMORY_POOL: _pools,
        tables.CPU_FAULTS: _cpu_faults,
        tables.GPU_FAULTS: _gpu_faults,
    }
    memory = export.joined(readers)
    if memory is None:
        return empty("memory")
    memory = export.narrow("memory", memory, {"device_id": pl.Int32})
    return export.on_gpus(memory).with_columns(rank=pl.lit(0, dtype=pl.Int32))


def _usage(export: Export) -> pl.DataFrame:
    frame = export.timed(tables.MEMORY_USAGE, tables.MEMORY_USAGE_COLUMNS)
    operation = pl.col("memoryOperationType").replace_strict(
        list(OPERATIONS), list(OPERATIONS.values()), default="usage", return_dtype=MEMORY_EVENT
    )
    return frame.select(
        *_where(device=True),
        operation.alias("event"),
        "bytes",
        _address(),
        pl.col("localMemoryPoolUtilizedSize").alias("total_bytes"),
        named(frame["memKind"], export.memory_kinds()).alias("kind"),
        pl.col("name").cast(pl.Categorical),
        pl.col("correlationId").alias("correlation_id"),
    )


def _pools(export: Export) -> pl.DataFrame:
    frame = export.timed(tables.MEMORY_POOL, tables.MEMORY_POOL_COLUMNS)
    return frame.select(
        *_where(device=True),
        _event("usage"),
        pl.col("localMemoryPoolSize").alias("bytes"),
        _address(),
        pl.col("localMemoryPoolUtilizedSize").alias("total_bytes"),
        pl.lit("device").cast(pl.Categorical).alias("kind"),
        named(frame["operationType"], tables.POOL_OPERATIONS).alias("name"),
        pl.col("correlationId").alias("correlation_id"),
    )


def _cpu_faults(export: Export) -> pl.DataFrame:
    frame = export.timed(tables.CPU_FAULTS, tables.CPU_FAULT_COLUMNS)
    return frame.select(
        *_where(device=False),
        _event("fault"),
        _address(),
        pl.lit("managed").cast(pl.Categorical).alias("kind"),
        export.strings.names(frame["CpuInstruction"], tables.CPU_FAULTS).alias("name"),
    )


def _gpu_faults(export: Export) -> pl.DataFrame:
    frame = export.timed(tables.GPU_FAULTS, tables.GPU_FAULT_COLUMNS)
    kinds = export.labels("ENUM_CUDA_UNIF_MEM_ACCESS_TYPE", tables.ACCESS_KINDS)
    kinds = {number: label.lower() for number, label in kinds.items()}
    return frame.select(
        *_where(device=True),
        "end_ns",
        _event("fault"),
        _address(),
        pl.lit("managed").cast(pl.Categorical).alias("kind"),
        named(frame["faultAccessType"], kinds).alias("name"),
        pl.col("numberOfPageFaults").alias("count"),
    )


def _where(device: bool) -> list[pl.Expr]:
    where = [pid_of("globalPid").alias("pid"), pl.col("start_ns").alias("time_ns")]
    return [*where, pl.col("deviceId").alias("device_id")] if device else where


def _event(event: str) -> pl.Expr:
    return pl.lit(event, dtype=MEMORY_EVENT).alias("event")


def _address() -> pl.Expr:
    return pl.col("address").reinterpret(signed=False)
