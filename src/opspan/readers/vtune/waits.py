"""Reads waits of threads for locks, other threads, files, ... into the table `calls`, as the API `wait`.

    wait_data: start_tsc, end_tsc, attr 5, __bucket_idx 0         the thread of the band 0 waited
    dd_wait 5: sync_object 45, wait_cs 49, signal_cs NULL, thread_state 2
    dd_sync_object 45: type 19, 'Stream /proc/meminfo 0x16265dac'       dd_sync_object_type 19: '%Stream'
    dd_thread_state 2: '%Wait'

The file does not name the function that the thread called to wait, only the function that this call was in (wait_cs).
So the name of a row is the thread's state and the type of the object: 'Wait: Stream'.
"""

from __future__ import annotations

import polars as pl

from opspan import json_columns
from opspan.formats.columns import constant, numbered
from opspan.formats.sqlite import ROWID
from opspan.readers.vtune import samples, tables
from opspan.readers.vtune.database import ResultDatabase, builtin
from opspan.tables.schema import STACK_SEPARATOR

API = "wait"
WAITING = "Wait"  # VTune's name of the state of a thread that waits


def read(database: ResultDatabase, sites: pl.DataFrame) -> pl.DataFrame:
    """Returns the waits as rows of `calls`. `sites` comes from samples.sites."""
    rows = database.instances(tables.WAITS)
    waits = _described(database, sites) if rows.height else pl.DataFrame(schema=dict.fromkeys(_COLUMNS, pl.String))
    waits = waits.with_columns(pl.col(ROWID).cast(pl.Int64), pl.col("name").cast(pl.Categorical))
    rows = database.look_up(rows, "attr", waits, f"{tables.WAITS}.attr", tables.WAIT)
    rows = rows.select("pid", "tid", "start_ns", "end_ns", "name", constant(API).alias("api"), "payload_json")
    return numbered(rows.with_columns(pl.col("name").fill_null(pl.lit(WAITING, dtype=pl.Categorical))))


_COLUMNS = (ROWID, "name", "payload_json")
_PLACES = {"wait_cs": "function", "signal_cs": "signalled_by"}  # references to callsites, and keys in payload_json


def _described(database: ResultDatabase, sites: pl.DataFrame) -> pl.DataFrame:
    """Returns _COLUMNS for each row of dd_wait."""
    rows = database.rows(tables.WAIT, tables.WAIT_COLUMNS)
    rows = database.follow(rows, tables.WAIT, "thread_state", tables.NAME_COLUMNS, tables.THREAD_STATE)
    rows = rows.rename({"name": "state"})
    rows = database.follow(rows, tables.WAIT, "sync_object", tables.SYNC_OBJECT_COLUMNS, tables.SYNC_OBJECT)
    rows = rows.rename({"name": "object"})
    rows = database.follow(rows, tables.SYNC_OBJECT, "type", tables.NAME_COLUMNS, tables.SYNC_OBJECT_TYPE)
    stacks = samples.stacks(database, sites, pl.concat(rows[place] for place in _PLACES))
    innermost = pl.col("stack").cast(pl.String).str.split(STACK_SEPARATOR).list.last()
    for place, key in _PLACES.items():
        functions = stacks.select(ROWID, innermost.alias(key))
        rows = database.look_up(rows, place, functions, f"{tables.WAIT}.{place}", tables.CALLSITE)
    rows = rows.with_columns(builtin("object"))
    fields = [
        pl.concat_str(pl.lit(f'"{key}": '), json_columns.text(pl.col(key))) for key in ("object", *_PLACES.values())
    ]
    json = pl.concat_str(fields, separator=", ", ignore_nulls=True)
    return rows.select(
        ROWID,
        pl.concat_str(builtin("state").fill_null(WAITING), builtin("name"), separator=": ", ignore_nulls=True).alias(
            "name"
        ),
        pl.when(json != "").then(pl.concat_str(pl.lit("{"), json, pl.lit("}"))).alias("payload_json"),
    )
