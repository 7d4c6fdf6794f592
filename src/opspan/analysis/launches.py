"""Attributes calls and work to ranges: finds the range that a call was made in, and the call and range of work.

    launches(ranges, calls, work) -> Launches: calls and work in the same order, with:
        calls.range (UInt32): row of the innermost range on the call's thread when the call began.
        work.call (UInt32): row of the call with the same process and correlation id. One call may launch many rows of
            work.
        work.ambiguous (Boolean): whether several calls of the process have this id. If so, work.call is the last of
            these calls before the work, or the first of them if none is before the work.
        work.launch_range (UInt32): the range of the call; if there is none, the range that the tool itself names.
        work.range (UInt32): the range that the work belongs to. This is launch_range, with two exceptions. The work of
            a graph node belongs to the range in which the node was created, if the creation is in the trace. The work
            of a replay belongs to the captured op that it repeats (captured.py), if this op is known.

Ranges must be nested (`nest`) first. Rows of different processes are never joined.
"""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from opspan import native
from opspan.analysis.nest import innermost, thread_key
from opspan.row_numbers import ROW_NUMBER

# The longest chain of copies, from a graph node back to the first original. Nodes are copied when a graph is
# instantiated, cloned or inserted as a child. Only damaged files have longer chains.
_MOST_HOPS = 16
# Names of the calls that launch a graph. Comparing complete names takes a tenth of the time of a text search.
_GRAPH_LAUNCHES = (
    "cudaGraphLaunch",
    "cudaGraphLaunch_ptsz",
    "cuGraphLaunch",
    "cuGraphLaunch_ptsz",
    "hipGraphLaunch",
    "hipGraphLaunch_spt",
)
_NODE = ["rank", "pid", "graph_node_id"]
_ORIGINAL = r'"original_?[gG]raph_?[nN]ode_?[iI]d"\s*:\s*"?(-?[0-9]{1,19})'


class Launches(NamedTuple):
    calls: pl.DataFrame
    work: pl.DataFrame


def launches(
    ranges: pl.DataFrame,
    calls: pl.DataFrame,
    work: pl.DataFrame,
    nodes: pl.DataFrame | None = None,
    call_of_work: pl.DataFrame | None = None,
) -> Launches:
    """Attributes calls and work. `nodes` has a row for each graph node that was created (rank, pid, tid, start_ns,
    graph_node_id, original_graph_node_id); by default, it comes from `calls`. `call_of_work` is the result of
    `matches`, if the caller has it already."""
    call_of_work = matches(calls, work) if call_of_work is None else call_of_work
    called_in = innermost(ranges, calls.rename({"start_ns": "time_ns"}))
    launch_range = _or_named(called_in.gather(call_of_work["call"]), ranges, work)
    range_ = _captured_in(ranges, work, graph_nodes(calls) if nodes is None else nodes)
    range_ = launch_range if range_ is None else range_.zip_with(range_.is_not_null(), launch_range)
    replayed = _rows_of_ids(ranges, work, "replayed_range_id")
    range_ = range_ if replayed is None else replayed.zip_with(replayed.is_not_null(), range_)
    columns = (launch_range.alias("launch_range"), range_.alias("range"))
    return Launches(
        calls.with_columns(called_in.alias("range")),
        work.with_columns(call_of_work["call"], call_of_work["ambiguous"], *columns),
    )


