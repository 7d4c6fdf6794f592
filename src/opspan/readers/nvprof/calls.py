"""Reads the tables RUNTIME and DRIVER into the table `calls`.

    RUNTIME: cbid 211, start, end, processId 29051, threadId -704661760, correlationId 4362, returnValue 0

A row has the number of a function instead of its name (cbids.py), and a signed thread id. The analysis pairs calls and
GPU work by correlation id and process. It does not use the function's number.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from opspan.formats.columns import constant
from opspan.readers.nvprof import cbids, tables
from opspan.readers.nvprof.profile import Profile, unsigned

APIS = ((tables.RUNTIME, "cuda_runtime", cbids.RUNTIME), (tables.DRIVER, "cuda_driver", cbids.DRIVER))

SHOWN = 8


def read(profile: Profile) -> pl.DataFrame:
    parts = [_calls(profile, table, api, names) for table, api, names in APIS]
    return pl.concat(parts).with_columns(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("id"), rank=pl.lit(0, dtype=pl.Int32)
    )


def _calls(profile: Profile, table: str, api: str, names: Mapping[int, str]) -> pl.DataFrame:
    frame = profile.timed(table, tables.CALL_COLUMNS)
    cbid = pl.col("cbid")
    unknown = frame.filter(~cbid.is_in(list(names)))["cbid"]
    listed = ", ".join(map(str, unknown.unique().sort().head(SHOWN)))
    profile.issues.add("unknown_functions", len(unknown), f"{table}, cbid {listed}")
    known = cbid.replace_strict(list(names), list(names.values()), default=None, return_dtype=pl.String)
    return frame.select(
        unsigned("processId").alias("pid"),
        unsigned("threadId").alias("tid"),
        "start_ns",
        "end_ns",
        pl.coalesce(known, "cbid " + cbid.cast(pl.String)).cast(pl.Categorical).alias("name"),
        constant(api).alias("api"),
        pl.col("correlationId").alias("correlation_id"),
        pl.col("returnValue").alias("return_code"),
    )
