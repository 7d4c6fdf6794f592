"""Reads work on GPUs into the table `work`: kernels, copies, fills, waits, and the profiler's overhead.

    CONCURRENT_KERNEL: start, end, deviceId 0, contextId 1, streamId 7, correlationId 4362, name -> StringTable, ...

Names of kernels are mangled in the file, and are demangled here. A name that cannot be demangled stays as it is. Rows
have no process, so they belong to the file's only process. The analysis pairs the rows with their calls. The call of a
row may be missing in the file.
"""

from __future__ import annotations

import polars as pl

from opspan.formats.columns import Columns, constant, named
from opspan.formats.demangle import demangled, is_mangled
from opspan.formats.kernel_names import kernel_name
from opspan.readers._cupti import SYNC_KINDS, WORK_NAMES
from opspan.readers.nvprof import tables
from opspan.readers.nvprof.profile import Profile
from opspan.tables.schema import WORK_KIND, conform


def read(profile: Profile, pid: int | None, contexts: pl.DataFrame) -> pl.DataFrame:
    """Returns the table `work`. `pid`: the file's only process, or None if the file has several processes. `contexts`:
    from target.contexts."""
    parts = [
        *(_kernels(profile, table) for table in tables.KERNELS),
        _copies(profile, tables.MEMCPY, tables.MEMCPY_COLUMNS),
        _copies(profile, tables.PEER_MEMCPY, tables.PEER_MEMCPY_COLUMNS),
        _fills(profile),
        _waits(profile, contexts),
    ]
    work = pl.concat([part for part in parts if part.height] or parts[:1], how="diagonal_relaxed")
    work = work.with_columns(pid=pl.lit(pid, dtype=pl.Int64), is_overhead=pl.lit(value=False))
    work = conform("work", pl.concat([work, _overhead(profile)], how="diagonal_relaxed"))
    return work.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("id"), rank=pl.lit(0, dtype=pl.Int32))


def _on_device(profile: Profile, table: str, columns: Columns, kind: str) -> pl.DataFrame:
    frame = profile.timed(table, columns)
    if "graphNodeId" in columns:
        frame = frame.with_columns(pl.col("graphNodeId", "graphId").replace(0, None))
    return frame.rename(WORK_NAMES, strict=False).with_columns(kind=pl.lit(kind, dtype=WORK_KIND))


def _kernels(profile: Profile, table: str) -> pl.DataFrame:
    frame = _on_device(profile, table, tables.KERNEL_COLUMNS, "kernel")
    texts, at = profile.texts(frame["name"], table)
    full = [demangled(text) for text in texts]
    short = [kernel_name(text) for text in full]
    mangled = pl.Series([is_mangled(text) for text in full], dtype=pl.Boolean).gather(at)
    profile.issues.add("mangled_names", int(mangled.sum()), table)
    return frame.with_columns(
        pl.Series("name", short, dtype=pl.String).cast(pl.Categorical).gather(at),
        pl.Series("full_name", full, dtype=pl.String).cast(pl.Categorical).gather(at),
    )


def _copies(profile: Profile, table: str, columns: Columns) -> pl.DataFrame:
    frame = _on_device(profile, table, columns, "memcpy")
    if "srcDeviceId" in columns:  # a copy between two devices; the peer is the device that is not `device_id`
        peer = pl.coalesce(
            pl.when(pl.col("dstDeviceId") != pl.col("device_id")).then("dstDeviceId"),
            pl.when(pl.col("srcDeviceId") != pl.col("device_id")).then("srcDeviceId"),
        )
        frame = frame.with_columns(peer.alias("peer_device_id")).drop("srcDeviceId", "dstDeviceId")
    return frame.with_columns(
        named(frame["copyKind"], tables.COPY_KINDS, "Memcpy {}").alias("name"),
        named(frame["srcKind"], tables.MEMORY_KINDS).alias("copy_from"),
        named(frame["dstKind"], tables.MEMORY_KINDS).alias("copy_to"),
    ).drop("copyKind", "srcKind", "dstKind")


def _fills(profile: Profile) -> pl.DataFrame:
    frame = _on_device(profile, tables.MEMSET, tables.MEMSET_COLUMNS, "memset")
    return frame.with_columns(
        constant("Memset").alias("name"), named(frame["memoryKind"], tables.MEMORY_KINDS).alias("copy_to")
    ).drop("memoryKind")


def _waits(profile: Profile, contexts: pl.DataFrame) -> pl.DataFrame:
    """Returns the waits. A wait has a context but no device; stream -1 means all streams of the context."""
    frame = _on_device(profile, tables.SYNC, tables.SYNC_COLUMNS, "sync")
    devices = contexts.select("context_id", "device_id").unique("context_id", keep="first")
    frame = frame.join(devices, on="context_id", how="left", maintain_order="left")
    return frame.with_columns(
        pl.when(pl.col("stream_id") >= 0).then("stream_id").alias("stream_id"),
        named(frame["type"], SYNC_KINDS).alias("name"),
    ).drop("type")


def _overhead(profile: Profile) -> pl.DataFrame:
    frame = profile.timed(tables.OVERHEAD, tables.OVERHEAD_COLUMNS)
    return frame.with_columns(profile.owners(frame, tables.OVERHEAD)).select(
        "pid",
        "tid",
        "start_ns",
        "end_ns",
        pl.lit("other", dtype=WORK_KIND).alias("kind"),
        named(frame["overheadKind"], tables.OVERHEAD_KINDS).alias("name"),
        pl.lit(value=True).alias("is_overhead"),
    )
