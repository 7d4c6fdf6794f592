"""Collectives in which ranks wait for each other: those of which all parts are in the trace, and ended after all had
begun. As the graph of `path` is walked forward, they go on once their last part has come.

    meetings(collectives, work) -> Meetings
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy.typing as npt
import polars as pl

if TYPE_CHECKING:
    import numpy as np

_col = pl.col


def meetings(collectives: pl.DataFrame, work: pl.DataFrame) -> Meetings:
    """`collectives`: as Analysed has them; `work`: of the graph."""
    parts = collectives.select(row="work", of="match", end_ns="end_ns").drop_nulls()
    # Several kernels of a collective end one after the other: which of them waits is not known.
    rows = work.select("row", "start_ns", "end_ns").with_row_index("node").cast({"node": pl.Int64})
    rows = rows.join(parts, on=["row", "end_ns"], maintain_order="left")
    rows = rows.with_columns(tail_ns=_col("end_ns") - _col("start_ns").max().over("of"))
    rows = rows.filter((_col("tail_ns") >= 0).all().over("of") & (pl.len().over("of") > 1))
    return Meetings(rows.select("node", "row", "of", "tail_ns"))


class Meetings:
    def __init__(self, parts: pl.DataFrame) -> None:
        """`parts`: the node of the graph and the row of the trace's work that each is, `of`: the number of its
        collective; tail_ns: how long it took after the last part had come."""
        self.parts = parts
        self._tails = dict(parts.select("node", "tail_ns").iter_rows())

    def without(self, rows: pl.Series) -> Meetings:
        """The same, where nobody waits for these rows of the trace's work."""
        return Meetings(self.parts.filter(~_col("row").is_in(rows.implode())))

    def arrivals(self, took: npt.NDArray[np.float64]) -> Arrivals:
        """`took`: the factor by which the time of each work changes. Waiting for others is no work."""
        tails = {node: ns if took[node] == 1 else round(ns * float(took[node])) for node, ns in self._tails.items()}
        of, counts = self.parts.select("node", "of"), self.parts.group_by("of").len()
        return Arrivals(dict(of.iter_rows()), tails, dict(counts.iter_rows()))

    def tail_ns(self, node: int) -> int | None:
        """How long a part took after the last one had come; None: it is no part of a meeting."""
        return self._tails.get(node)


class Arrivals:
    """Holds which parts of each collective have come, as the graph is walked forward."""

    def __init__(self, of: dict[int, int], tails: dict[int, int], parts: dict[int, int]) -> None:
        self.of = of
        self._tails, self._parts = tails, parts
        self._there: dict[int, list[int]] = {}

    def come(self, node: int, begun_at: list[int], end: list[int]) -> None:
        """Adds a part; with the last one it sets the ends of all. Work that waits for these comes later."""
        number = self.of[node]
        there = self._there.setdefault(number, [])
        there.append(node)
        if len(there) == self._parts[number]:
            last = max(begun_at[one] for one in there)
            for one in there:
                end[one] = last + self._tails[one]
