"""The steps of two runs one by one: how the second falls behind the first, or gets ahead of it, along the run.

    compared_steps(one, other) -> a row for each step that both runs have: the n-th of the one is the n-th of the other
        number                    Int64   n, from 1
        step_before, step_after   String  what it is called in each run
        before_ns, after_ns       Int64   how long it took until it was done; of several processes their mean
        change_ns                 Int64   after less before
        change                    Float64 that as a share of before; null where there was nothing before
        accumulated_ns            Int64   the changes up to this one, together

`one` and `other`: what `until_done` gives. Steps are numbered in each process: runs are often recorded at different
steps, and their numbers then say nothing.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.spans import PROCESS, difference

_col = pl.col


def compared_steps(one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    rows = _numbered(one, "before").join(_numbered(other, "after"), on="number").sort("number")
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


def _numbered(steps: pl.DataFrame, when: str) -> pl.DataFrame:
    number = 1 + pl.int_range(pl.len(), dtype=pl.Int64).over(PROCESS, order_by="start_ns")
    rows = steps.with_columns(number=number).sort(*PROCESS)
    took = _col("took_ns").mean().round().cast(pl.Int64).alias(f"{when}_ns")
    return rows.group_by("number").agg(_col("step").first().alias(f"step_{when}"), took)
