"""Divides outliers (steps that took longer than the others) into kinds, by the work whose time grew most.

outlier_kinds(run) -> [OutlierKind]; each becomes a finding
rows_in_steps(run, rows) -> the rows that begin in steps, and the rows of processes without steps
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from opspan.analysis.sooner import Change
from opspan.analysis.spans import PROCESS
from opspan.findings.growth import growth_of
from opspan.findings.run import Run
from opspan.findings.saved import saved_ns, scale

_col = pl.col
THRESHOLD = 0.01  # share of the run's time: kinds of outliers that cost less are not reported
_KEY = "kinds of outliers"
_STEP = (*PROCESS, "step")
_MOST = 0.25  # share of the steps: if more steps are outliers of one kind, the kind is not reported
_NEARLY = 0.5  # share of a step's largest growth: work that grew by at least this much also explains the step
_KINDS = 3  # at most this many kinds of outliers are reported


@dataclass(frozen=True)
class OutlierKind:
    # rows of Run.step_times with usual_ns (the median of the process's steps with the same work) and more_ns (how much
    # longer the step took)
    steps: pl.DataFrame
    excess: pl.DataFrame  # the growth in these steps (growth.py)
    change: Change  # a change of the run: all work that took longer takes its usual time instead
    at_stake_ns: int


def outlier_kinds(run: Run) -> list[OutlierKind]:
    """Returns the kinds of outliers. They are computed once for a run because several rules use them."""
    return run.memo(_KEY, lambda: _kinds(run))


def rows_in_steps(run: Run, rows: pl.DataFrame, *, is_late: bool = False) -> pl.DataFrame:
    """Returns the rows that begin in steps, also in outliers, with the step's name as `step`. If all rows are in
    outliers, the rows are what makes these steps longer. Then leaves out the rows of outliers for which there is a
    finding (`outlier_kinds`)."""
    if not rows.height:
        return rows.with_columns(step=pl.lit(None, dtype=run.steps.schema["step"]))
    inside = run.rows_in_usual_steps(rows, is_late=is_late, odd=True)
    if run.drop_outliers(inside).height:
        return inside
    for kind in outlier_kinds(run):
        inside = inside.join(kind.steps, on=_STEP, how="anti", nulls_equal=True, maintain_order="left")
    return inside


def _kinds(run: Run) -> Iterator[OutlierKind]:
    steps = run.step_times
    if not steps["is_outlier"].any():
        return
    usual = steps.group_by(*PROCESS, "alike").agg(usual_ns=_col("took_ns").median())
    odd = steps.filter("is_outlier").join(usual, on=[*PROCESS, "alike"], nulls_equal=True)
    odd = odd.with_columns(more_ns=_col("took_ns") - _col("usual_ns").cast(pl.Int64)).filter(_col("more_ns") > 0)
    if not run.matters(run.longest(odd, "more_ns"), THRESHOLD):
        return
    growth = growth_of(run, odd)
    rest = growth.excess
    for _ in range(_KINDS):
        if not rest.height:
            return
        alike = _alike(rest)
        rest = rest.join(alike, on=_STEP, how="anti", nulls_equal=True)
        some = odd.join(alike, on=_STEP, how="semi", nulls_equal=True)
        if some.height > _MOST * steps.height:
            continue
        change = scale(_rows_in(growth.stretches, alike), _rows_in(growth.work, alike))
        at_stake = saved_ns(run, change)
        if run.matters(at_stake, THRESHOLD):
            yield OutlierKind(some, _rows_in(growth.excess, alike), change, at_stake)


def _alike(excess: pl.DataFrame) -> pl.DataFrame:
    """Finds the name whose work took the most extra time over all steps. Returns the steps in which this name has at
    least half as much extra time as any other name. All calls of the driver count as one name."""
    what = pl.when(_col("what") != "calling").then("name")
    sums = excess.group_by(*_STEP, "what", name=what).agg(_col("more_ns").sum())
    most = sums.group_by("what", "name").agg(_col("more_ns").sum())
    most = most.sort("more_ns", "what", "name", descending=[True, False, False]).head(1)
    sums = sums.with_columns(most_ns=_col("more_ns").max().over(_STEP))
    sums = sums.join(most.select("what", "name"), on=["what", "name"], how="semi", nulls_equal=True)
    return sums.filter(_col("more_ns") >= _NEARLY * _col("most_ns")).select(_STEP)


def _rows_in(rows: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    return rows.join(steps, on=_STEP, how="semi", nulls_equal=True, maintain_order="left")
