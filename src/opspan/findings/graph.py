"""Builds the graph with which analysis/sooner.py replays a run: graph_of(analysis) -> Graph."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from opspan.analysis import Analysis
from opspan.analysis.averages import on_device
from opspan.analysis.path_graph import Graph
from opspan.analysis.sooner import with_guessed_launches
from opspan.analysis.spans import DEVICE, length, look_up, sum_by

_col = pl.col
_HARDLY = 0.1  # share of a device's busy time: if unexplained idle time is longer, the host may have been slow


def graph_of(analysis: Analysis) -> Graph:
    """Returns the graph. If a process wrote several files (cycles), each file counts as a process of its own."""
    graph, trace = analysis.path_graph, analysis.attributed
    if analysis.lanes is not None:
        back = analysis.lanes.back
        graph = replace(graph, processes=back(graph.processes), threads=back(graph.threads))
    return with_guessed_launches(graph, trace, _is_paced(analysis, graph))


def _is_paced(analysis: Analysis, graph: Graph) -> pl.Series:
    """Returns for each row of work whether its device may have waited for a slow host: the device was idle for unknown
    reasons for more than the share _HARDLY of its busy time."""
    work = on_device(analysis.attributed.work.select(*DEVICE, "start_ns", "end_ns", "kind", "is_overhead"))
    busy = sum_by(work.drop_nulls(("start_ns", "end_ns")), DEVICE, busy_ns=length().sum())
    gaps = sum_by(analysis.gaps.drop_nulls("next"), DEVICE, ns=_col("unknown_ns").sum())
    sums = busy.join(gaps, on=DEVICE, how="left", nulls_equal=True)
    is_paced = _col("ns").fill_null(0) > _HARDLY * _col("busy_ns")
    devices = analysis.attributed.work.select(DEVICE)[graph.work["row"]]
    rows = look_up(devices, sums.select(*DEVICE, is_paced=is_paced), DEVICE)
    return rows["is_paced"].fill_null(value=True)
