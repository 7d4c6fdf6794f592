"""Reads UNIFIED_MEMORY_COUNTER into the table `memory`: automatic transfers of unified memory, and page faults."""

from __future__ import annotations

import polars as pl

from opspan.formats.columns import constant, in_time, named
from opspan.readers.nvprof import tables
from opspan.readers.nvprof.profile import Profile, unsigned
from opspan.tables.schema import MEMORY_EVENT

TO_DEVICE, TO_HOST, HOST_FAULT, DEVICE_FAULT, BETWEEN_DEVICES = 1, 2, 3, 4, 8
NAMES = {
    TO_DEVICE: "Unified HtoD",
    TO_HOST: "Unified DtoH",
    HOST_FAULT: "CPU page fault",
    DEVICE_FAULT: "GPU page fault",
    BETWEEN_DEVICES: "Unified DtoD",
}
TRANSFERS = (TO_DEVICE, TO_HOST, BETWEEN_DEVICES)
THRASHING, REMOTE_MAP = 5, 7
# Events of these kinds are points in time. CUPTI says that the end time has no meaning. Usually the end time is 0.
WITHOUT_END = (HOST_FAULT, THRASHING, REMOTE_MAP)


def read(profile: Profile) -> pl.DataFrame:
    kind = pl.col("counterKind")
    frame = profile.frame(tables.UNIFIED, tables.UNIFIED_COLUMNS)
    ends = pl.when(~kind.is_in(WITHOUT_END).fill_null(value=False) | (pl.col("start") == 0)).then("end")
    frame = in_time(frame.with_columns(ends.alias("end")), tables.UNIFIED, profile.issues)
    known = frame.filter(kind.is_in(list(NAMES)))
    # Thrashing, throttling and remote maps are left out: the table `memory` has no kinds of events for them.
    profile.issues.add("skipped_tables", frame.height - known.height, f"{tables.UNIFIED}, other kinds of counters")
    is_transfer = kind.is_in(TRANSFERS)
    return known.select(
        pl.lit(0, dtype=pl.Int32).alias("rank"),
        unsigned("processId").alias("pid"),
        pl.when(kind.is_in([TO_DEVICE, BETWEEN_DEVICES]))
        .then("dstId")
        .when(kind.is_in([TO_HOST, DEVICE_FAULT]))
        .then("srcId")
        .alias("device_id"),
        pl.col("start_ns").alias("time_ns"),
        "end_ns",
        pl.when(is_transfer)
        .then(pl.lit("transfer", dtype=MEMORY_EVENT))
        .otherwise(pl.lit("fault", dtype=MEMORY_EVENT))
        .alias("event"),
        pl.when(is_transfer).then("value").alias("bytes"),
        pl.col("address").reinterpret(signed=False),
        constant("managed").alias("kind"),
        named(known["counterKind"], NAMES).alias("name"),
        pl.when(kind == DEVICE_FAULT).then("value").alias("count"),
    )
