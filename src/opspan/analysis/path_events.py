"""Finds what work waited for in files that have the calls of events and do not say which work these mean, as most.

    after_wait_calls(trace, work, threads) -> work, before: numbers of Graph.work
    unexplained(work)                      -> the same

The first work that a thread launches after it told a stream to wait is taken to wait for what was launched last on
another stream. Work that had been launched, whose stream was free, and that begins as other work of the process ends,
within CLOSE, is taken to have waited for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from opspan.analysis.spans import PROCESS

if TYPE_CHECKING:
    from opspan.tables import Tables

_col = pl.col
_WAIT_EVENT = r"^(cuda|cu|hip)StreamWaitEvent"
CLOSE = 20_000  # ns; work that waits for an event of another stream begins some 10 us after it


def after_wait_calls(trace: Tables, work: pl.DataFrame, threads: pl.DataFrame) -> pl.DataFrame:
    """`work`: process, stream, launch_ns and thread. Nothing, where the file says itself what streams wait for."""
    nothing = pl.DataFrame(schema={"work": pl.Int64, "before": pl.Int64})
    if (trace.work["kind"] == "sync").any():
        return nothing
    names = trace.calls["name"].unique().drop_nulls()
    names = names.filter(names.cast(pl.String).str.contains(_WAIT_EVENT))
    calls = trace.calls.select(*PROCESS, "tid", "name", time_ns="start_ns").filter(_col("name").is_in(names.implode()))
    if not calls.height:
        return nothing
    calls = calls.drop_nulls("time_ns").join(threads, on=(*PROCESS, "tid"), nulls_equal=True).sort("time_ns")
    launched = work.select(
        "process", "stream", "launch_ns", _col("thread").cast(pl.Int64), work=pl.int_range(pl.len(), dtype=pl.Int64)
    )
    launched = launched.drop_nulls("launch_ns").sort("launch_ns", "work")
    is_other = _col("stream") != _col("stream").shift(1)
    other = pl.when(is_other).then(_col("work").shift(1)).forward_fill().over("process")
    launched = launched.with_columns(other=other)
    first = calls.join_asof(
        launched.select("thread", "launch_ns", "work", to="stream"),
        left_on="time_ns",
        right_on="launch_ns",
        by="thread",
        strategy="forward",
        check_sortedness=False,
    )
    last = first.drop_nulls("work").join_asof(
        launched.select("process", "launch_ns", "stream", "other", last="work"),
        left_on="time_ns",
        right_on="launch_ns",
        by="process",
        check_sortedness=False,
    )
    before = pl.when(_col("stream") == _col("to")).then("other").otherwise("last")
    return last.select("work", before=before).drop_nulls()


def unexplained(work: pl.DataFrame) -> pl.DataFrame:
    """`work`: process, start_ns, end_ns, launch_ns and before_ns: the end of what it is known to have waited for."""
    rows = work.select(
        "process",
        "start_ns",
        since=pl.max_horizontal("launch_ns", "before_ns"),
        work=pl.int_range(pl.len(), dtype=pl.Int64),
    )
    rows = rows.filter(_col("start_ns") - _col("since") > CLOSE).sort("start_ns")
    ended = work if rows.height else work.clear()  # to sort all work takes long
    ended = ended.select("process", "end_ns", before=pl.int_range(pl.len(), dtype=pl.Int64)).sort("end_ns")
    rows = rows.join_asof(ended, left_on="start_ns", right_on="end_ns", by="process", check_sortedness=False)
    rows = rows.filter(_col("end_ns") > _col("since"), _col("start_ns") - _col("end_ns") <= CLOSE)
    return rows.select("work", "before")
