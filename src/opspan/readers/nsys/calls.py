"""Fills the table `calls`: calls of CUDA's runtime and driver, of libraries, of MPI, and of the operating system.

    CUPTI_ACTIVITY_KIND_RUNTIME: start, end, eventClass 0, globalTid, correlationId 214, nameId 'cudaLaunchKernel_v7000'

Any table with the columns start, end, globalTid, and nameId or textId is a table of calls, with few exceptions
(tables.NOT_CALLS). So tables of future tools are read too.
"""

from __future__ import annotations

import json
import re

import polars as pl

from opspan.formats.columns import Columns, constant, ints, names_in
from opspan.readers.nsys import tables
from opspan.readers.nsys.export import Export, where
from opspan.readers.nsys.payloads import as_json
from opspan.tables.schema import empty

# CUDA's own tables come first, because they have the most rows.
FIRST = (tables.RUNTIME, *tables.GRAPH_TABLES)
# Column with ids of graphs or graph nodes -> column of the table `calls`. An original is the graph or node that was
# cloned.
GRAPH_NAMES = {
    "graphNodeId": "graph_node_id",
    "originalGraphNodeId": "original_graph_node_id",
    "graphId": "graph_id",
    "originalGraphId": "original_graph_id",
    "graphExecId": "graph_exec_id",
}
RETURN_CODE = {"returnValue": "return_code"}


def read(export: Export) -> pl.DataFrame:
    names = [name for name in export.tables if _holds_calls(export, name)]
    names.sort(key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name))
    parts = [_runtime(export, name) if name == tables.RUNTIME else _calls(export, name) for name in names]
    if not parts:
        return empty("calls")
    return pl.concat([part for part in parts if part.height] or parts[:1], how="diagonal_relaxed")


def _holds_calls(export: Export, table: str) -> bool:
    columns = set(export.columns(table))
    return (
        table not in tables.NOT_CALLS
        and re.fullmatch("[A-Z0-9_]+", table) is not None
        and set(tables.CALL_COLUMNS) <= columns
        and bool(columns & set(tables.CALL_NAMES))
    ) or (table in FIRST and {"start", "globalTid"} <= columns)


def _runtime(export: Export, table: str) -> pl.DataFrame:
    frame = export.timed(table, tables.RUNTIME_COLUMNS)
    # Removes the API version from names such as `cudaLaunchKernel_v7000`.
    names = export.strings.values.str.replace("_v[0-9]+$", "")
    is_backtrace = pl.col("eventClass").eq_missing(tables.BACKTRACES)
    correlation_id = pl.col("correlationId")
    if frame.select(is_backtrace.any()).item():
        correlation_id = pl.when(~is_backtrace).then(correlation_id)
    return frame.select(
        *where(frame),
        "start_ns",
        "end_ns",
        export.strings.column(frame, "nameId", table, names).alias("name"),
        names_in(frame, "eventClass", tables.RUNTIME_CLASSES, other="cuda").alias("api"),
        correlation_id.alias("correlation_id"),
        pl.col("returnValue").alias("return_code"),
    )


def _calls(export: Export, table: str) -> pl.DataFrame:
    have = export.columns(table)
    name = "nameId" if "nameId" in have else "textId"
    graph = table in tables.GRAPH_TABLES
    columns: Columns = tables.GRAPH_COLUMNS if graph else {**tables.CALL_COLUMNS, **ints(f"{name} returnValue")}
    others = [] if graph else [column for column in have if column not in tables.CALL_KNOWN]
    # Columns that only some tables have are read as text, for example MPI's tags or the ids of OpenMP's tasks.
    frame = export.timed(table, {**columns, **dict.fromkeys(others, "text")})
    return frame.select(
        *where(frame),
        "start_ns",
        "end_ns",
        export.strings.column(frame, name, table).alias("name"),
        constant(_api(table)).alias("api"),
        *(pl.col(column).alias(name) for column, name in (GRAPH_NAMES if graph else RETURN_CODE).items()),
        _json(export, frame, others).alias("payload_json"),
    )


def _json(export: Export, frame: pl.DataFrame, columns: list[str]) -> pl.Expr:
    known = [name for name in columns if frame[name].count()]
    if not known or not export.written.take(frame.height * sum(map(len, known))):
        return pl.lit(None, dtype=pl.String)
    members = [pl.lit(f"{json.dumps(name)}: ") + pl.lit(as_json(frame[name])) for name in known]
    return "{" + pl.concat_str(members, separator=", ") + "}"


def _api(table: str) -> str:
    for pattern, api in tables.APIS:
        if match := re.match(pattern, table):
            return api or match[1].lower()
    return table.lower()
