"""Computes the exposed time of collectives: the time in which a collective ran and nothing computed. This is the time
that collectives cost a rank.

    exposed_ns(rows, trace) -> ns for each row, in order; 0 if a time is unknown.
    bare_before(rows, trace) -> for each collective of the host, ns since the collective before it; null if something
        computed in between.

`rows` come from `collectives`; `trace` must be attributed. On a device, kernels compute, except those of collectives;
copies and fills do not. On the host, something computes if any thread of the process is in an op. Ops that start
collectives or wait for them do not count, because gloo runs collectives in separate threads. If several collectives run
at once, each moment counts for the collective that began first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from opspan.analysis.busy import OPS, busy_with
from opspan.analysis.collective_names import ranges_named
from opspan.analysis.spans import DEVICE, PROCESS, length, time_in

if TYPE_CHECKING:
    from opspan.tables import Tables

_col = pl.col
_WAITS = "(?i)wait"


def exposed_ns(rows: pl.DataFrame, trace: Tables) -> pl.Series:
    spans = rows.select(*DEVICE, "start_ns", "end_ns", "work").with_row_index("row").sort("start_ns", "row")
    # Collectives of the host form a separate group, because their device_id is null.
    before = _col("end_ns").cum_max().shift(1).over(DEVICE)
    spans = spans.with_columns(start_ns=pl.max_horizontal("start_ns", before))
    on_device, on_host = spans.filter(_col("work").is_not_null()), spans.filter(_col("work").is_null())
    parts = [spans.clear().select("row", ns=pl.lit(0, dtype=pl.Int64))]
    if on_device.height:
        busy = busy_with(trace.work)
        computing = busy.filter(_col("what") == "computing")
        both = time_in(busy.filter(_col("what").is_in(["computing", "communicating"])), on_device, DEVICE)
        parts.append(on_device.select("row", (both - time_in(computing, on_device, DEVICE)).alias("ns")))
    if on_host.height:
        hidden = time_in(_working(trace.ranges), on_host, PROCESS)
        parts.append(on_host.select("row", ns=length() - hidden))
    at = pl.concat(parts).sort("row")
    return at["ns"].fill_null(0).clip(0).alias("exposed_ns")


def bare_before(rows: pl.DataFrame, trace: Tables) -> pl.Series:
    """Returns, for each row, the ns since the collective before it. This is null if something computed in between, for
    the first collective of a process, and for collectives of devices."""
    spans = rows.select(*PROCESS, "start_ns", "end_ns", "work").with_row_index("row").filter(_col("work").is_null())
    spans = spans.sort("start_ns", "row").with_columns(ended_ns=_col("end_ns").cum_max().shift(1).over(PROCESS))
    gaps = spans.drop_nulls("ended_ns")
    gaps = gaps.with_columns(start_ns=pl.min_horizontal("ended_ns", "start_ns"), end_ns="start_ns")
    before_ns = pl.Series("before_ns", [None], dtype=pl.Int64).new_from_index(0, rows.height)
    if not gaps.height:
        return before_ns
    gaps = gaps.with_columns(ns=length(), is_bare=time_in(_working(trace.ranges), gaps, PROCESS) == 0)
    bare = gaps.filter("is_bare")
    return before_ns.scatter(bare["row"], bare["ns"])


def _working(ranges: pl.DataFrame) -> pl.DataFrame:
    """Returns the ops that are no collectives and no waits, and that contain none of these."""
    names = ranges["name"].unique().drop_nulls()
    waits = names.filter(names.cast(pl.String).str.contains(_WAITS))
    named = pl.concat([ranges_named(names)["name"], waits]).unique()
    marked = ranges["name"].is_in(named.implode()).fill_null(value=False)
    above = ranges["parent"].filter(marked).drop_nulls().unique()
    while len(above):
        is_new = ~marked.gather(above)
        marked = marked.scatter(above, values=True)
        above = ranges["parent"].gather(above.filter(is_new)).drop_nulls().unique()
    ops = ranges.select(*PROCESS, "start_ns", "end_ns", _col("kind").is_in(OPS).alias("is_op"))
    return ops.filter(_col("is_op") & ~marked).drop("is_op")
