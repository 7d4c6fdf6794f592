"""The places of a run: devices, and processes without a device. `hosts` says on which host each place is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl

from opspan.analysis import Analysis
from opspan.analysis.spans import DEVICE, PROCESS
from opspan.views.fields import DEVICE_ID, HOST, MEMORY, PID, WHERE, Field, with_values
from opspan.views.page.columns import table

_col = pl.col
_COLUMNS = (
    WHERE,
    Field("own_rank", "Rank in the program", "number", "As collectives say it"),
    HOST,
    PID,
    Field("process", "Name", "name"),
    replace(DEVICE_ID, unit="text"),
    Field("device", "Name of the device", "name"),
    MEMORY,
    Field("file", "File", "name"),
)


def places(analysis: Analysis) -> pl.DataFrame:
    """Returns a row for each device of a process, and for each process without a device. The columns are rank, pid,
    device_id, place and at. `place` is a readable name, with only the words that are needed to tell the rows
    apart. `at` is the number of the row, from 0."""
    process = analysis.whole_breakdown.select(PROCESS).join(
        analysis.whole_devices, on=PROCESS, how="anti", nulls_equal=True
    )
    process = process.with_columns(device_id=pl.lit(None, dtype=pl.Int32))
    frames = [analysis.whole_devices.select(DEVICE), process.select(DEVICE), analysis.collectives.select(DEVICE)]
    rows = pl.concat(frames).unique().sort(DEVICE, nulls_last=True)
    words = {"rank": "rank {}", "pid": "process {}", "device_id": "device {}"}
    named = [name for name in DEVICE if rows[name].n_unique() > 1] or ["rank"]
    # Names do not need the device if each process has only one row, nor the process if each rank has only one row.
    for more, key in (("device_id", PROCESS), ("pid", ("rank",))):
        if len(named) > 1 and more in named and rows.select(key).n_unique() == rows.height:
            named.remove(more)
    texts = (pl.format(words[name], name).fill_null(f"no {name.removesuffix('_id')}") for name in named)
    place = pl.concat_str(list(texts), separator=", ").alias("place")
    return rows.with_columns(place).with_row_index("at").with_columns(_col("at").cast(pl.Int64))


def hosts(analysis: Analysis, where: pl.DataFrame) -> dict[str, Any]:
    tables = analysis.tables
    process = tables.processes.select(*PROCESS, _col("host").cast(pl.String), process=_col("name").cast(pl.String))
    device = tables.devices.select("rank", "device_id", "memory_bytes", device=_col("name").cast(pl.String))
    own = analysis.collectives.group_by(PROCESS).agg(_col("own_rank").drop_nulls().first())
    files = [(rank.rank, ", ".join(path.rsplit("/", 1)[-1] for path in rank.paths)) for rank in tables.ranks]
    rows = where
    for more, key in (
        (process.unique(PROCESS, keep="first"), PROCESS),
        (device.unique(["rank", "device_id"], keep="first"), ("rank", "device_id")),
        (own, PROCESS),
    ):
        rows = rows.join(more, on=list(key), how="left", nulls_equal=True, maintain_order="left")
    file = pl.DataFrame(files, schema={"rank": pl.Int32, "file": pl.String}, orient="row")
    rows = rows.join(file, on="rank", how="left", maintain_order="left")
    rows = rows.with_columns(_col("pid", "device_id").cast(pl.String))
    return table(rows, with_values(_COLUMNS, rows))


def world_size(analysis: Analysis) -> int | None:
    """Returns the number of ranks of the program, or None if no file names it."""
    return max((rank.told.world_size for rank in analysis.tables.ranks if rank.told.world_size), default=None)
