"""Collectives in which ranks wait for each other: those of which all parts are in the trace, and ended after all had
begun. As the graph of `path` is walked forward, they go on once their last part has come.

    meetings(collectives, work) -> Meetings
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

_col = pl.col


def meetings(collectives: pl.DataFrame, work: pl.DataFrame) -> Meetings:
    """`collectives`: as Analysis has them; `work`: of the graph."""
    parts = collectives.select(row="work", of="match", end_ns="end_ns").drop_nulls()
    # Several kernels of a collective end one after the other: which of them waits is not known.
    rows = work.select("row", "start_ns", "end_ns").with_row_index("node").cast({"node": pl.Int64})
    rows = rows.join(parts, on=["row", "end_ns"], maintain_order="left")
    rows = rows.with_columns(tail_ns=_col("end_ns") - _col("start_ns").max().over("of"))
    rows = rows.filter((_col("tail_ns") >= 0).all().over("of") & (pl.len().over("of") > 1))
    return Meetings(rows.select("node", "row", "of", "tail_ns"))


@dataclass(frozen=True)
class Meetings:
    """`parts`: the node of the graph and the row of the trace's work that each is, `of`: the number of its collective;
    tail_ns: how long it took after the last part had come."""

    parts: pl.DataFrame

    def without(self, rows: pl.Series) -> Meetings:
        """The same, where nobody waits for these rows of the trace's work."""
        return Meetings(self.parts.filter(~_col("row").is_in(rows.implode())))
