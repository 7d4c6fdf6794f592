"""Compares the steps of two runs one by one, to show where the second run falls behind or gets ahead.

    compare_steps(one, other) -> a row for each number n, if both runs have an n-th step:
        number (Int64): n, from 1.
        step_before, step_after (String): the name of the step in each run.
        before_ns, after_ns (Int64): how long the step took until its work was done; the mean of several processes.
        change_ns (Int64): after_ns minus before_ns.
        change (Float64): change_ns as a share of before_ns; null if before_ns is 0.
        accumulated_ns (Int64): the sum of the changes up to this step.

`one` and `other` come from `until_done`. n counts the recorded steps of a process. The numbers in the steps' names are
not used, because runs are often recorded at different steps.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.spans import PROCESS, difference

_col = pl.col


def compare_steps(one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    rows = _number_steps(one, "before").join(_number_steps(other, "after"), on="number").sort("number")
    rows = rows.with_columns(change_ns=difference(_col("before_ns"), _col("after_ns")))
    return rows.select(
        "number",
        "step_before",
        "step_after",
        "before_ns",
        "after_ns",
        "change_ns",
        change=pl.when(_col("before_ns") != 0).then(_col("change_ns") / _col("before_ns")),
        accumulated_ns=_col("change_ns").cum_sum(),
    )


def _number_steps(steps: pl.DataFrame, when: str) -> pl.DataFrame:
    number = 1 + pl.int_range(pl.len(), dtype=pl.Int64).over(PROCESS, order_by="start_ns")
    rows = steps.with_columns(number=number).sort(*PROCESS)
    took = _col("took_ns").mean().round().cast(pl.Int64).alias(f"{when}_ns")
    return rows.group_by("number").agg(_col("step").first().alias(f"step_{when}"), took)
