"""Computes how long each step took until all of its work was done; the host may be done much earlier.

    until_done(steps, calls, work) -> the steps in the same order, with took_ns and done_ns (when the step was done).
    with_outliers(until_done) -> the same, with is_outlier: whether the step made the run longer.

A step is done when the step and all work that was launched in the step have ended. Its time begins at its own start, or
when the step before was done, whichever is later. The step before is, of all the process's steps that ended before this
step began, the last to end. So the times of steps that follow each other add up to the time in which at least one of
them was not done. If each step's work ends before the step, these times are those of the host. Work without a call
counts as launched when it began. Work must be attributed (`launches`) first.

An outlier is a step that took long until it was done. A step that is long only on the host does not count: a host that
runs ahead of its device has to wait when the launch queue is full, which does not make the run longer.

If devices are idle when a step begins, its time includes the host's time until its first launch. In other steps,
devices run earlier work in that time. So a step that begins with idle devices is an outlier only if it was long on the
host, too.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.averages import on_device
from opspan.analysis.engine_labels import alike
from opspan.analysis.iterations import is_long
from opspan.analysis.spans import PROCESS, length, within
from opspan.row_numbers import ROW_NUMBER

_col = pl.col
_NUMBER = pl.int_range(pl.len(), dtype=ROW_NUMBER)


def until_done(steps: pl.DataFrame, calls: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    rows = steps.select(*PROCESS, "start_ns", "end_ns", number=_NUMBER, key=pl.struct(PROCESS).rank("dense"))
    rows = rows.join(_last_ends(steps, calls, work), on="number", how="left", maintain_order="left")
    rows = rows.with_columns(done_ns=pl.max_horizontal("end_ns", "last_ns"))
    before = rows.filter(length() > 0).group_by("key", "end_ns").agg(before_ns=_col("done_ns").max())
    rows = rows.sort("start_ns").join_asof(
        before.sort("end_ns"), left_on="start_ns", right_on="end_ns", by="key", check_sortedness=False
    )
    took = length(pl.max_horizontal("start_ns", "before_ns"), _col("done_ns"))
    return steps.with_columns(rows.sort("number").select("done_ns", took_ns=took))


def with_outliers(steps: pl.DataFrame) -> pl.DataFrame:
    is_behind = _col("done_ns") - _col("took_ns") > _col("start_ns")
    is_outlier = is_long(_col("took_ns")) & (is_behind | is_long(length()))
    return steps.with_columns(alike(steps["step"])).with_columns(is_outlier=is_outlier).drop("alike")


def _last_ends(steps: pl.DataFrame, calls: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """Returns, for each step with work, when the last work that was launched in it ended: number, last_ns."""
    columns = (*PROCESS, "start_ns", "end_ns", "call", "kind", "is_overhead")
    rows = on_device(work.select(columns)).filter(_col("end_ns") >= _col("start_ns"))
    launched = calls["start_ns"].gather(rows["call"]).alias("called_ns")
    rows = rows.with_columns(launched).with_columns(start_ns=pl.coalesce("called_ns", "start_ns"))
    pairs = within(rows, "start_ns", steps, PROCESS)
    ends = pl.DataFrame({"number": pairs["stretch"], "end_ns": rows["end_ns"].gather(pairs["row"])})
    return ends.group_by("number").agg(last_ns=_col("end_ns").max())
