"""How fast each process launches, and how long what it launches takes."""

from __future__ import annotations

import polars as pl

from opspan.analysis import Analysed
from opspan.analysis.spans import PROCESS, in_order, numbered, summed_by

_col = pl.col
_THREAD = (*PROCESS, "tid")


def paces(found: Analysed) -> pl.DataFrame:
    """For each process: rank, pid, the median time from one launch to the next on its thread (apart_ns), that of
    work (work_ns), how many launches there are and how many of them take longer than their work (short)."""
    rows = found.delays.select("call", "work", "is_short")
    calls, work = found.attributed.calls, found.attributed.work
    if rows["call"].n_unique() != rows.height:
        rows = rows.unique("call", keep="first", maintain_order=True)
    rows = rows.with_columns(
        [calls[name].gather(rows["call"]).alias(name) for name in _THREAD]
        + [calls["start_ns"].gather(rows["call"]).alias("called_ns")]
        + [(work["end_ns"] - work["start_ns"]).gather(rows["work"]).alias("ns")]
    )
    (called,) = numbered(_THREAD, rows.select(*_THREAD, "called_ns"))
    called = in_order(in_order(called, "called_ns"), "of")
    is_same = _col("of") == _col("of").shift(1)
    between = called.with_columns(apart_ns=pl.when(is_same).then(_col("called_ns").diff()))
    apart = summed_by(between, PROCESS, apart_ns=_col("apart_ns").median())
    facts = {"work_ns": _col("ns").median(), "launches": pl.len(), "short": _col("is_short").sum()}
    sums = summed_by(rows, PROCESS, **facts)
    return sums.join(apart, on=PROCESS, nulls_equal=True)
