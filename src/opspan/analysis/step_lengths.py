"""Computes the number of steps of a run and how long they took. Every output takes these figures from here.

    parts(analysis) -> the parts of one trace for `lengths_of`, which can be put together with the parts of other
        traces.
    lengths_of(parts) -> Lengths.
    lengths(analysis) -> the Lengths of one trace.

A step is as long as its stretch of time in `opspan steps`, clipped to the part of the trace that was read. `diff`
compares another figure: the time until everything that a step launched was done (`until_done`). The number of steps is
that of the process with most steps, because the ranks of a job do each step together. Median and mean are over all
steps of all processes. Both are given because a few long steps pull the mean away from the median.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from opspan.analysis.busy import within_part
from opspan.analysis.parts import Part, Parts, count_values, medians
from opspan.analysis.spans import PROCESS, length

if TYPE_CHECKING:
    from opspan.analysis.analysed import Analysis

_col = pl.col
_NS, _COUNTS = "step lengths", "step counts"


class Lengths(NamedTuple):
    steps: int
    processes: int  # the number of processes that have steps
    are_alike: bool  # whether all processes that have steps have the same number of steps
    median_ns: int | None  # None if there are no steps
    mean_ns: int | None


def parts(analysis: Analysis, steps: pl.DataFrame | None = None) -> Parts:
    """Returns the parts for `lengths_of`. If `steps` are given, they count instead of the steps of the trace."""
    rows = within_part(analysis.iterations if steps is None else steps, analysis.complete)
    counts = rows.group_by(PROCESS, maintain_order=True).agg(steps=pl.len().cast(pl.Int64))
    return {_NS: count_values(rows.select(ns=length()), (), "ns"), _COUNTS: Part(counts, PROCESS)}


def lengths_of(parts: Parts) -> Lengths:
    counts = parts[_COUNTS].rows["steps"].to_list()
    if not counts:
        return Lengths(0, 0, True, None, None)
    return Lengths(max(counts), len(counts), max(counts) == min(counts), *_of_counted(parts[_NS]))


def median_and_mean(ns: pl.Series) -> tuple[int, int]:
    """Returns the median and the mean of at least one length."""
    return _of_counted(count_values(ns.alias("ns").to_frame(), (), "ns"))


def _of_counted(lengths: Part) -> tuple[int, int]:
    rows = lengths.rows
    mean = rows.select((_col("ns").cast(pl.Float64) * _col("values")).sum() / _col("values").sum()).item()
    return int(medians(lengths, (), "ns")["ns"][0]), int(mean)


def lengths(analysis: Analysis) -> Lengths:
    from opspan.analysis.lanes import in_lanes

    return lengths_of(in_lanes(parts)(analysis))
