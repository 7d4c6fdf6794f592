"""Steps that took longer than the others (outliers), apart by what grew most in them.

    kinds(run) -> [Kind], for each of which a finding tells what took longer
    of_steps(run, rows) -> the rows that begin in steps, and those of processes without steps

grown.py says what grew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from opspan.analysis.sooner import Change
from opspan.analysis.spans import PROCESS
from opspan.findings.grown import grown
from opspan.findings.run import Run
from opspan.findings.saved import saved_ns, scaled

_col = pl.col
THRESHOLD = 0.01  # of the run, from which on a kind of outliers is told
_KEY = "kinds of outliers"
_STEP = (*PROCESS, "step")
_MOST = 0.25  # of the steps: if more are outliers, the steps are of several kinds
_NEARLY = 0.5  # of what grew most in a step: what grew by so much says as well why it is an outlier
_KINDS = 3  # of outliers: more are not told apart


@dataclass(frozen=True)
class Kind:
    steps: pl.DataFrame  # rows of Run.lasted, with the process' usual_ns and with more_ns
    excess: pl.DataFrame  # what took longer in them (grown.py)
    change: Change  # all that had taken as long as usually
    at_stake_ns: int


def kinds(run: Run) -> list[Kind]:
    """Returns the kinds of outliers. They are looked for once in a run: several rules ask."""
    return run.once(_KEY, lambda: _kinds(run))


def of_steps(run: Run, rows: pl.DataFrame, *, is_late: bool = False) -> pl.DataFrame:
    """Returns rows as Run.begun_in_usual does, with those of outliers where usual steps have some, too. Rows that only
    outliers have make them outliers: they are left out where the outliers' own finding tells them."""
    if not rows.height:
        return rows.with_columns(step=pl.lit(None, dtype=run.steps.schema["step"]))
    found = run.begun_in_usual(rows, is_late=is_late, odd=True)
    if run.in_usual(found).height:
        return found
    for kind in kinds(run):
        found = found.join(kind.steps, on=_STEP, how="anti", nulls_equal=True, maintain_order="left")
    return found


def _kinds(run: Run) -> Iterator[Kind]:
    steps = run.lasted
    if not steps["is_outlier"].any():
        return
    usual = steps.group_by(PROCESS).agg(usual_ns=_col("took_ns").median())
    odd = steps.filter("is_outlier").join(usual, on=PROCESS, nulls_equal=True)
    odd = odd.with_columns(more_ns=_col("took_ns") - _col("usual_ns").cast(pl.Int64)).filter(_col("more_ns") > 0)
    if not run.matters(run.longest(odd, "more_ns"), THRESHOLD):
        return
    found = grown(run, odd)
    rest = found.excess
    for _ in range(_KINDS):
        if not rest.height:
            return
        alike = _alike(rest)
        rest = rest.join(alike, on=_STEP, how="anti", nulls_equal=True)
        some = odd.join(alike, on=_STEP, how="semi", nulls_equal=True)
        if some.height > _MOST * steps.height:
            continue
        change = scaled(_of(found.stretches, alike), _of(found.work, alike))
        at_stake = saved_ns(run, change)
        if run.matters(at_stake, THRESHOLD):
            yield Kind(some, _of(found.excess, alike), change, at_stake)


def _alike(excess: pl.DataFrame) -> pl.DataFrame:
    """The steps in which nearly the same grew most as in all of them. Calls of the driver are one thing."""
    what = pl.when(_col("what") != "calling").then("name")
    sums = excess.group_by(*_STEP, "what", name=what).agg(_col("more_ns").sum())
    most = sums.group_by("what", "name").agg(_col("more_ns").sum())
    most = most.sort("more_ns", "what", "name", descending=[True, False, False]).head(1)
    sums = sums.with_columns(most_ns=_col("more_ns").max().over(_STEP))
    sums = sums.join(most.select("what", "name"), on=["what", "name"], how="semi", nulls_equal=True)
    return sums.filter(_col("more_ns") >= _NEARLY * _col("most_ns")).select(_STEP)


def _of(rows: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    return rows.join(steps, on=_STEP, how="semi", nulls_equal=True, maintain_order="left")
