"""Measures how fast each process launches, and how long the launched work takes."""

from __future__ import annotations

import numpy as np
import polars as pl

from opspan.analysis import Analysis
from opspan.analysis.spans import PROCESS, THREAD, apart, in_order, sum_by

_col = pl.col


def paces(analysis: Analysis) -> pl.DataFrame:
    """Returns a row for each process: rank, pid, apart_ns, work_ns, launches, short. `apart_ns` is the median time
    between launches on a thread. `work_ns` is the median time of the launched work. `launches` counts launches, and
    `short` those that take longer than their work."""
    rows = analysis.delays.select("call", "work", "is_short")
    calls, work = analysis.attributed.calls, analysis.attributed.work
    is_called = np.zeros(calls.height, dtype=bool)
    is_called[rows["call"].to_numpy()] = True
    if np.count_nonzero(is_called) != rows.height:
        rows = rows.unique("call", keep="first", maintain_order=True)
    rows = rows.with_columns(
        [calls[name].gather(rows["call"]).alias(name) for name in THREAD]
        + [calls["start_ns"].gather(rows["call"]).alias("called_ns")]
        + [(work["end_ns"] - work["start_ns"]).gather(rows["work"]).alias("ns")]
    )
    threads = apart(rows.select(*THREAD, "called_ns"), THREAD).values()
    between = pl.concat(in_order(one, "called_ns").with_columns(apart_ns=_col("called_ns").diff()) for one in threads)
    paced = sum_by(between, PROCESS, apart_ns=_col("apart_ns").median())
    facts = {"work_ns": _col("ns").median(), "launches": pl.len(), "short": _col("is_short").sum()}
    return sum_by(rows, PROCESS, **facts).join(paced, on=PROCESS, nulls_equal=True)
