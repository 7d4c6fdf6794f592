"""Lists the call stacks of ops: each op has a row for each distinct stack of functions.

    call_stacks(ranges, calls_of_functions) -> CallStacks:
        frames: the columns name (such as train.py(12): forward) and parent (a row of frames). A stack is a frame and
            all frames above it.
        rows: the columns name (of the op), frame (the innermost function, as a row of frames), count, and the sums
            cpu_ns, self_cpu_ns, device_ns, self_device_ns.
    stack_texts(ranges, calls_of_functions, rows) -> the stack of each range whose row number is in `rows`, as text.

Call `attribute` first. functions.py says which stack a range in a backward has. Stacks deeper than DEEPEST keep only
their outermost functions.
"""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from opspan.analysis.averages import RANGE_SUMS, sum_expressions
from opspan.analysis.functions import frames
from opspan.analysis.nest import nearest
from opspan.analysis.stacks import DEEPEST, depths, merge_stacks
from opspan.tables.schema import NAME

_col = pl.col


class CallStacks(NamedTuple):
    frames: pl.DataFrame
    rows: pl.DataFrame


def call_stacks(ranges: pl.DataFrame, calls: pl.DataFrame) -> CallStacks:
    nodes, node = _merge(ranges, calls)
    is_called = ~ranges["is_mark"].fill_null(value=False) & node.is_not_null()
    called = ranges.with_columns(node).filter(is_called)
    sums = called.group_by("name", frame="node").agg(sum_expressions(RANGE_SUMS, called.columns))
    order = ("self_device_ns", "self_cpu_ns", "name", "frame")
    return CallStacks(nodes.select("name", "parent"), sums.sort(order, descending=[True, True, False, False]))


def stack_texts(ranges: pl.DataFrame, calls: pl.DataFrame, rows: pl.Series) -> pl.Series:
    """Returns the stack of each of these ranges (`rows` are row numbers) as one text, with a line for each function,
    the outermost first."""
    nodes, node = _merge(ranges, calls)
    node = node.gather(rows)
    names, parents_of = nodes["name"].cast(pl.String).to_list(), nodes["parent"].to_list()
    known = node.drop_nulls().unique()
    texts = []
    for at in known.to_list():
        lines = []
        while at is not None:
            lines.append(names[at] or "")
            at = parents_of[at]
        texts.append("\n".join(reversed(lines)))
    return node.replace_strict(known, pl.Series(texts, dtype=NAME), default=None, return_dtype=NAME).alias("stack")


def _merge(ranges: pl.DataFrame, calls: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
    """Returns the tree of functions, in which equal stacks share a node. Also returns the node of each range."""
    function, tree = frames(ranges, calls)
    tree = tree.with_columns(depth=depths(tree["parent"])).with_row_index("row")
    is_kept = tree["depth"] < DEEPEST
    if not is_kept.all():
        function = nearest(tree.select("parent"), is_kept).gather(function)
    nodes, places = merge_stacks(tree.filter(is_kept), ["name"], [])
    of_range = function.alias("row").to_frame().join(places, on="row", how="left", maintain_order="left")
    return nodes, of_range["node"]
