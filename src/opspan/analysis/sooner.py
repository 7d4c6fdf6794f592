"""How much sooner processes would have been done without something: the graph of `path`, replayed without it.

    sooner(found, quick, took, unwaited) -> rank, pid, saved_ns: of each process
    released(found, is_paced) -> the graph that it takes

    quick       rank, pid, tid, start_ns, end_ns, factor: stretches in which a thread takes so many times its time
    took        for each row of Graph.work by what factor its time changes
    unwaited    rank, pid, tid, end_ns: calls that no longer wait for work

Files seldom say which events streams wait for. Work that had been launched, whose stream was free, and that begins as
other work of the process ends, within CLOSE, is taken to have waited for that. Work whose launch is not in the file,
and that does not follow other work as closely, is taken to have been launched when it began, and begins no sooner.

What waits for something else then waits for that: a device that has work in its queue loses nothing by a host that is
late, and a host that need not wait for its device goes on ahead of it, as far as a full queue is known to let it.
Each process is replayed by itself: what it waited for others in collectives, it waits again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import polars as pl

from opspan.analysis.path_threads import FOR_WORK, NONE
from opspan.analysis.replay import Host, Weights, fitting, replay
from opspan.analysis.spans import PROCESS

if TYPE_CHECKING:
    from opspan.analysis.path_graph import Graph

_col = pl.col
_THREAD = (*PROCESS, "tid")
CLOSE = 20_000  # ns; work that waits for an event of another stream begins some 10 us after it


def sooner(
    found: Graph,
    quick: pl.DataFrame | None = None,
    took: npt.NDArray[np.float64] | None = None,
    unwaited: pl.DataFrame | None = None,
) -> pl.DataFrame:
    same = np.ones(found.work.height)
    weights = Weights(same if took is None else took, same, 1.0)
    is_free = None if unwaited is None else _joins_of(unwaited, found)
    replayed = replay(weights, Host(_cuts(quick, found)), found, is_free)
    after = fitting(replayed.ends)
    return found.processes.select(*PROCESS, saved_ns=_col("end_ns") - after)


def _cuts(quick: pl.DataFrame | None, found: Graph) -> pl.DataFrame:
    """Where stretches overlap, the one that begins last counts."""
    if quick is None or not quick.height:
        return pl.DataFrame(schema={"thread": pl.Int64, "time_ns": pl.Int64, "factor": pl.Float64})
    rows = quick.join(found.threads, on=_THREAD, nulls_equal=True).sort("thread", "start_ns")
    rows = rows.with_columns(
        end_ns=pl.min_horizontal("end_ns", _col("start_ns").shift(-1).over("thread").fill_null(_col("end_ns")))
    )
    begins = rows.select("thread", time_ns="start_ns", factor=_col("factor").cast(pl.Float64), order=1)
    ends = rows.select("thread", time_ns="end_ns", factor=1.0, order=0)
    both = pl.concat([begins, ends]).sort("thread", "time_ns", "order")
    return both.unique(("thread", "time_ns"), keep="last", maintain_order=True).drop("order")


def _joins_of(calls: pl.DataFrame, found: Graph) -> pl.Series:
    """For each join whether it is the end of one of these calls."""
    known = calls.join(found.threads, on=_THREAD, nulls_equal=True).select("thread", time_ns="end_ns", of=True)
    rows = found.joins.join(known.unique(), on=["thread", "time_ns"], how="left", maintain_order="left")
    return rows.select(_col("of").fill_null(value=False) & (_col("what") == FOR_WORK)).to_series()


def released(found: Graph, is_paced: pl.Series) -> Graph:
    """`is_paced`: for each row of Graph.work whether the host may have set the pace of its device: then work of unknown
    launch is never taken to have been launched before."""
    work = found.work
    ends = pl.lit(work["end_ns"].gather(work["before"].set(work["before"] == NONE, None)))
    is_late = pl.lit(is_paced) | (_col("start_ns") - ends > CLOSE).fill_null(value=True)
    launch_ns = pl.when(_col("launch_ns").is_null() & is_late).then("start_ns").otherwise("launch_ns")
    work = work.with_columns(launch_ns=launch_ns)
    ended = work.select("process", "end_ns", other=pl.int_range(pl.len(), dtype=pl.Int64)).sort("end_ns")
    since = pl.max_horizontal("launch_ns", ends)
    rows = work.select("process", "start_ns", since=since, work=pl.int_range(pl.len(), dtype=pl.Int64))
    rows = rows.filter(_col("start_ns") - _col("since") > CLOSE).sort("start_ns")
    rows = rows.join_asof(ended, left_on="start_ns", right_on="end_ns", by="process", check_sortedness=False)
    rows = rows.filter(_col("end_ns") > _col("since"), _col("start_ns") - _col("end_ns") <= CLOSE)
    edges = rows.select("work", before="other").cast(dict(found.edges.schema))
    latest = work["before"].scatter(rows["work"], rows["other"].cast(work.schema["before"]))
    work = work.with_columns(before=latest)
    return replace(found, work=work, edges=pl.concat([found.edges, edges]).unique().sort("work", "before"))
