"""Finds the purpose of each allocation from the ranges that allocated and freed it. The categories are those of
torch.profiler, which finds them in another way: it follows each tensor.

    categories(ranges, events) -> a category for each row of the table memory, or null:
        temporary: allocated in an op, and freed before the outermost op around the allocation ended.
        autograd_detail: allocated in a backward, and freed in a backward.
        gradient: allocated in a backward, and freed outside of any backward, or not at all.
        activation: allocated in a forward op whose backward was recorded.
        optimizer_state: allocated in an optimizer's step, and not freed in this step.

A free has the category of its allocation. docs/profiler.md says which categories are left out, and
tests/profiler/test_categories.py compares with torch. Call `nest` and `autograd` first.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.allocations import allocations
from opspan.analysis.nest import innermost, nearest

CATEGORY = pl.Enum(["parameter", "optimizer_state", "input", "temporary", "activation", "gradient", "autograd_detail"])
_col = pl.col


def categories(ranges: pl.DataFrame, events: pl.DataFrame) -> pl.Series:
    taken = _taken(ranges, events)
    known = taken.with_columns(_around(ranges, taken)).select("row", "next_row", category=_rule())
    column = pl.Series("category", [None], dtype=CATEGORY).new_from_index(0, events.height)
    for row in ("row", "next_row"):
        some = known.select(row, "category").drop_nulls()
        column = column.scatter(some[row], some["category"])
    return column


def _taken(ranges: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Returns a row for each allocation with an address. The columns are row, range (the innermost range around the
    allocation), and next_row, next_time_ns and next_range (row, time and range of the free; null without a free)."""
    inside = innermost(ranges, events)
    blocks = allocations(events).drop_nulls(["alloc_row", "alloc_ns", "address"])
    return blocks.select(
        _col("alloc_row").alias("row"),
        _col("free_row").alias("next_row"),
        _col("free_ns").alias("next_time_ns"),
        inside.gather(blocks["alloc_row"]).alias("range"),
        inside.gather(blocks["free_row"]).alias("next_range"),
    )


def _around(ranges: pl.DataFrame, taken: pl.DataFrame) -> list[pl.Series]:
    """Returns facts about the ranges in which memory was allocated and freed. `_rule` uses these facts."""
    at, next_at = taken["range"], taken["next_range"]
    name, end_ns = ranges["name"].cast(pl.String), ranges["end_ns"]
    is_backward = ranges["kind"].is_in(["backward", "engine"])
    # Names of ops have a namespace (aten::). A torch.autograd.Function has no namespace, so it does not count as an op,
    # and the ops in it can be outermost.
    is_op = (ranges["kind"] == "backward") | ((ranges["kind"] == "op") & name.str.contains("::", literal=True))
    outermost = nearest(ranges, is_op & nearest(ranges, is_op).gather(ranges["parent"]).is_null())
    is_forward = pl.Series([False]).new_from_index(0, ranges.height).scatter(ranges["forward"].drop_nulls(), True)
    step = nearest(ranges, name.str.starts_with("Optimizer.step#"))
    backward, forward = nearest(ranges, is_backward), nearest(ranges, is_forward)
    accumulating = nearest(ranges, name.str.ends_with("AccumulateGrad"))
    return [
        end_ns.gather(outermost.gather(at)).alias("op_end_ns"),
        end_ns.gather(step.gather(at)).alias("step_end_ns"),
        backward.gather(at).is_not_null().alias("in_backward"),
        backward.gather(next_at).is_not_null().alias("next_in_backward"),
        forward.gather(at).is_not_null().alias("is_forward"),
        (accumulating.gather(at).is_not_null() | accumulating.gather(next_at).is_not_null()).alias("accumulates"),
        (name.gather(at) == "aten::resize_").fill_null(value=False).alias("is_resized"),
    ]


def _rule() -> pl.Expr:
    in_backward, is_forward = _col("in_backward"), _col("is_forward")
    gone_in_op, gone_in_step = (
        (_col("next_time_ns") <= _col(name)).fill_null(value=False) for name in ("op_end_ns", "step_end_ns")
    )
    return (
        # A tensor that aten::resize_ enlarges was created elsewhere, so its category is unknown.
        pl.when(_col("is_resized"))
        .then(None)
        .when(gone_in_op)
        .then(pl.lit("temporary", dtype=CATEGORY))
        # In a backward, the category is unknown in two cases. First, the memory is allocated in a forward op, too:
        # this backward is differentiated itself, or runs a forward again. Second, memory that AccumulateGrad allocates
        # or frees may be a gradient, or something that was added to a gradient.
        .when(in_backward & (is_forward | _col("accumulates")))
        .then(None)
        .when(in_backward & _col("next_in_backward"))
        .then(pl.lit("autograd_detail", dtype=CATEGORY))
        .when(in_backward)
        .then(pl.lit("gradient", dtype=CATEGORY))
        .when(is_forward)
        .then(pl.lit("activation", dtype=CATEGORY))
        .when(_col("step_end_ns").is_not_null() & ~gone_in_step)
        .then(pl.lit("optimizer_state", dtype=CATEGORY))
    )