def matches(calls: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """Returns the columns `call` and `ambiguous` of work. They do not depend on ranges."""
    *process, _ = thread_key(calls, work)
    id_columns = (*process, pl.col("correlation_id"), pl.col("start_ns"))
    return native.match(calls.select(id_columns), work.select(id_columns))


def _or_named(launch_range: pl.Series, ranges: pl.DataFrame, work: pl.DataFrame) -> pl.Series:
    named = _rows_of_ids(ranges, work, "named_range_id")
    return launch_range if named is None else launch_range.zip_with(launch_range.is_not_null(), named)


def _rows_of_ids(ranges: pl.DataFrame, work: pl.DataFrame, column: str) -> pl.Series | None:
    """Returns, for each row of work, the row of the range whose id is in `column`; None if `column` has no ids."""
    if column not in work.columns or not work[column].count():
        return None
    rows = ranges.select(pl.col("id").alias(column), row=pl.int_range(pl.len(), dtype=ROW_NUMBER))
    return work.select(column).join(rows, on=column, how="left", maintain_order="left")["row"]


def graph_nodes(calls: pl.DataFrame) -> pl.DataFrame:
    """Returns the calls that created a graph node. original_graph_node_id is the node that was copied, or null."""
    nodes = calls.filter(pl.col("graph_node_id").is_not_null())
    if "original_graph_node_id" not in nodes.columns:
        original = pl.col("payload_json").str.extract(_ORIGINAL).cast(pl.Int64, strict=False)
        nodes = nodes.with_columns(original.alias("original_graph_node_id"))
    return nodes.select("rank", "pid", "tid", "start_ns", "graph_node_id", "original_graph_node_id")


def launches_graph(calls: pl.DataFrame) -> pl.Series:
    """Returns, for each call, whether it launched a graph."""
    names = pl.Series(_GRAPH_LAUNCHES, dtype=pl.Categorical)
    return calls["name"].is_in(names.implode()).fill_null(value=False)


def _captured_in(ranges: pl.DataFrame, work: pl.DataFrame, nodes: pl.DataFrame) -> pl.Series | None:
    """Returns, for each row of work, the range in which its graph node was first created; None if no work has a known
    node."""
    if not nodes.height or not work["graph_node_id"].count():
        return None
    nodes = nodes.sort("start_ns", "tid", "original_graph_node_id")
    # A node that was created as a copy has two events: one for its creation, one that names its original. There are
    # also two events if two nodes had the same id. In this case either event may be used.
    created = nodes.unique(_NODE, keep="first", maintain_order=True)
    copied = nodes.drop_nulls("original_graph_node_id").unique(_NODE, keep="first", maintain_order=True)
    roots = _roots(created, copied)
    times = created.rename({"graph_node_id": "root", "start_ns": "time_ns"}).drop("original_graph_node_id")
    points = roots.join(times, on=["rank", "pid", "root"], how="left", nulls_equal=True, maintain_order="left")
    ranges_of_nodes = roots.select(_NODE).with_columns(innermost(ranges, points).alias("captured_in"))
    rows = work.select(_NODE)
    return rows.join(ranges_of_nodes, on=_NODE, how="left", nulls_equal=True, maintain_order="left")["captured_in"]


def _roots(created: pl.DataFrame, copied: pl.DataFrame) -> pl.DataFrame:
    """Returns a row for each created node: the columns _NODE, and `root`. `root` is the end of the chain from copy
    to original, or the last node before one that is missing in the trace. It is null if the chain is a ring or too long
    (_MOST_HOPS)."""
    up = copied.select("rank", "pid", root="graph_node_id", above="original_graph_node_id")
    # The chain ends before an original that is missing in the trace, and at a node that is its own original.
    known = created.select("rank", "pid", above="graph_node_id")
    up = up.filter(pl.col("above") != pl.col("root")).join(
        known, on=["rank", "pid", "above"], how="semi", nulls_equal=True
    )
    way = created.select(*_NODE, root="graph_node_id")
    for _ in range(_MOST_HOPS):
        way = way.join(up, on=["rank", "pid", "root"], how="left", nulls_equal=True, maintain_order="left")
        moved = way["above"].count()
        way = way.select(*_NODE, root=pl.coalesce("above", "root"))
        if not moved:
            return way
    unfinished = way.join(up, on=["rank", "pid", "root"], how="left", nulls_equal=True, maintain_order="left")
    return unfinished.select(*_NODE, root=pl.when(pl.col("above").is_null()).then("root"))
