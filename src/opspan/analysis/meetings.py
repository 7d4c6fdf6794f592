"""Finds the collectives in which ranks wait for each other: the trace has a kernel on each of several ranks, and all of
these kernels began before any of them ended.

    meetings(collectives, work) -> Meetings.

In the simulation of replay.py, each kernel of such a collective waits until all of these kernels have begun.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

_col = pl.col


def meetings(collectives: pl.DataFrame, work: pl.DataFrame) -> Meetings:
    """Returns the meetings. `collectives` comes from Analysis, `work` from Analysis.path_graph."""
    parts = collectives.select(row="work", of="match", end_ns="end_ns").drop_nulls()
    # A collective may have several kernels on a rank, and it is unknown which of them waits. So its first kernel is
    # used, but only if none of the others ends later.
    rows = work.select("row", "start_ns", "end_ns").with_row_index("node").cast({"node": pl.Int64})
    rows = rows.join(parts, on=["row", "end_ns"], maintain_order="left")
    rows = rows.with_columns(tail_ns=_col("end_ns") - _col("start_ns").max().over("of"))
    rows = rows.filter((_col("tail_ns") >= 0).all().over("of") & (pl.len().over("of") > 1))
    return Meetings(rows.select("node", "row", "of", "tail_ns"))


@dataclass(frozen=True)
class Meetings:
    """The kernels of collectives in which ranks wait for each other. `node` is the row of the kernel in Graph.work, and
    `row` is its row in the trace's work. `of` identifies the collective. `tail_ns` is how long the kernel went on
    after all kernels of the collective had begun."""

    parts: pl.DataFrame

    def without(self, rows: pl.Series) -> Meetings:
        """Returns the meetings without the kernels in these rows of the trace's work."""
        return Meetings(self.parts.filter(~_col("row").is_in(rows.implode())))
