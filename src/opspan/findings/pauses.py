"""What hosts do from one launch to the next, and how much less of it there could be.

    faster(run, processes) -> Change: in these launching would take no time; what is no pace of launching stays
    without_pauses(run, pieces) -> Change: pauses in which these pieces of idle time lie would be as short as others

`processes`: rank, pid, apart_ns (findings/paces.py), most_ns: pauses that are longer are no pace of launching.
`pieces`: rows of Run.idle.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.nest import innermost
from opspan.analysis.sooner import Change
from opspan.analysis.spans import DEVICE, PROCESS, distinct, length, union
from opspan.findings.run import Run
from opspan.findings.saved import scaled

_col = pl.col
_THREAD = (*PROCESS, "tid")
_TIMES = (*PROCESS, "start_ns", "end_ns")
_ALIKE = 0.5  # of the usual time


def faster(run: Run, processes: pl.DataFrame) -> Change:
    calls = _calls(run).join(processes, on=PROCESS, nulls_equal=True)
    pauses = _between(calls).filter(length() <= _col("most_ns"))
    rows = union(pl.concat(rows.select(_TIMES) for rows in (calls, pauses)), PROCESS)
    return _of_threads(calls, rows.with_columns(factor=0.0))


def without_pauses(run: Run, pieces: pl.DataFrame) -> Change:
    key = [*PROCESS, "end_ns"]
    calls = _calls(run).join(run.paces.select(*PROCESS, "apart_ns"), on=PROCESS, nulls_equal=True)
    late = pieces.select(*PROCESS, end_ns="launched_ns", is_late=True).unique()
    rows = _between(calls).join(late, on=key, how="left", nulls_equal=True, maintain_order="left")
    rows = rows.join(_of_others(run, pieces), on=key, how="left", nulls_equal=True, maintain_order="left")
    more = length() - pl.max_horizontal("apart_ns", _col("other_ns").fill_null(0))
    rows = rows.with_columns(more_ns=more, name=_names(run, rows)).filter(_col("more_ns") > 0)
    # Elsewhere hosts do the same, where devices are idle for another reason, or are not; what takes longer is not that.
    of_name = [*PROCESS, "name"]
    usual = rows.filter("is_late").group_by(of_name).agg(usual_ns=_col("more_ns").median())
    alike = run.begun_in_usual(rows.filter(_col("is_late").is_null()), odd=True).join(usual, on=of_name, nulls_equal=True)
    alike = alike.filter(_col("more_ns") >= _ALIKE * _col("usual_ns"))
    alike = alike.with_columns(more_ns=pl.min_horizontal("more_ns", "usual_ns"))
    rows = pl.concat(frame.select(*_TIMES, "more_ns") for frame in (rows.filter("is_late"), alike))
    return _of_threads(calls, rows.with_columns(factor=1 - _col("more_ns") / length()))


def _calls(run: Run) -> pl.DataFrame:
    """The calls that gave devices work."""
    found = run.found.attributed
    return found.calls.select(*_THREAD, "start_ns", "end_ns")[found.work["call"].drop_nulls().unique()].drop_nulls()


def _between(calls: pl.DataFrame) -> pl.DataFrame:
    """From the end of a call to the begin of the next one, whichever thread of the process makes it."""
    rows = calls.sort(*PROCESS, "start_ns").with_columns(ended_ns=_col("end_ns").cum_max().shift(1).over(PROCESS))
    rows = rows.with_columns(end_ns="start_ns", start_ns="ended_ns")
    return rows.filter(_col("start_ns") < _col("end_ns")).drop("ended_ns")


def _of_others(run: Run, pieces: pl.DataFrame) -> pl.DataFrame:
    """rank, pid, end_ns, other_ns: how long devices were idle until then for another cause."""
    causes = pl.concat([pieces["cause"].unique(), pl.Series(["wait"], dtype=pieces.schema["cause"])])
    rows = run.idle.filter(~_col("cause").is_in(causes.implode())).drop_nulls("launched_ns")
    sums = rows.group_by(*DEVICE, end_ns="launched_ns").agg(other_ns=_col("ns").sum())
    return sums.group_by(*PROCESS, "end_ns").agg(_col("other_ns").max())


def _names(run: Run, rows: pl.DataFrame) -> pl.Series:
    """The innermost range in the middle of each row; null: only a step, or none."""
    ranges = run.trace.ranges
    middle = rows.select(*_THREAD, time_ns=_col("start_ns") + length() // 2)
    found = innermost(ranges, middle)
    is_step = ranges["name"].is_in(run.steps["step"].cast(ranges["name"].dtype).implode()) | (ranges["kind"] == "step")
    return ranges["name"].set(is_step.fill_null(value=False), None).gather(found)


def _of_threads(calls: pl.DataFrame, rows: pl.DataFrame) -> Change:
    """On each thread that launches: one that waits for the others meanwhile waits for as much less."""
    rows = rows.join(distinct(calls, _THREAD).select(_THREAD), on=PROCESS, nulls_equal=True)
    return scaled(rows, rows.clear().select(work=pl.lit(0, dtype=pl.UInt32), factor=pl.lit(0.0)))
