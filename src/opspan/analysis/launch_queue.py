"""Launch queues that were full: which launches had to wait for room, and what made it.

    rooms(calls, place, names, work, waits) -> joins, as path_graph has them, of what FOR_ROOM

A driver keeps a limited number of launches whose work has not begun. A launch that finds the queue full does not return
before the work of an earlier one begins. The limit is not in a trace, but where it was reached it shows: however long
the host goes on launching, the number of launches whose work has not begun stays at one depth, and the launches there
take longer than others of their name. A queue that was never full has no known limit, and none is assumed.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from opspan.analysis.path_threads import FOR_ROOM, JOINS, NONE
from opspan.analysis.spans import apart, in_order, only

_col = pl.col
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
# A launch of CUDA's waits where 1,017 to 1,021 of its stream have not begun: room is made for several at once. On an
# H100 (CUDA 13.0) it is 1,021, also for copies, fills and launches of whole graphs; other streams do not wait.
_NEAR = 50  # a depth of which less than a fiftieth is missing to the deepest counts as full
_LEAST_DEPTH = 8
_LONG = 4  # times the usual time of a launch of that name: longer than launches differ by
_LEAST_WAITS = 8  # long launches at a full queue
_FEWEST = _LEAST_DEPTH + _LEAST_WAITS  # launches
_MORE_OFTEN = 5  # times as often at a full queue as elsewhere: other things make launches long as well


def rooms(
    calls: pl.DataFrame, place: pl.Series, names: pl.Series, work: pl.DataFrame, waits: pl.DataFrame
) -> pl.DataFrame:
    """`calls`, `place`, `work`: as path_graph has them; `names`: of all calls. Calls that wait for work have joins
    already."""
    every = work.select(
        "process", "call", "device_id", "stream", "start_ns", work=pl.int_range(pl.len(), dtype=pl.Int64)
    )
    early = every.filter(_col("call").is_null())
    launched = only(every.drop("process"), _col("call").is_not_null())
    count = np.bincount(launched["call"].to_numpy(), minlength=len(names))
    has_several = (count > 1).any()  # a graph has one call for all that it runs
    count[waits["call"].drop_nulls().to_numpy()] = 0
    launched = only(launched, pl.Series(count[launched["call"].to_numpy()] > 0))
    launched = only(launched, launched["call"].is_first_distinct()) if has_several else launched
    known = calls.select("process", "thread", called_ns="start_ns", returned_ns="end_ns")
    rows = launched.hstack(known[place.gather(launched["call"])] if calls.height else known.clear(launched.height))
    rows = only(rows, (_col("thread") != NONE) & (_col("called_ns") <= _col("start_ns")))
    rows = rows.with_columns(names.gather(rows["call"]).to_physical().alias("name"))
    found = []
    for device in apart(rows, ("process", "device_id")).values():
        # Each stream has a queue of its own where the trace shows that; else all streams of a device share one.
        busy = only(device, pl.len().over("stream") >= _FEWEST)  # there may be thousands of streams
        of_streams = [_of_queue(queue, early) for queue in apart(busy, ("stream",)).values()]
        full = [joins for joins in of_streams if joins is not None]
        if not full and device["stream"].n_unique() > 1 and (shared := _of_queue(device, early)) is not None:
            full = [shared]
        found += full
    return pl.concat(found) if found else pl.DataFrame(schema=JOINS)


def _of_queue(rows: pl.DataFrame, early: pl.DataFrame) -> pl.DataFrame | None:
    """`early`: work without a call. What began before all other work of the queue was launched before the recording."""
    if rows.height < _FEWEST:
        return None
    if early.height:
        early = early.join(
            rows.select("process", "device_id", "stream").unique(), on=["process", "device_id", "stream"]
        )
        early = early.filter(_col("start_ns") < rows["start_ns"].min())
    begins = pl.concat([part.select("start_ns", "work") for part in (early, rows)])  # in order, as work is
    rows = in_order(rows, "called_ns")
    called, returned = rows["called_ns"].to_numpy(), rows["returned_ns"].to_numpy()
    number = np.arange(rows.height) + early.height
    begun = np.searchsorted(begins["start_ns"].to_numpy(), returned, side="right")
    depth = number + 1 - begun
    limit = int(depth.max())
    is_full = depth >= limit - max(limit // _NEAR, 1)
    if limit < _LEAST_DEPTH:
        return None
    usual = _usual(rows, is_full)
    if not _is_limit(returned - called, usual, is_full):
        return None
    # A launch that waited was let go by the begin before its return; any other might have waited for this one.
    done = np.minimum(called + usual, returned)
    last = begins["start_ns"].to_numpy()[np.maximum(begun - 1, 0)]
    has_waited = is_full & (begun > 0) & (last > done)
    releases = np.where(has_waited, begun - 1, number - limit)
    by = begins[np.maximum(releases, 0)]
    is_bounded = (releases >= 0) & (has_waited | (by["start_ns"].to_numpy() < returned))
    return (
        rows.select(
            "process",
            "thread",
            time_ns="returned_ns",
            what=pl.lit(FOR_ROOM, dtype=pl.Int64),
            target_ns=by["start_ns"],
            work=by["work"],
            other=pl.lit(NONE, dtype=pl.Int64),
            own_ns=pl.Series(np.minimum(done, returned - 1)),  # before the join, which cannot wait for itself
        )
        .filter(pl.Series(is_bounded))
        .select(_col(name).cast(dtype) for name, dtype in JOINS.items())
    )


def _usual(rows: pl.DataFrame, is_full: Flags) -> Ints:
    """For each launch how long one of its name takes where the queue is not full."""
    took = rows.select("name", took=_col("returned_ns") - _col("called_ns"), is_full=pl.Series(is_full))
    elsewhere = _col("took").filter(~_col("is_full")).median()
    usual = pl.coalesce(elsewhere, _col("took").median()).over("name")
    return took.select(usual.cast(pl.Int64)).to_series().to_numpy()


def _is_limit(took: Ints, usual: Ints, is_full: Flags) -> bool:
    is_long = took > _LONG * usual
    at_limit, elsewhere = is_long[is_full], is_long[~is_full]
    if not elsewhere.size or at_limit.sum() < _LEAST_WAITS:
        return False
    return bool(at_limit.mean() >= _MORE_OFTEN * elsewhere.mean())
