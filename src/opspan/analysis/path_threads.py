"""Finds the main thread of each process, and when threads of the host wait for each other.

    main_threads(processes, threads, ranges, calls, steps) -> process, main.
    handovers(processes, threads, ranges, calls) -> joins (see path_graph).
    at_or_before(rows, known, by) -> for each row, the last row of `known` that is not later.
    bound_by(work) -> for each row of work, the other work that it waited for last.

Two rules are assumed. If a thread other than the main thread begins to do something after it was idle, the main thread
gave it something to do. If such a thread runs autograd or launches work while the main thread does nothing, the main
thread waits for it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from opspan import native
from opspan.analysis.busy import APIS
from opspan.analysis.spans import LEAST, MOST, PROCESS, THREAD, in_order, length, only
from opspan.tables.same import unlike

_col = pl.col
NONE: Final = -1  # stands for a missing row number
_AUTOGRAD = ("backward", "engine")
# The reasons of joins. Joins at the same time are in the order of these numbers.
FOR_WORK: Final = 0
FOR_THREAD: Final = 1  # this thread waited until another thread was done
BEGUN: Final = 2  # the main thread gave this thread something to do
FOR_ROOM: Final = 3  # a launch of this thread waited until work began, which made room in the full launch queue
JOINS = dict.fromkeys("thread process time_ns what target_ns work other own_ns".split(), pl.Int64)


def at_or_before(rows: pl.DataFrame, known: pl.DataFrame, by: str, *, strict: bool = False) -> pl.Series:
    """Returns, for each row, the row number of the last row of `known` that has the same value in `by` and is not later
    (time_ns). Returns NONE if there is none. `known` must be in order of `by` and time. With `strict` only earlier rows
    count."""
    column = _col(by).fill_null(NONE).cast(pl.Int64).alias("by")
    return native.latest(
        rows.select(column, _col("time_ns").cast(pl.Int64)),
        known.select(column, _col("time_ns").cast(pl.Int64)),
        strict=strict,
    )


def driving(calls: pl.DataFrame) -> pl.DataFrame:
    """Returns the calls of libraries that drive devices, such as CUDA."""
    return only(calls.select(*THREAD, "start_ns", "end_ns", "api"), is_driving(calls["api"]))


def is_driving(api: pl.Series) -> pl.Series:
    apis = api.unique().cast(pl.String)
    return api.is_in(apis.filter(apis.str.contains(APIS)).cast(pl.Categorical).implode()).fill_null(value=False)


def thread_numbers(rows: pl.DataFrame, threads: pl.DataFrame, by: tuple[str, ...] = THREAD) -> npt.NDArray[np.int64]:
    """Returns, for each row, the row of its thread in `threads` (see path_graph.Graph), or NONE."""
    key = unlike(by, rows, threads)
    if not key:
        return np.zeros(rows.height, dtype=np.int64)
    if key == ["tid"] and not rows["tid"].null_count() and threads.height:
        in_order = threads.sort("tid")
        place = np.searchsorted(in_order["tid"].to_numpy(), rows["tid"].to_numpy())
        place = np.minimum(place, threads.height - 1)
        is_there = in_order["tid"].to_numpy()[place] == rows["tid"].to_numpy()
        return np.where(is_there, in_order["thread"].to_numpy()[place], NONE)
    numbers = rows.select(key).join(threads, on=key, how="left", nulls_equal=True, maintain_order="left")["thread"]
    return numbers.fill_null(NONE).to_numpy()


def main_threads(
    processes: pl.DataFrame, threads: pl.DataFrame, ranges: pl.DataFrame, calls: pl.DataFrame, steps: pl.DataFrame
) -> pl.DataFrame:
    """Returns the main thread of each process. It is the thread on which most steps end. If this does not decide, it is
    the thread whose tid is the pid. If there is no such thread, it is the thread that was in ranges longest (without
    backward). If this does not decide either, it is the thread with most calls."""
    if threads["process"].is_unique().all():
        return threads.select("process", main="thread")
    ends = steps.select(*PROCESS, "end_ns").join(processes.select("process", *PROCESS), on=PROCESS, nulls_equal=True)
    on_steps = ranges.filter(_col("end_ns").is_in(ends["end_ns"].unique().implode())).join(
        ends.select("process", "end_ns").unique(), on=["process", "end_ns"], how="semi"
    )
    columns = ranges.select("thread", "start_ns", "end_ns", "depth", "kind")
    outside = columns.filter(_col("depth") == 0, ~_col("kind").is_in(_AUTOGRAD).fill_null(value=False))
    known = [
        on_steps.group_by("thread").agg(steps=pl.len()),
        outside.group_by("thread").agg(ns=length().cast(pl.Int128).sum()),
        calls.group_by("thread").agg(calls=pl.len()),
    ]
    rows = threads
    for more in known:
        rows = rows.join(more, on="thread", how="left", maintain_order="left")
    rows = rows.with_columns(_col("steps", "ns", "calls").fill_null(0), is_named=_col("tid") == _col("pid"))
    rows = rows.sort("process", "steps", "is_named", "ns", "calls", "thread", descending=[False] + [True] * 4 + [False])
    return rows.unique("process", keep="first", maintain_order=True).select("process", main="thread")


def handovers(
    processes: pl.DataFrame, threads: pl.DataFrame, ranges: pl.DataFrame, calls: pl.DataFrame
) -> pl.DataFrame:
    """Returns the joins of main threads with other threads. `calls` has a column has_work: whether the call launched
    work."""
    none = pl.DataFrame(schema=JOINS)
    main = processes["main"]
    others = threads.filter(~_col("thread").is_in(main.implode()))
    if not others.height:
        return none
    is_other = _col("thread").is_in(others["thread"].implode())
    is_autograd = _col("kind").is_in(_AUTOGRAD).fill_null(value=False)
    items = pl.concat(
        [
            ranges.filter(is_other, _col("depth") == 0).select(
                "process", "thread", "start_ns", "end_ns", is_waited_for=is_autograd
            ),
            calls.filter(is_other, _col("range").is_null()).select(
                "process", "thread", "start_ns", "end_ns", is_waited_for="has_work"
            ),
        ]
    ).sort("thread", "start_ns", "end_ns")
    mains = processes.select("process", "main").filter(_col("main") != NONE)
    did = [only(frame, _col("thread").is_in(mains["main"].implode())) for frame in (ranges, calls)]
    begins = mains.select("process", time_ns=pl.lit(LEAST, dtype=pl.Int64))
    known = [rows.select("process", time_ns=name) for rows in did for name in ("start_ns", "end_ns")]
    times = in_order(pl.concat([begins, *known]).sort("time_ns"), "process")
    return _handover_joins(items.join(mains, on="process", maintain_order="left"), times)


def _handover_joins(items: pl.DataFrame, times: pl.DataFrame) -> pl.DataFrame:
    """Returns the joins. `items` are the ranges and calls of other threads, in order of thread and time. `times` are
    the moments at which main threads began or ended something, in order of process and time. The first time of each
    process is LEAST."""
    place = at_or_before(items.select("process", time_ns="start_ns"), times, "process")
    is_same = _col("process") == _col("process").shift(-1)
    idle = times.select(since="time_ns", until=pl.when(is_same).then(_col("time_ns").shift(-1)))
    ended = _col("end_ns").cum_max().shift(1).over("thread")
    marked = items.hstack(idle[place]).with_columns(_col("until").fill_null(MOST), ended=ended)
    stretches = marked.group_by("thread", "since", maintain_order=True).agg(
        _col("start_ns").min(),
        _col("end_ns").max(),
        _col("process", "main", "until", "ended").first(),
        _col("is_waited_for").any(),
    )
    begun = stretches.filter(_col("ended").is_null() | (_col("ended") < _col("start_ns")))
    waited = stretches.filter(
        _col("is_waited_for"),
        _col("since") > LEAST,
        _col("until") < MOST,
        _col("end_ns") <= _col("until"),
        _col("end_ns") > _col("start_ns"),
    )
    no_work, for_thread, begins = (pl.lit(number, dtype=pl.Int64) for number in (NONE, FOR_THREAD, BEGUN))
    return pl.concat(
        [
            waited.select(
                "process",
                thread="main",
                time_ns="until",
                what=for_thread,
                work=no_work,
                target_ns="end_ns",
                other="thread",
                own_ns="since",
            ),
            begun.select(
                "process",
                "thread",
                time_ns="start_ns",
                what=begins,
                work=no_work,
                target_ns="start_ns",
                other="main",
                own_ns=_col("ended").fill_null(LEAST),
            ),
        ]
    ).select(*JOINS)


def bound_by(work: pl.DataFrame) -> npt.NDArray[np.int64]:
    """Returns, for each row of work, the other work that it waited for last. It is NONE if no such work is known, or if
    that work ended before the launch."""
    ends = work["end_ns"].gather(work["before"].set(work["before"] == NONE, None))
    is_launched = (work["launch_ns"] > ends).fill_null(value=False)
    return work["before"].set(is_launched, NONE).to_numpy()
