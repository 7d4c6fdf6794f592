"""Holds helpers that the readers of nsys, nvprof and VTune share: types of columns, CUPTI's names of columns, and the
shift of all times to zero."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl

from opspan.formats.sqlite import Type
from opspan.tables.schema import TABLES

Columns = Mapping[str, Type]

# Maps the columns of CUPTI's tables to their names in opspan's table `work`.
WORK_NAMES = {
    "deviceId": "device_id",
    "contextId": "context_id",
    "streamId": "stream_id",
    "correlationId": "correlation_id",
    "graphNodeId": "graph_node_id",
    "graphId": "graph_id",
    "graphExecId": "graph_exec_id",
    "gridX": "grid_x",
    "gridY": "grid_y",
    "gridZ": "grid_z",
    "blockX": "block_x",
    "blockY": "block_y",
    "blockZ": "block_z",
    "registersPerThread": "registers",
    "staticSharedMemory": "static_shared_bytes",
    "dynamicSharedMemory": "dynamic_shared_bytes",
}


def ints(names: str) -> dict[str, Type]:
    return dict.fromkeys(names.split(), "int")


def enumeration(names: str) -> dict[int, str]:
    """Returns the names in a text such as "a, b, c" by number, from 0 on."""
    return dict(enumerate(names.split(", ")))


SYNC_KINDS = enumeration("Unknown, Event sync, Stream wait, Stream sync, Context sync")


def first_ns(frames: Iterable[pl.DataFrame], default: int) -> int:
    starts = [frame[name].min() for frame in frames for name in ("start_ns", "time_ns") if name in frame.columns]
    return min((start for start in starts if isinstance(start, int)), default=default)


def from_zero(zero_ns: int, frames: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """Returns the tables with `zero_ns` subtracted from all times."""
    return {table: frame.with_columns(_times(table, frame) - zero_ns) for table, frame in frames.items()}


def _times(table: str, frame: pl.DataFrame) -> pl.Expr:
    return pl.col([column.name for column in TABLES[table].columns if column.unit == "ns" and column.name in frame])
