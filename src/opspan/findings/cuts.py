"""Divides idle time among steps, because a gap that begins in one step may end in another, or after the last step.

cut_at(steps, trace, gaps, idle) -> `idle` with `at_ns`. A gap is a time in which a device was idle. `idle` (gap, range,
    why, ns) divides the time of each gap among ranges and reasons. `cut_at` cuts gaps where steps begin or end, and
    divides the time of each piece in the same way. `at_ns` is the time at which a piece begins
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.idle import WHY, parts
from opspan.analysis.spans import PROCESS, within
from opspan.tables import Tables

_col = pl.col


def cut_at(steps: pl.DataFrame, trace: Tables, gaps: pl.DataFrame, idle: pl.DataFrame) -> pl.DataFrame:
    cuts = _cuts(steps, gaps)
    uncut = idle.with_columns(gaps["start_ns"].gather(idle["gap"]).alias("at_ns"))
    if not cuts.height:
        return uncut
    uncut = uncut.join(cuts, on="gap", how="anti", maintain_order="left")
    pieces = parts(trace, cuts.drop("gap"))
    of_cut = [cuts[name].gather(pieces["gap"]).alias(to) for name, to in (("gap", "gap"), ("start_ns", "at_ns"))]
    return pl.concat([uncut, pieces.with_columns(of_cut).select(uncut.columns)])


def _cuts(steps: pl.DataFrame, gaps: pl.DataFrame) -> pl.DataFrame:
    """Cuts each gap where a step begins or ends inside it. Returns the pieces, each with the number of its gap."""
    ends = pl.concat(steps.select(*PROCESS, time_ns=name) for name in ("start_ns", "end_ns")).unique()
    inside = within(ends, "time_ns", gaps, PROCESS)
    times = pl.DataFrame({"gap": inside["stretch"], "at_ns": ends["time_ns"].gather(inside["row"])})
    gap_rows = gaps.with_row_index("gap").with_columns(begin_ns="start_ns")
    times = times.join(gap_rows.select("gap", "begin_ns"), on="gap").filter(_col("at_ns") > _col("begin_ns"))
    cut = gap_rows.join(times, on="gap", how="semi", maintain_order="left")
    times = pl.concat([cut.select("gap", at_ns="begin_ns"), times.select("gap", "at_ns")]).sort("gap", "at_ns")
    cut = times.join(cut, on="gap", how="left", maintain_order="left")
    until = pl.coalesce(_col("at_ns").shift(-1).over("gap"), "end_ns")
    cut = cut.with_columns(start_ns="at_ns", end_ns=until)
    called_ns = pl.min_horizontal("end_ns", _col("begin_ns") + _col("host_ns"))
    cut = cut.with_columns(host=(called_ns - _col("start_ns")).clip(0))
    # `host` is the time that the host caused. All other time of a piece has one cause, the same as in the whole gap.
    rest = _col("end_ns") - _col("start_ns") - _col("host")
    others = [pl.when(_col(f"{why}_ns") > 0).then(rest).otherwise(0).alias(f"{why}_ns") for why in WHY[1:]]
    return cut.with_columns(*others, host_ns="host").select("gap", *gaps.columns)
