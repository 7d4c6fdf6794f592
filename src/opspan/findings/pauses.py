"""Changes of a run whose hosts would do less from one launch to the next.

    faster(run, processes) -> Change: in these launching would take no time; what is no pace of launching stays
    without_pauses(run, pieces) -> Change: pauses in which these pieces of idle time lie would be as short as others

`processes`: rank, pid, apart_ns (findings/paces.py), most_ns: pauses that are longer are no pace of launching.
`pieces`: rows of Run.idle.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.nest import innermost
from opspan.analysis.sooner import Change
from opspan.analysis.spans import PROCESS, distinct, in_order, length, looked_up, only, over, time_in, union
from opspan.findings.marks import are_steps
from opspan.findings.run import Run
from opspan.findings.saved import scaled

_col = pl.col
_THREAD = (*PROCESS, "tid")
_TIMES = (*PROCESS, "start_ns", "end_ns")
_ALIKE = 0.5  # of the usual time


def faster(run: Run, processes: pl.DataFrame) -> Change:
    calls = _calls(run, processes)
    rows = _between(run, calls).filter(length() <= _col("most_ns"), _col("more_ns") > 0)
    return _of_threads(calls, rows)


def without_pauses(run: Run, pieces: pl.DataFrame) -> Change:
    calls = _calls(run, run.paces.select(*PROCESS, "apart_ns"))
    late = distinct(pieces, (*PROCESS, "launched_ns")).with_columns(is_late=True)
    rows = _between(run, calls).with_columns(_col("more_ns") - _col("apart_ns")).filter(_col("more_ns") > 0)
    rows = looked_up(rows, late, (*PROCESS, "launched_ns")).with_columns(name=_names(run, rows))
    # Elsewhere hosts do the same, where devices are idle for another reason, or are not; what takes longer is not that.
    of_name = [*PROCESS, "name"]
    usual = rows.filter("is_late").group_by(of_name).agg(usual_ns=_col("more_ns").median())
    alike = run.begun_in_usual(rows.filter(_col("is_late").is_null()), odd=True)
    alike = alike.join(usual, on=of_name, nulls_equal=True).filter(_col("more_ns") >= _ALIKE * _col("usual_ns"))
    alike = alike.with_columns(more_ns=pl.min_horizontal("more_ns", "usual_ns"))
    return _of_threads(calls, pl.concat(frame.select(*_TIMES, "more_ns") for frame in (rows.filter("is_late"), alike)))


def _calls(run: Run, processes: pl.DataFrame) -> pl.DataFrame:
    calls = run.launches.drop_nulls(("start_ns", "end_ns")).with_columns(launched_ns="start_ns")
    return only(looked_up(calls, processes, PROCESS), _col("apart_ns").is_not_null())


def _between(run: Run, calls: pl.DataFrame) -> pl.DataFrame:
    """From the end of a call to that of the next one, whichever thread of the process makes it; in `more_ns` without
    what has a rule of its own."""
    rows = in_order(calls, "start_ns")
    rows = rows.with_columns(over(_col("end_ns").cum_max(), rows, PROCESS))
    rows = rows.with_columns(start_ns=over(_col("end_ns").shift(1), rows, PROCESS))
    rows = rows.filter(_col("start_ns") < _col("end_ns"))
    return rows.with_columns(more_ns=(length() - time_in(_of_others(run), rows, PROCESS)).cast(pl.Float64))


def _of_others(run: Run) -> pl.DataFrame:
    """When hosts compiled, ran what a device cannot, loaded data, went through parameters or loaded code."""
    ranges = run.ranges
    phases = ["data", "optimizer"] if run.has_loop_in_optimizer else ["data"]
    is_other = _col("phase").is_in(phases).fill_null(value=False)
    is_other |= pl.lit(run.is_falling_back.gather(ranges["row"]).fill_null(value=False))
    rows = pl.concat(rows.select(_TIMES) for rows in (ranges.filter(is_other), run.compiling, run.held))
    return union(rows.drop_nulls(("start_ns", "end_ns")), PROCESS)


def _names(run: Run, rows: pl.DataFrame) -> pl.Series:
    """The innermost range in the middle of each row; null: only a step, or none."""
    ranges = run.trace.ranges
    middle = rows.select(*_THREAD, time_ns=_col("start_ns") + length() // 2)
    is_step = are_steps(ranges, run.steps).fill_null(value=False)
    return ranges["name"].set(is_step, None).gather(innermost(ranges, middle))


def _of_threads(calls: pl.DataFrame, rows: pl.DataFrame) -> Change:
    """On each thread that launches: one that waits for the others meanwhile waits for as much less."""
    rows = rows.select(*_TIMES, factor=1 - _col("more_ns") / length())
    rows = rows.join(distinct(calls, _THREAD), on=PROCESS, nulls_equal=True)
    return scaled(rows, pl.DataFrame(schema={"work": pl.UInt32, "factor": pl.Float64}))
