"""How much sooner each process would have been done without something: analysis/sooner.py.

saved(run, stretches, work, waits) -> rank, pid, saved_ns
scaled(run, stretches, work) -> the same, where both have a factor: what they would take of their time
most_ns(saved) -> of the process that gains most
gaining(rows, saved, least_ns) -> the rows of processes that gain at least so much

stretches   rank, pid, tid, start_ns, end_ns: what threads would not do
work        numbers of rows of the trace's work: what devices would not do
waits       rank, pid, tid, start_ns, end_ns: calls that would not wait, and take no time
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from opspan.analysis.sooner import sooner
from opspan.analysis.spans import PROCESS, length, time_in, union
from opspan.findings.run import Run

_col = pl.col
_THREAD = (*PROCESS, "tid")


def saved(
    run: Run,
    *,
    stretches: pl.DataFrame | None = None,
    work: pl.Series | None = None,
    waits: pl.DataFrame | None = None,
) -> pl.DataFrame:
    parts = [] if stretches is None else [stretches.select(*_THREAD, "start_ns", "end_ns", factor=0.0)]
    parts += [] if waits is None else [_own(run, waits)]
    calls = None if work is None else _calls_of(run, work)
    parts += [] if calls is None else [calls.with_columns(factor=0.0)]
    quick = pl.concat(parts) if parts else None
    gone = None if work is None else pl.DataFrame({"row": work, "factor": 0.0})
    unwaited = [rows.select(*_THREAD, "end_ns") for rows in (waits, calls) if rows is not None]
    return _positive(sooner(run.held.graph, quick, _took(run, gone), pl.concat(unwaited) if unwaited else None))


def _own(run: Run, waits: pl.DataFrame) -> pl.DataFrame:
    """What a call does while no device of its process is at work is its own, and stays."""
    busy_ns = time_in(union(run.busy, PROCESS), waits, PROCESS)
    return waits.select(*_THREAD, "start_ns", "end_ns", factor=1 - busy_ns / length())


def scaled(run: Run, stretches: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    return _positive(sooner(run.held.graph, stretches, _took(run, work)))


def _calls_of(run: Run, work: pl.Series) -> pl.DataFrame:
    """The calls that gave devices this work; of a process without steps what is not before its first work."""
    found = run.found.attributed
    calls = found.calls[found.work["call"].gather(work).drop_nulls().unique()]
    calls = calls.select(*_THREAD, "start_ns", "end_ns").drop_nulls(("start_ns", "end_ns"))
    calls = calls.join(run.begins.select(*PROCESS, "begin_ns"), on=PROCESS, how="left", nulls_equal=True)
    return calls.select(*_THREAD, pl.max_horizontal("start_ns", "begin_ns").alias("start_ns"), "end_ns")


def _took(run: Run, work: pl.DataFrame | None) -> npt.NDArray[np.float64] | None:
    if work is None:
        return None
    rows = run.held.graph.work.select("row")
    factors = work.select(_col("row").cast(rows.schema["row"]), "factor")
    return rows.join(factors, on="row", how="left", maintain_order="left")["factor"].fill_null(1.0).to_numpy()


def _positive(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(_col("saved_ns").clip(0))


def most_ns(rows: pl.DataFrame) -> int:
    return int(rows["saved_ns"].max() or 0)  # type: ignore[arg-type]  # a number


def gaining(rows: pl.DataFrame, gains: pl.DataFrame, least_ns: float) -> pl.DataFrame:
    some = gains.filter(_col("saved_ns") > 0, _col("saved_ns") >= least_ns).select(PROCESS)
    return rows.join(some, on=PROCESS, how="semi", nulls_equal=True, maintain_order="left")
