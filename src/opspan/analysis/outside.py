"""Sums, for each process, the time outside of steps: start-up, time between steps, and time after the last step.

    outside(processes, steps) -> rank, pid, whole_ns (the whole time of the process), and the three parts outside of
        steps: startup_ns, between_ns, after_ns.
    between(steps, ranges) -> name, ns: the outermost ranges that the program named and that began between two steps,
        such as evaluation and checkpoints. ns is their time, which ends at the latest when the next step begins.

`processes` has rank, pid, start_ns, end_ns. Processes without steps are left out.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.program_ranges import of_program
from opspan.analysis.spans import PROCESS, length, time_in, union, within

_col = pl.col
_ENDS = (*PROCESS, "start_ns", "end_ns")


def outside(processes: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    ends = steps.group_by(PROCESS).agg(first_ns=_col("start_ns").min(), last_ns=_col("end_ns").max())
    rows = processes.select(_ENDS).join(ends, on=PROCESS, nulls_equal=True, maintain_order="left")
    inside = time_in(steps.select(_ENDS), rows.select(_ENDS), PROCESS)
    rows = rows.with_columns(
        whole_ns=length(),
        startup_ns=length(_col("start_ns"), _col("first_ns")),
        after_ns=length(_col("last_ns"), _col("end_ns")),
        inside_ns=inside,
    )
    rest = _col("whole_ns") - _col("startup_ns") - _col("after_ns") - _col("inside_ns")
    return rows.select(*PROCESS, "whole_ns", "startup_ns", between_ns=rest.clip(0), after_ns="after_ns")


def between(steps: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    inside = union(steps.select(_ENDS), PROCESS).sort(_ENDS)
    after = _col("start_ns").shift(-1).over(PROCESS)
    gaps = inside.select(*PROCESS, start_ns="end_ns", end_ns=after).drop_nulls("end_ns")
    is_range = ~_col("is_mark").fill_null(value=False) & ~_col("is_async").fill_null(value=False)
    named = ranges.select(*_ENDS, "name", "kind", "depth", is_range=is_range).filter(_col("kind") == "user", "is_range")
    named = named.filter(of_program(named) & (named["end_ns"] > named["start_ns"]))
    pairs = within(named, "start_ns", gaps, PROCESS)
    rows = named[pairs["row"]].with_columns(gaps["end_ns"].gather(pairs["stretch"]).alias("until_ns"), pairs["stretch"])
    rows = rows.filter(_col("depth") == _col("depth").min().over("stretch"))
    ns = length(_col("start_ns"), pl.min_horizontal("end_ns", "until_ns"))
    return rows.group_by(_col("name").cast(pl.String), maintain_order=True).agg(ns=ns.sum())
