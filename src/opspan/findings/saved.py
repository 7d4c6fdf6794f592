"""How much sooner a run would have been done without something, of the process that gains most: analysis/sooner.py.

saved_ns(run, stretches, work, waits) -> ns

stretches   rank, pid, tid, start_ns, end_ns: what threads would not do
work        numbers of rows of the trace's work: what devices would not do
waits       rank, pid, tid, start_ns, end_ns: calls that would not wait, and take no time
"""

from __future__ import annotations

import numpy as np
import polars as pl

from opspan.analysis.sooner import sooner
from opspan.analysis.spans import PROCESS, union
from opspan.findings.run import Run

_col = pl.col
_THREAD = (*PROCESS, "tid")


def saved_ns(
    run: Run,
    *,
    stretches: pl.DataFrame | None = None,
    work: pl.Series | None = None,
    waits: pl.DataFrame | None = None,
) -> int:
    graph = run.released
    parts = [rows.select(*_THREAD, "start_ns", "end_ns") for rows in (stretches, waits) if rows is not None]
    quick = union(pl.concat(parts), _THREAD).with_columns(factor=0.0) if parts else None
    took = None if work is None else np.where(graph.work["row"].is_in(work.implode()).to_numpy(), 0.0, 1.0)
    return max(int(sooner(graph, quick, took, waits)["saved_ns"].max() or 0), 0)  # type: ignore[arg-type]  # a number


def scaled_ns(run: Run, stretches: pl.DataFrame, work: pl.DataFrame) -> int:
    graph = run.released
    factors = graph.work.select("row").join(
        work.select(_col("row").cast(pl.UInt32), "factor"), on="row", how="left", maintain_order="left"
    )
    took = factors["factor"].fill_null(1.0).to_numpy()
    return max(int(sooner(graph, stretches, took)["saved_ns"].max() or 0), 0)  # type: ignore[arg-type]  # a number
