"""Describes changes of a run in which hosts do less between launches.

    faster(run, processes) -> Change: the host needs no time from one launch to the next, except in pauses that are
        longer than most_ns
    without_pauses(run, pieces) -> Change: the pauses around these pieces of idle time become as short as usual

`processes` has rank, pid, apart_ns (findings/paces.py) and most_ns; longer pauses have other causes. `pieces` has rows
of Run.idle.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.nest import innermost
from opspan.analysis.sooner import Change
from opspan.analysis.spans import PROCESS, THREAD, distinct, in_order, length, look_up, only, over, time_in, union
from opspan.findings.marks import is_step_range
from opspan.findings.run import Run
from opspan.findings.saved import scale
from opspan.row_numbers import ROW_NUMBER

_col = pl.col
_TIMES = (*PROCESS, "start_ns", "end_ns")
_ALIKE = 0.5  # share of the usual length of late pauses in ranges of the same name: shorter pauses are not changed


def faster(run: Run, processes: pl.DataFrame) -> Change:
    calls = _calls(run, processes)
    rows = _pieces_between(run, calls).filter(length() <= _col("most_ns"), _col("more_ns") > 0)
    return _thread_changes(calls, rows)


def without_pauses(run: Run, pieces: pl.DataFrame) -> Change:
    calls = _calls(run, run.paces.select(*PROCESS, "apart_ns"))
    late = distinct(pieces, (*PROCESS, "launched_ns")).with_columns(is_late=True)
    rows = _pieces_between(run, calls).with_columns(_col("more_ns") - _col("apart_ns")).filter(_col("more_ns") > 0)
    rows = look_up(rows, late, (*PROCESS, "launched_ns")).with_columns(name=_names(run, rows))
    # In ranges of the same name, also shorten pauses that leave no device idle, because they cost the host the same
    # time.
    of_name = [*PROCESS, "name"]
    usual = rows.filter("is_late").group_by(of_name).agg(usual_ns=_col("more_ns").median())
    alike = run.rows_in_usual_steps(rows.filter(_col("is_late").is_null()), odd=True)
    alike = alike.join(usual, on=of_name, nulls_equal=True).filter(_col("more_ns") >= _ALIKE * _col("usual_ns"))
    alike = alike.with_columns(more_ns=pl.min_horizontal("more_ns", "usual_ns"))
    return _thread_changes(
        calls, pl.concat(frame.select(*_TIMES, "more_ns") for frame in (rows.filter("is_late"), alike))
    )


def _calls(run: Run, processes: pl.DataFrame) -> pl.DataFrame:
    calls = run.launches.drop_nulls(("start_ns", "end_ns")).with_columns(launched_ns="start_ns")
    return only(look_up(calls, processes, PROCESS), _col("apart_ns").is_not_null())


def _pieces_between(run: Run, calls: pl.DataFrame) -> pl.DataFrame:
    """Returns the times from the end of a call to the end of the next call of the process, on any thread. `more_ns` is
    the length without the time that other rules report."""
    rows = in_order(calls, "start_ns")
    rows = rows.with_columns(over(_col("end_ns").cum_max(), rows, PROCESS))
    rows = rows.with_columns(start_ns=over(_col("end_ns").shift(1), rows, PROCESS))
    rows = rows.filter(_col("start_ns") < _col("end_ns"))
    return rows.with_columns(more_ns=(length() - time_in(_other_times(run), rows, PROCESS)).cast(pl.Float64))


def _other_times(run: Run) -> pl.DataFrame:
    """Returns the hosts' times that other rules report: compiling, ops that a device lacks kernels for, loading data,
    an optimizer that steps parameter by parameter, taking memory from the driver or giving it back, and loading
    code."""
    ranges = run.ranges
    phases = ["data", "optimizer"] if run.has_loop_in_optimizer else ["data"]
    is_other = _col("phase").is_in(phases).fill_null(value=False)
    is_other |= pl.lit(run.is_falling_back.gather(ranges["row"]).fill_null(value=False))
    rows = pl.concat(rows.select(_TIMES) for rows in (ranges.filter(is_other), run.compilations, run.holds))
    return union(rows.drop_nulls(("start_ns", "end_ns")), PROCESS)


def _names(run: Run, rows: pl.DataFrame) -> pl.Series:
    """Returns the name of the innermost range at the middle of each row; null if there is none, or if it is a step."""
    ranges = run.trace.ranges
    middle = rows.select(*THREAD, time_ns=_col("start_ns") + length() // 2)
    is_step = is_step_range(ranges, run.steps).fill_null(value=False)
    return ranges["name"].set(is_step, None).gather(innermost(ranges, middle))


def _thread_changes(calls: pl.DataFrame, rows: pl.DataFrame) -> Change:
    """Returns the change in which the pauses `rows` become shorter on all launching threads. If a thread waits for
    other threads during a pause, this wait becomes shorter by the same factor."""
    rows = rows.select(*_TIMES, factor=1 - _col("more_ns") / length())
    rows = rows.join(distinct(calls, THREAD), on=PROCESS, nulls_equal=True)
    return scale(rows, pl.DataFrame(schema={"work": ROW_NUMBER, "factor": pl.Float64}))
