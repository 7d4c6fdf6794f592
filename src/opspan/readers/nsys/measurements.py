"""Reads memory events of GPUs (allocations, pools, page faults of unified memory) into the table `memory`. Reads CPU
samples with call chains into the table `samples`, and metrics of GPUs into the table `counters`.

A sample is a row of COMPOSITE_EVENTS, and a row of SAMPLING_CALLCHAINS for each function on its stack:

COMPOSITE_EVENTS: id 7, start, cpu, globalTid, cpuCycles
SAMPLING_CALLCHAINS: id 7, symbol -> StringIds, stackDepth 0 (the innermost), 1, ...
"""

from __future__ import annotations

import polars as pl

from opspan.formats.columns import ints, named
from opspan.readers.nsys import tables
from opspan.readers.nsys.export import Export, pid_of, tid_of
from opspan.tables.schema import MEMORY_EVENT, STACK_SEPARATOR, empty

OPERATIONS = {0: "alloc", 1: "free"}
GPU_OF_TYPE = 0xFF  # these bits of a metric's typeId identify the GPU


def read_memory(export: Export) -> pl.DataFrame:
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


# --- samples and metrics


def read_samples(export: Export) -> pl.DataFrame:
    if tables.SAMPLES not in export:
        return empty("samples")
    samples = export.timed(tables.SAMPLES, tables.SAMPLE_COLUMNS)
    if not samples.height:
        return empty("samples")
    # Names of C++ functions may contain the separator, so it is replaced.
    symbols = export.strings.values.str.replace_all(STACK_SEPARATOR, ",", literal=True)
    frames = export.frame(tables.SAMPLE_STACKS, tables.SAMPLE_STACK_COLUMNS)
    parts = {"stack": "symbol", "libraries": "module"}
    rows = {part: export.strings.rows(frames[column], tables.SAMPLE_STACKS) for part, column in parts.items()}
    frames = frames.select("id", "stackDepth", **{part: symbols.gather(of).fill_null("?") for part, of in rows.items()})
    lost = frames.join(samples.select("id"), on="id", how="anti").height
    export.issues.add("dangling_data", lost, tables.SAMPLE_STACKS)
    stacks = frames.sort("stackDepth", descending=True).group_by("id").agg(pl.col(*parts).str.join(STACK_SEPARATOR))
    samples = samples.join(stacks, on="id", how="left", maintain_order="left").select(
        pl.lit(0, dtype=pl.Int32).alias("rank"),
        pid_of("globalTid").alias("pid"),
        tid_of("globalTid").alias("tid"),
        pl.col("start_ns").alias("time_ns"),
        "cpu",
        pl.col("cpuCycles").alias("weight"),
        pl.col(*parts).cast(pl.Categorical),
    )
    return export.narrow(tables.SAMPLES, samples, {"cpu": pl.Int32})


def read_counters(export: Export) -> pl.DataFrame:
    if tables.METRICS not in export:
        return empty("counters")
    values = export.frame(tables.METRICS, tables.METRIC_COLUMNS).rename({"timestamp": "start"})
    if not values.height:
        return empty("counters")
    values = export.in_time(tables.METRICS, values)
    names = export.frame(tables.METRIC_NAMES, tables.METRIC_NAME_COLUMNS)
    # In small exports, the table of metrics or the table of their names has no typeId.
    key = ["typeId", "metricId"] if names["typeId"].count() and values["typeId"].count() else ["metricId"]
    names = names.select(*key, name="metricName").unique(key, keep="first")
    values = values.join(names, on=key, how="left", maintain_order="left")
    # Metrics and the other tables use different ids for the same GPU. Newer exports list both: the metrics' id is in
    # pwGpuId, and the other tables' id is in `id`.
    gpus = export.frame("TARGET_INFO_GPU", ints("id pwGpuId")).drop_nulls().unique("pwGpuId", keep="first")
    values = values.with_columns(pwGpuId=pl.col("typeId") & GPU_OF_TYPE).join(
        gpus, on="pwGpuId", how="left", maintain_order="left"
    )
    return values.select(
        pl.lit(0, dtype=pl.Int32).alias("rank"),
        pl.coalesce("id", "pwGpuId").cast(pl.Int32, strict=False).alias("device_id"),
        pl.col("start_ns").alias("time_ns"),
        pl.coalesce("name", pl.col("metricId").cast(pl.String)).cast(pl.Categorical).alias("name"),
        pl.lit("gpu metrics").cast(pl.Categorical).alias("domain"),
        "value",
    )
