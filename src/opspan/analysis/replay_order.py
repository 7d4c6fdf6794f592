"""Prepares replays. A replay (replay.py) computes when the work of a path_graph.Graph would start and end after a
change. The order of joins and work, and the measured delays, are the same for every change, so this module computes
them once for several replays.

order_of(processes, work, edges, joins) -> Order, from the frames of a path_graph.Graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from opspan.analysis.path_threads import FOR_ROOM, NONE, at_or_before, bound_by

_col = pl.col
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Order:
    """Arrays that a replay needs. The arrays from `bound` to `other` have a value for each row of work. The arrays from
    `own_entry` on have a value for each join."""

    # A row of `work`: of the work that this work waited for, the one that ended last. NONE if there is none, or if it
    # ended before this work was launched (path_threads.bound_by).
    bound: Ints
    delay_ns: Ints  # time from the end of `bound` to the start of the work; without `bound`, time from the launch
    begun_ns: Ints  # when the process of the work began
    entered: Ints  # the last join of the launching thread before the launch
    is_launched: Flags  # whether the launch is known
    is_alone: Flags  # whether the launch is unknown, but `bound` is known
    # The other work that the work waited for, besides `bound`; NONE if there is none. If there are several, the
    # value is -1 times the number of a row in `others`: of the first row of their list.
    other: Ints
    # Linked lists, one for each row of work that waited for several others besides `bound`. Each row has `other` (a row
    # of work) and `next` (the next row of the list, or NONE). Row numbers in `others` go on after the last row of work.
    others: pl.DataFrame
    own_entry: Ints  # the last join of the thread until own_ns (see Graph.joins)
    joins: Ints  # row numbers of joins; each join comes after all joins that it waited for
    work_between: Ints  # for each of `joins`: how many pieces of work begin between the previous join and this one


def order_of(processes: pl.DataFrame, work: pl.DataFrame, edges: pl.DataFrame, joins: pl.DataFrame) -> Order:
    start_ns, bound = work["start_ns"].to_numpy(), bound_by(work)
    begun_ns = processes["start_ns"].gather(work["process"]).to_numpy()
    ends = work["end_ns"].gather(pl.Series(bound).set(pl.Series(bound) == NONE, None))
    since = ends.zip_with(ends.is_not_null(), work["launch_ns"]).fill_null(strategy="zero")
    is_launched = work["launch_ns"].is_not_null().to_numpy()
    since_ns = np.where(~is_launched & (bound == NONE), begun_ns, since.to_numpy())
    other, others = _others(edges, bound)
    # At equal times, joins come before work, and joins are in the order of their reasons.
    in_order = joins.select("time_ns", "what", "work", node=pl.int_range(pl.len(), dtype=pl.Int64))
    in_order = in_order.sort("time_ns", "what", "node")
    until = np.searchsorted(start_ns, in_order["time_ns"].to_numpy(), side="left")
    # A wait for room in the launch queue ends at the moment when work begins. This work must come before the join.
    made_room = np.where((in_order["what"] == FOR_ROOM).to_numpy(), in_order["work"].to_numpy() + 1, 0)
    until = np.maximum.accumulate(np.maximum(until, made_room))
    return Order(
        bound=bound,
        delay_ns=start_ns - since_ns,
        begun_ns=begun_ns,
        entered=np.where(is_launched, work["join"].to_numpy(), NONE),
        is_launched=is_launched,
        is_alone=~is_launched & (bound != NONE),
        other=other,
        others=others,
        own_entry=at_or_before(joins.select("thread", time_ns="own_ns"), joins, "thread").to_numpy(),
        joins=in_order["node"].to_numpy(),
        work_between=np.diff(until, prepend=0),
    )


def _others(edges: pl.DataFrame, bound: Ints) -> tuple[Ints, pl.DataFrame]:
    edges = edges.filter(_col("before") != pl.Series(bound).gather(edges["work"]))
    other = np.full(bound.size, NONE, dtype=np.int64)
    other[edges["work"].to_numpy()] = edges["before"].to_numpy()
    several = edges.filter(_col("work").is_duplicated()).sort("work").with_row_index("row", bound.size)
    several = several.with_columns(_col("row").cast(pl.Int64))
    first = several.unique("work", keep="first", maintain_order=True)
    other[first["work"].to_numpy()] = -first["row"].to_numpy()
    following = pl.when(_col("work") == _col("work").shift(-1)).then(_col("row") + 1).otherwise(NONE)
    return other, several.select(other=_col("before").cast(pl.Int64), next=following)
