"""Reads work on GPUs into the table `work`: kernels, copies, fills, waits, whole graphs; and the profiler's overhead.

    CUPTI_ACTIVITY_KIND_KERNEL: start, end, deviceId 0, contextId 1, streamId 7, correlationId 214, globalPid,
                                demangledName -> StringIds, shortName -> StringIds, gridX ...

One call may have started the work of many rows, for example all nodes of a graph. The call of a row may be missing in
the file. The analysis pairs the rows with their calls. Rows of the profiler's overhead are flagged, so that they do not
count as work of the program.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import polars as pl

from opspan.formats.columns import Columns, constant, named
from opspan.formats.kernel_names import told_apart
from opspan.readers._cupti import SYNC_KINDS, WORK_NAMES
from opspan.readers.nsys import tables
from opspan.readers.nsys.export import Export, where
from opspan.tables.schema import WORK_KIND, conform, empty


def read(export: Export) -> pl.DataFrame:
    readers: dict[str, Callable[[Export], pl.DataFrame]] = {
        tables.KERNEL: _kernels,
        tables.MEMCPY: _copies,
        tables.MEMSET: _fills,
        tables.SYNC: _waits,
        tables.GRAPH_TRACE: _graphs,
        **{table: partial(_overhead, table=table) for table in tables.OVERHEAD_TABLES},
    }
    work = export.joined(readers)
    return empty("work") if work is None else export.on_gpus(conform("work", work))


def _on_device(export: Export, table: str, columns: Columns, kind: str) -> pl.DataFrame:
    frame = export.timed(table, columns).rename(WORK_NAMES, strict=False)
    pid, _ = where(frame, "globalPid")
    kinds = {"kind": pl.lit(kind, dtype=WORK_KIND), "is_overhead": pl.lit(value=False)}
    return frame.with_columns(pid, **kinds).drop("globalPid")


def _kernels(export: Export) -> pl.DataFrame:
    frame = _on_device(export, tables.KERNEL, tables.KERNEL_COLUMNS, "kernel")
    frame = frame.select(
        pl.all().exclude("shortName", "demangledName"),
        name=export.strings.column(frame, "shortName", tables.KERNEL),
        full_name=export.strings.column(frame, "demangledName", tables.KERNEL),
    )
    return frame.with_columns(told_apart(frame["name"], frame["full_name"]))


def _copies(export: Export) -> pl.DataFrame:
    frame = _on_device(export, tables.MEMCPY, tables.MEMCPY_COLUMNS, "memcpy")
    memory = export.memory_kinds()
    device = pl.col("device_id").cast(pl.Int64)
    # A copy has two devices. The peer is the device that is not the row's `device_id`.
    peer = pl.coalesce(
        pl.when(pl.col("dstDeviceId") != device).then("dstDeviceId"),
        pl.when(pl.col("srcDeviceId") != device).then("srcDeviceId"),
    )
    frame = frame.with_columns(
        named(frame["copyKind"], tables.COPY_KINDS, "Memcpy {}").alias("name"),
        named(frame["srcKind"], memory).alias("copy_from"),
        named(frame["dstKind"], memory).alias("copy_to"),
        peer.alias("peer_device_id"),
    ).drop("copyKind", "srcKind", "dstKind", "srcDeviceId", "dstDeviceId")
    return export.narrow(tables.MEMCPY, frame, {"peer_device_id": pl.Int32})


def _fills(export: Export) -> pl.DataFrame:
    frame = _on_device(export, tables.MEMSET, tables.MEMSET_COLUMNS, "memset")
    return frame.with_columns(
        constant("Memset").alias("name"), named(frame["memKind"], export.memory_kinds()).alias("copy_to")
    ).drop("memKind")


def _waits(export: Export) -> pl.DataFrame:
    frame = _on_device(export, tables.SYNC, tables.SYNC_COLUMNS, "sync")
    kinds = export.labels("ENUM_CUPTI_SYNC_TYPE", SYNC_KINDS)
    return frame.with_columns(named(frame["syncType"], kinds).alias("name")).drop("syncType")


def _graphs(export: Export) -> pl.DataFrame:
    frame = _on_device(export, tables.GRAPH_TRACE, tables.GRAPH_TRACE_COLUMNS, "graph")
    return frame.with_columns(
        ("Graph " + pl.col("graph_id").cast(pl.String)).cast(pl.Categorical).alias("name"),
    )


def _overhead(export: Export, table: str) -> pl.DataFrame:
    frame = export.timed(table, tables.OVERHEAD_COLUMNS)
    kinds = export.labels("ENUM_CUPTI_OVERHEAD_TYPE", tables.OVERHEAD_KINDS)
    names = export.strings.names(frame["nameId"], table)
    return frame.with_columns(overhead=named(frame["overheadType"], kinds), own_name=names).select(
        *where(frame),
        "start_ns",
        "end_ns",
        pl.lit("other", dtype=WORK_KIND).alias("kind"),
        pl.coalesce("own_name", "overhead").alias("name"),
        pl.col("correlationId").alias("correlation_id"),
        pl.lit(value=True).alias("is_overhead"),
    )


def with_processes(work: pl.DataFrame, calls: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    """Fills in the missing pids in the table `work`. If only one process has calls, or only one has ranges, the work
    belongs to this process. Otherwise, if calls of only one process have the work's correlation id, the work belongs to
    the process of these calls."""
    if not work["pid"].null_count():
        return work
    for frame in (calls, ranges):
        if len(pids := frame["pid"].drop_nulls().unique()) == 1:
            return work.with_columns(pl.col("pid").fill_null(pids[0]))
    pairs = calls.select("correlation_id", of_call="pid").drop_nulls().unique()
    pairs = pairs.filter(pl.len().over("correlation_id") == 1)
    work = work.join(pairs, on="correlation_id", how="left", maintain_order="left")
    return work.with_columns(pl.coalesce("pid", "of_call").alias("pid")).drop("of_call")
