"""Reads several tables of VTune into the table `counters`: the program's counters, the number of busy processors, and
pauses of the collection. Rows of two of VTune's tables:

cpu_usage_data: start_tsc, end_tsc, attr 3       dd_cpu_usage 3: value 3.0
dd_paused_range: start_tsc, end_tsc
"""

from __future__ import annotations

import polars as pl

from opspan.formats.columns import constant
from opspan.readers.vtune import tables
from opspan.readers.vtune.database import ResultDatabase, timed


def read(database: ResultDatabase) -> pl.DataFrame:
    parts = [_counters(database), _processors(database), _collecting(database)]
    return pl.concat(parts, how="diagonal").with_columns(rank=pl.lit(0, dtype=pl.Int32))


def _counters(database: ResultDatabase) -> pl.DataFrame:
    rows = database.aggregates(tables.COUNTERS)
    rows = database.follow(rows, tables.COUNTERS, "attr", tables.COUNTER_COLUMNS, tables.COUNTER)
    rows = database.follow(rows, tables.COUNTER, "type", tables.NAME_IN_DOMAIN_COLUMNS, tables.COUNTER_TYPE)
    return database.in_domain(rows, tables.COUNTER_TYPE).select(
        "pid",
        "tid",
        pl.col("start_ns").alias("time_ns"),
        pl.col("name").cast(pl.Categorical),
        pl.col("domain_name").alias("domain"),
        pl.col("count").cast(pl.Float64).alias("value"),
    )


def _processors(database: ResultDatabase) -> pl.DataFrame:
    rows = database.instances(tables.CPU_USAGE)
    return database.follow(rows, tables.CPU_USAGE, "attr", tables.USAGE_COLUMNS, tables.USAGE).select(
        pl.col("start_ns").alias("time_ns"),
        constant("busy processors").alias("name"),
        constant(tables.OWN_DOMAIN).alias("domain"),
        "value",
    )


def _collecting(database: ResultDatabase) -> pl.DataFrame:
    """Returns the counter `collecting`, which becomes 0 when a pause begins, and 1 when the pause ends. Joins
    overlapping pauses of several collectors."""
    pauses = timed(database.frame(tables.PAUSED, tables.PAUSED_COLUMNS), tables.PAUSED, database.issues)
    database.issues.add("collection_paused", pauses.height)
    pauses = pauses.drop_nulls().sort("start_ns")
    latest = pl.col("end_ns").cum_max().shift(1)
    pauses = pauses.with_columns(pause=(pl.col("start_ns") > latest).fill_null(value=True).cum_sum())
    pauses = pauses.group_by("pause").agg(pl.col("start_ns").min(), pl.col("end_ns").max()).sort("start_ns")
    both = [
        pauses.select(pl.col(column).alias("time_ns"), pl.lit(value).alias("value"))
        for column, value in (("start_ns", 0.0), ("end_ns", 1.0))
    ]
    return pl.concat(both).sort("time_ns").with_columns(constant("collecting").alias("name"))
