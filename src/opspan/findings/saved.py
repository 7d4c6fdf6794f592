"""Computes how much sooner a run would have ended after a change, by replaying the run (analysis/sooner.py).

    saved_ns(run, change, threshold) -> ns; 0 if the change cannot save the share `threshold` of the run's time
    in_time_ns(run, late) -> ns that are saved if no process has to wait for the processes `late` (rank, pid)
    rows_that_gain(run, rows, change, least_ns) -> the rows of the processes that would end sooner by at least least_ns

    reduce(run, rows, column) -> Change: work takes less time, by the nanoseconds in a column
    scale(stretches, work) -> Change: stretches and work take their time multiplied by their column `factor`
    leave_out(run, stretches, work, waits) -> Change: threads skip the times `stretches` (rank, pid, tid, start_ns,
        end_ns) and, in `waits` (same columns), the time in which a device works. The rows `work` are neither
        launched nor run
    merge(run, rows) -> Change: pieces of work with the same `of` become one piece, launched by the call of the
        first piece

    spans_around(run, ranges) -> stretches: each from the first to the last range with the same `of`
    work_launched_in(run, stretches) -> the work that was launched in these stretches

The column `work` is the number of a row in the trace's work.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.sooner import Change, sooner
from opspan.analysis.spans import PROCESS, THREAD, length, time_in, union, within
from opspan.findings.run import Run
from opspan.row_numbers import ROW_NUMBER

_col = pl.col
_LONGEST = 2**53  # nanoseconds (104 days): longer savings are cut to this
_TIMES = (*THREAD, "start_ns", "end_ns")


def saved_ns(run: Run, change: Change, threshold: float = 0.0) -> int:
    if not (change.stretches.height or change.work.height) or not run.matters(_most_ns(run, change), threshold):
        return 0
    is_alone = run.graph.processes.height == 1
    return _saved_ns(run, sooner(run.graph, change, None if is_alone else run.analysis.meetings))


def in_time_ns(run: Run, late: pl.DataFrame) -> int:
    rows = run.trace.work.select(PROCESS).with_row_index("row").join(late, on=PROCESS, how="semi", nulls_equal=True)
    return _saved_ns(run, sooner(run.graph, leave_out(run), run.analysis.meetings.without(rows["row"])), late)


def _saved_ns(run: Run, processes: pl.DataFrame, late: pl.DataFrame | None = None) -> int:
    times = run.times.group_by(PROCESS).agg(_col("time_ns").sum())
    before = int(times["time_ns"].max() or 0)  # type: ignore[arg-type]  # a number
    if late is not None:
        times = times.join(late, on=PROCESS, how="anti", nulls_equal=True)
    times = times.join(_sum_by_process(processes), on=PROCESS, how="left", nulls_equal=True)
    # Processes run side by side, so a saving counts only until another process is the last to end. Work may have taken
    # longer than the steps that waited for it, so a saving may exceed the steps' time: clip at 0.
    after = int(times.select((_col("time_ns") - _col("ns").fill_null(0)).clip(0).max()).item() or 0)
    return max(before - after, 0)


def rows_that_gain(run: Run, rows: pl.DataFrame, change: Change, least_ns: float) -> pl.DataFrame:
    some = rows.select(PROCESS).unique()
    if some.height > 1:
        some = _sum_by_process(sooner(run.graph, change)).filter(_col("ns") > 0, _col("ns") >= least_ns)
    return rows.join(some, on=PROCESS, how="semi", nulls_equal=True, maintain_order="left")


def _sum_by_process(processes: pl.DataFrame) -> pl.DataFrame:
    return processes.group_by(PROCESS).agg(_col("ns").sum())


def _most_ns(run: Run, change: Change) -> float:
    """Returns an upper bound of what a change saves: the largest sum of one process's savings, as if nothing in the
    process ran in parallel."""
    ns = (length() * (1 - _col("factor").clip(0, 1))).clip(0, _LONGEST).round().cast(pl.Int64)
    work = run.trace.work.select(*PROCESS, "start_ns", "end_ns")[change.work["row"]].hstack([change.work["factor"]])
    rows = pl.concat([frame.select(*PROCESS, ns=ns) for frame in (change.stretches, work)])
    return run.longest(rows, "ns")


def reduce(run: Run, rows: pl.DataFrame, column: str) -> Change:
    nothing = run.trace.calls.clear().select(_TIMES).with_columns(factor=1.0)
    took = run.trace.work.select(length()).to_series().gather(rows["work"])
    return scale(nothing, rows.select("work", factor=(1 - _col(column) / pl.lit(took)).clip(0, 1)))


def scale(stretches: pl.DataFrame, work: pl.DataFrame) -> Change:
    # If steps overlap, the same work is in `work` several times.
    work = work.group_by(row="work", maintain_order=True).agg(_col("factor").cast(pl.Float64).min())
    work = work.with_columns(is_at_once=pl.lit(value=False))
    return Change(stretches.select(*_TIMES, _col("factor").cast(pl.Float64), is_free=pl.lit(value=False)), work)


def leave_out(
    run: Run,
    *,
    stretches: pl.DataFrame | None = None,
    work: pl.Series | None = None,
    waits: pl.DataFrame | None = None,
) -> Change:
    work = pl.Series([], dtype=ROW_NUMBER) if work is None else work.unique()
    parts = [_calls_of(run, work).with_columns(factor=0.0)]
    parts += [] if stretches is None else [stretches.select(*_TIMES, factor=pl.lit(0.0))]
    parts += [] if waits is None else [_own(run, waits)]
    gone = pl.concat(parts, how="vertical_relaxed").drop_nulls(("start_ns", "end_ns"))
    rows = pl.DataFrame({"row": work}).with_columns(factor=pl.lit(0.0), is_at_once=pl.lit(value=True))
    return Change(gone.with_columns(is_free=pl.lit(value=True)), rows)


def _calls_of(run: Run, work: pl.Series) -> pl.DataFrame:
    """Returns the calls that launched this work. In processes without steps, time before the first work of a device
    does not count."""
    trace = run.analysis.attributed
    calls = trace.calls[trace.work["call"].gather(work).drop_nulls().unique()]
    calls = calls.select(_TIMES).drop_nulls(("start_ns", "end_ns"))
    calls = calls.join(run.begins.select(*PROCESS, "begin_ns"), on=PROCESS, how="left", nulls_equal=True)
    return calls.select(*THREAD, pl.max_horizontal("start_ns", "begin_ns").alias("start_ns"), "end_ns")


def _own(run: Run, waits: pl.DataFrame) -> pl.DataFrame:
    """Returns the waits with a column `factor`: the share of a wait's time in which no device of the process worked. A
    wait multiplied by its factor has only the time of the call itself."""
    busy_ns = time_in(union(run.busy, PROCESS), waits, PROCESS)
    return waits.select(_TIMES).with_columns(factor=1 - busy_ns / length())


def merge(run: Run, rows: pl.DataFrame) -> Change:
    trace = run.analysis.attributed
    rows = rows.unique("work", keep="first", maintain_order=True)  # if steps overlap, a row is there several times
    calls = trace.work["call"].gather(rows["work"])
    rows = rows.select("of", "start_ns", "work").hstack(trace.calls.select(*THREAD, ended_ns="end_ns")[calls])
    rows = rows.sort("of", "start_ns").with_columns(is_first=_col("of").is_first_distinct())
    between = rows.group_by(*THREAD, "of").agg(start_ns=_col("ended_ns").min(), end_ns=_col("ended_ns").max())
    others = rows.filter(~_col("is_first")).select(row="work", factor=pl.lit(1.0), is_at_once=pl.lit(value=True))
    return Change(leave_out(run, stretches=between.select(_TIMES)).stretches, others)


def spans_around(run: Run, ranges: pl.DataFrame) -> pl.DataFrame:
    """Takes ranges with the columns `range` (the number of a row in the trace's ranges) and `of`."""
    ranges = ranges.drop_nulls().unique("range")
    rows = run.trace.ranges.select(_TIMES)[ranges["range"]].hstack([ranges["of"]])
    return rows.group_by(*THREAD, "of").agg(_col("start_ns").min(), _col("end_ns").max()).select(_TIMES)


def work_launched_in(run: Run, stretches: pl.DataFrame) -> pl.Series:
    trace = run.analysis.attributed
    calls = within(trace.calls, "start_ns", union(stretches, THREAD), THREAD)["row"]
    work = trace.work.select("call").with_row_index("row")
    return work.filter(_col("call").is_in(calls.implode()))["row"]
