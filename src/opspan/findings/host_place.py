"""Names the code that the host ran while devices had nothing to do.

    main_place(run, pieces) -> the name, or UNKNOWN; `pieces` are rows of Run.idle

The name is that of the innermost range. Steps do not count, because they contain every moment. If ranges cover less
than half of the time, the name is that of the innermost Python function. Without Python functions, it is that of the
innermost frame of the sampled stacks.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.idle import in_functions
from opspan.analysis.spans import PROCESS, within
from opspan.findings.marks import is_step_range
from opspan.findings.run import Run

_col = pl.col
UNKNOWN = "code that nothing in the trace names"


def main_place(run: Run, pieces: pl.DataFrame) -> str:
    ranges = run.trace.ranges
    is_named = ~is_step_range(ranges, run.steps).fill_null(value=False).gather(pieces["range"])
    named = pieces.filter(is_named.fill_null(value=False)).select("op", "ns")
    total = int(pieces["ns"].sum())
    if 2 * int(named["ns"].sum()) >= total and (name := _most(named, "op")):
        return name
    return _functions(run, pieces) or _frames(run, pieces) or UNKNOWN


def _most(rows: pl.DataFrame, name: str) -> str | None:
    sums = rows.drop_nulls(name).group_by(name).agg(_col("ns").sum()).sort("ns", name, descending=[True, False])
    return str(sums[name][0]) if sums.height else None


def _functions(run: Run, pieces: pl.DataFrame) -> str | None:
    if not run.trace.functions.height:
        return None
    gaps = run.analysis.gaps[pieces["gap"].unique()]
    rows = in_functions(run.analysis.attributed, gaps)
    return _most(rows.with_columns(name=run.trace.functions["name"].gather(rows["function"])), "name")


def _frames(run: Run, pieces: pl.DataFrame) -> str | None:
    """Looks at the stacks that were sampled in a thread while its next launch was late. Returns the function that is
    innermost most often."""
    samples = run.analysis.tables.samples.drop_nulls(("time_ns", "stack"))
    if not samples.height:
        return None
    gaps = run.analysis.gaps[pieces["gap"].unique()]
    late = gaps.select(*PROCESS, "tid", "start_ns", end_ns=_col("start_ns") + _col("host_ns"))
    rows = within(samples, "time_ns", late, (*PROCESS, "tid"))["row"]
    frames = samples["stack"].gather(rows).cast(pl.String).str.split(";").list.last()
    return _most(pl.DataFrame({"name": frames, "ns": pl.Series([1]).new_from_index(0, len(frames))}), "name")
