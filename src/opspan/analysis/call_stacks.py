"""Where ops were called: each op once for each distinct stack of functions.

    call_stacks(ranges, calls_of_functions) -> CallStacks
        frames   name (train.py(12): forward), parent (a row): a stack is a frame and all those above it
        rows     name, frame (the innermost), count, cpu_ns, self_cpu_ns, device_ns, self_device_ns

Ranges must have gone through `attribute`. What runs in a backward has the stack of its forward op. Of stacks that are
deeper than DEEPEST, the outermost part is known.
"""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from opspan.analysis.frames import frames
from opspan.analysis.functions import parents
from opspan.analysis.nest import nearest
from opspan.analysis.stacks import DEEPEST, depths, merged
from opspan.analysis.sums import RANGE_SUMS, summed

_col = pl.col


class CallStacks(NamedTuple):
    frames: pl.DataFrame
    rows: pl.DataFrame


def call_stacks(ranges: pl.DataFrame, calls: pl.DataFrame) -> CallStacks:
    if ranges["stack"].count():
        function, tree = frames(ranges)
    else:
        function, tree = ranges["function"], calls.select("name", parent=parents(calls))
    tree = tree.with_columns(depth=depths(tree["parent"])).with_row_index("row")
    is_kept = tree["depth"] < DEEPEST
    if not is_kept.all():
        function = nearest(tree.select("parent"), is_kept).gather(function)
    nodes, places = merged(tree.filter(is_kept), ["name"], [])
    called = ranges.filter(~_col("is_mark").fill_null(value=False) & function.is_not_null())
    rows = function.filter(~ranges["is_mark"].fill_null(value=False) & function.is_not_null())
    called = called.with_columns(row=rows).join(places, on="row", how="left", maintain_order="left")
    sums = called.group_by("name", frame="node").agg(summed(RANGE_SUMS, called.columns))
    order = ("self_device_ns", "self_cpu_ns", "name", "frame")
    return CallStacks(nodes.select("name", "parent"), sums.sort(order, descending=[True, True, False, False]))
