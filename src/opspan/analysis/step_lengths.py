"""How many steps a run has and how long they took: what every output says of them comes from here.

    parts(found) -> what `lengths_of` needs of one trace, to be put together with those of others
    lengths_of(parts) -> Lengths
    lengths(found) -> the same of one trace

A step is as long as its stretch of time, cut to the part of the trace that was read: as `opspan steps` has it. How long
it took until all that it launched was done is another figure, which `diff` compares (`until_done`). `steps` is how many
the process has that has most: the ranks of a job do one step together. Median and mean are those of all steps of all
processes; a few long ones pull the mean away from the median, so both are said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from opspan.analysis.busy import within_part
from opspan.analysis.parts import Part, Parts, counted, medians
from opspan.analysis.spans import PROCESS, length

if TYPE_CHECKING:
    from opspan.analysis.analysed import Analysis

_col = pl.col
_NS, _COUNTS = "step lengths", "step counts"


class Lengths(NamedTuple):
    """`are_alike`: each of `processes`, which are those with steps, has as many. `median_ns`: None where no step is."""

    steps: int
    processes: int
    are_alike: bool
    median_ns: int | None
    mean_ns: int | None


def parts(analysis: Analysis, steps: pl.DataFrame | None = None) -> Parts:
    """`steps`: those that were asked for, if not those of the trace."""
    rows = within_part(analysis.iterations if steps is None else steps, analysis.complete)
    counts = rows.group_by(PROCESS, maintain_order=True).agg(steps=pl.len().cast(pl.Int64))
    return {_NS: counted(rows.select(ns=length()), (), "ns"), _COUNTS: Part(counts, PROCESS)}


def lengths_of(parts: Parts) -> Lengths:
    counts = parts[_COUNTS].rows["steps"].to_list()
    if not counts:
        return Lengths(0, 0, True, None, None)
    return Lengths(max(counts), len(counts), max(counts) == min(counts), *_of_counted(parts[_NS]))


def median_and_mean(ns: pl.Series) -> tuple[int, int]:
    """The same two figures of some steps, as those of one process. There is at least one."""
    return _of_counted(counted(ns.alias("ns").to_frame(), (), "ns"))


def _of_counted(lengths: Part) -> tuple[int, int]:
    rows = lengths.rows
    mean = rows.select((_col("ns").cast(pl.Float64) * _col("values")).sum() / _col("values").sum()).item()
    return int(medians(lengths, (), "ns")["ns"][0]), int(mean)


def lengths(analysis: Analysis) -> Lengths:
    from opspan.analysis.lanes import in_lanes

    return lengths_of(in_lanes(parts)(analysis))
