"""Finds the launches that had to wait for room in a full launch queue, and the work whose start made room.

    rooms(calls, place, names, work, waits) -> joins (waits of threads, see path_graph) with the reason FOR_ROOM.

A driver keeps a limited number of launches whose work has not begun. If the queue is full, a launch does not return
before the work of an earlier launch begins. The limit is not in a trace, but one can see when it was reached: while the
host goes on launching, the number of launches whose work has not begun stays the same, and each launch takes longer
than usual for its name. If a queue was never full, its limit is unknown, and no limit is assumed.
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
# The depth of a queue is the number of launches whose work has not begun. CUDA makes a launch wait at a depth of 1,017
# to 1,021, because it makes room for several launches at once. So depths near the largest depth count as full, too. On
# an H100 (CUDA 13.0) the limit is 1,021, also for copies, fills and graphs, and each stream has its own queue.
_NEAR = 50  # a queue counts as full if its depth is at most a fiftieth below its largest depth
_LEAST_DEPTH = 8
_LONG = 4  # a launch is long if it takes more than 4 times the usual time of launches of its name
_LEAST_WAITS = 8  # the largest depth is a limit only if at least this many launches at a full queue are long
_FEWEST = _LEAST_DEPTH + _LEAST_WAITS  # a queue with fewer launches cannot be judged
# The largest depth is a limit only if launches are long 5 times as often at a full queue as elsewhere, because launches
# are also long for other reasons.
_MORE_OFTEN = 5


def rooms(
    calls: pl.DataFrame, place: pl.Series, names: pl.Series, work: pl.DataFrame, waits: pl.DataFrame
) -> pl.DataFrame:
    """Returns the joins for all full queues. `calls`, `place` and `work` come from path_graph; `names` are the names of
    all calls. Calls in `waits` are left out, because they have joins already."""
    every = work.select(
        "process", "call", "device_id", "stream", "start_ns", work=pl.int_range(pl.len(), dtype=pl.Int64)
    )
    early = every.filter(_col("call").is_null())
    launched = only(every.drop("process"), _col("call").is_not_null())
    count = np.bincount(launched["call"].to_numpy(), minlength=len(names))
    has_several = (count > 1).any()  # one call launches all the work of a CUDA graph
    count[waits["call"].drop_nulls().to_numpy()] = 0
    launched = only(launched, pl.Series(count[launched["call"].to_numpy()] > 0))
    launched = only(launched, launched["call"].is_first_distinct()) if has_several else launched
    known = calls.select("process", "thread", called_ns="start_ns", returned_ns="end_ns")
    rows = launched.hstack(known[place.gather(launched["call"])] if calls.height else known.clear(launched.height))
    rows = only(rows, (_col("thread") != NONE) & (_col("called_ns") <= _col("start_ns")))
    rows = rows.with_columns(names.gather(rows["call"]).to_physical().alias("name"))
    joins = []
    for device in apart(rows, ("process", "device_id")).values():
        # If the launches of one stream alone filled a queue, each stream has its own queue. Otherwise all streams of a
        # device may share a queue.
        # Streams with few launches are left out, because there may be thousands of streams.
        busy = only(device, pl.len().over("stream") >= _FEWEST)
        of_streams = [_joins_of_queue(queue, early) for queue in apart(busy, ("stream",)).values()]
        full = [queue_joins for queue_joins in of_streams if queue_joins is not None]
        if not full and device["stream"].n_unique() > 1 and (shared := _joins_of_queue(device, early)) is not None:
            full = [shared]
        joins += full
    return pl.concat(joins) if joins else pl.DataFrame(schema=JOINS)


def _joins_of_queue(rows: pl.DataFrame, early: pl.DataFrame) -> pl.DataFrame | None:
    """Returns the joins for one queue; None if the queue was never full. `early` is work without a call. If it began
    before all other work of the queue, it was launched before the recording."""
    if rows.height < _FEWEST:
        return None
    if early.height:
        key = ["process", "device_id", "stream"]
        early = early.join(rows.select(key).unique(), on=key).filter(_col("start_ns") < rows["start_ns"].min())
    begins = pl.concat([part.select("start_ns", "work") for part in (early, rows)])  # sorted, because `work` is sorted
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
    # `releases` has the work whose start made room for each launch. If the launch waited, this is the last work that
    # began before the launch returned. Otherwise it is the work that was launched `limit` launches earlier.
    done = np.minimum(called + usual, returned)
    last = begins["start_ns"].to_numpy()[np.maximum(begun - 1, 0)]
    has_waited = is_full & (begun > 0) & (last > done)
    releases = np.where(has_waited, begun - 1, number - limit)
    by = begins[np.maximum(releases, 0)]
    is_bounded = (releases >= 0) & (has_waited | (by["start_ns"].to_numpy() < returned))
    joins = rows.select(
        "process",
        "thread",
        time_ns="returned_ns",
        what=pl.lit(FOR_ROOM, dtype=pl.Int64),
        target_ns=by["start_ns"],
        work=by["work"],
        other=pl.lit(NONE, dtype=pl.Int64),
        # own_ns (when the thread had nothing else left to do) must be before time_ns, the end of the join
        own_ns=pl.Series(np.minimum(done, returned - 1)),
    )
    return joins.filter(pl.Series(is_bounded)).select(_col(name).cast(dtype) for name, dtype in JOINS.items())


def _usual(rows: pl.DataFrame, is_full: Flags) -> Ints:
    """Returns, for each launch, how long launches of its name usually take if the queue is not full."""
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
