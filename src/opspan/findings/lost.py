"""What the host costs a run: how much sooner that would have ended if threads had taken no time for something.

    lost_ns(run, rows, threshold, with_work) -> ns; 0 if `rows` together take less than a share of `threshold`

`rows`: rank, pid, tid, start_ns and end_ns. `with_work`: nor had launched what they launched in that time. The graph of
`opspan path --what-if` is walked forward without it: what devices had queued meanwhile hides as much of it as is so.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.busy import whole_times
from opspan.analysis.spans import PROCESS, length, union
from opspan.findings.run import Run

_col = pl.col
_THREAD = (*PROCESS, "tid")


def lost_ns(run: Run, rows: pl.DataFrame, threshold: float, *, with_work: bool = False) -> int:
    rows = rows.drop_nulls(("start_ns", "end_ns"))
    if not run.matters(run.longest(union(rows, _THREAD).with_columns(ns=length()), "ns"), threshold):
        return 0
    whole = whole_times(run.trace).with_columns(time_ns=length())
    whole = whole.join(run.held.without_host(rows, with_work=with_work), on=PROCESS, nulls_equal=True)
    # Processes run side by side: what one saves is nothing if another takes longer.
    before, after = (int(whole.select(ns.max()).item() or 0) for ns in (_col("time_ns"), _col("time_ns") - _col("ns")))
    return max(before - after, 0)
