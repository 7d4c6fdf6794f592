"""Finds the critical path: for each moment of a run, the work, call or delay that everything else waited for.

    path(trace, times, waits, graph) -> a row for each piece of the path of a step: rank, pid, number, start_ns, end_ns,
        kind, range, work.
    walk(graph) -> Walk: the path of each process, from its end back to its start.

The pieces of a step follow each other without a gap and add up to the time of the step. `number` is the row of the step
in `times`. `kind` is one of path_cuts.KINDS. `range` is the row of the range that the piece belongs to. `work` is the
row of the work that runs in the piece, or is delayed in it. `graph` comes from path_graph.graph for `trace`, which must
have gone through `attribute`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import polars as pl

from opspan.analysis.path_cuts import KIND, cut
from opspan.analysis.path_threads import FOR_ROOM, FOR_WORK, NONE, at_or_before, bound_by
from opspan.analysis.spans import PROCESS
from opspan.row_numbers import ROW_NUMBER
from opspan.tables.same import is_one

if TYPE_CHECKING:
    from opspan.analysis.path_graph import Graph
    from opspan.tables import Tables

_col = pl.col
STRETCHES: dict[str, pl.DataType | type[pl.DataType]] = {
    "process": pl.Int64,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "kind": KIND,
    "range": ROW_NUMBER,
    "work": ROW_NUMBER,
    "thread": pl.Int64,
    "node": pl.Int64,
}


@dataclass(frozen=True)
class Walk:
    """The path of each process, from its last moment back to its first."""

    work: npt.NDArray[np.int64]  # rows of Graph.work that are on the path
    stretches: pl.DataFrame  # the parts of the path on threads: thread (NONE if unknown), process, start_ns, end_ns


def path(trace: Tables, times: pl.DataFrame, waits: pl.DataFrame, graph: Graph) -> pl.DataFrame:
    """Returns the path of each step. `times` comes from busy.step_times, `waits` from waits.waits."""
    numbers = graph.processes.select("process", *PROCESS)
    steps = times.with_row_index("number").join(numbers, on=PROCESS, nulls_equal=True, maintain_order="left")
    at = pl.concat([steps.select("process", time_ns=name) for name in ("start_ns", "end_ns")])
    pieces, first = cut(on_path(graph, walk(graph)), trace, waits, graph, at)
    return _by_step(pieces, first, steps)


def _by_step(pieces: pl.DataFrame, bounds: npt.NDArray[np.int64], steps: pl.DataFrame) -> pl.DataFrame:
    """Returns the pieces in each step. The pieces were cut at the start and end of each step, so each lies fully inside
    or outside of a step. `bounds` has the row of the first piece of each process, and at its end the number of all
    pieces."""
    mine = steps.drop_nulls("process")
    processes = np.repeat(np.arange(bounds.size - 1), np.diff(bounds))
    known = pieces.select("start_ns", "end_ns", process=pl.Series(processes))
    begins = mine.select("process", time_ns="start_ns")
    ended = at_or_before(begins, known.select("process", time_ns="end_ns"), "process").to_numpy()
    ends = mine.select("process", time_ns="end_ns")
    begun = at_or_before(ends, known.select("process", time_ns="start_ns"), "process", strict=True).to_numpy()
    since = bounds[mine["process"].to_numpy()]
    first = np.where(ended == NONE, since, ended + 1)
    count = np.maximum(np.where(begun == NONE, since, begun + 1) - first, 0)
    number = mine["number"].cast(pl.Int64).to_numpy()
    in_order = np.argsort(number, kind="stable")
    first, count, number = first[in_order], count[in_order], number[in_order]
    # If the steps follow each other without a gap, their pieces are one slice.
    if (first[1:] == first[:-1] + count[:-1]).all():
        rows = pieces.slice(int(first[0]) if first.size else 0, int(count.sum()))
    else:
        rows = pieces[np.arange(count.sum()) + np.repeat(first - np.cumsum(count) + count, count)]
    rows = rows.with_columns(number=np.repeat(number.astype(np.uint32), count))
    known = steps.drop_nulls("process").sort("number")
    if known.height and is_one(known, *PROCESS):
        rows = rows.with_columns(pl.lit(known[name][0], dtype=known.schema[name]).alias(name) for name in PROCESS)
    else:
        of_step = pl.Series(np.repeat(np.arange(count.size, dtype=np.uint32), count))
        rows = rows.with_columns(known[name].gather(of_step) for name in PROCESS)
    return rows.select(*PROCESS, "number", "start_ns", "end_ns", "kind", "range", "work")


def walk(graph: Graph) -> Walk:
    joins, work = graph.joins, graph.work
    what, target, of_work, other, entry = (
        joins[name].to_numpy() for name in ("what", "target_ns", "work", "other", "entry")
    )
    last = _last_that_bound(joins)
    bound = bound_by(work)
    launch_ns, is_launched = work["launch_ns"].fill_null(0).to_numpy(), work["launch_ns"].is_not_null().to_numpy()
    start_ns, end_ns, threads, entered = (work[name].to_numpy() for name in ("start_ns", "end_ns", "thread", "join"))
    before = bound.tolist()
    on_path: list[int] = []
    stretches: list[tuple[int, int, int, int]] = []
    done = pl.max_horizontal("main_ns", "last_ns").fill_null(_col("start_ns"))
    columns = graph.processes.select("process", "start_ns", "end_ns", done, "main", "join", "last")
    for process, begin, end, at, thread, join, node in columns.iter_rows():
        # from `at` to `end`, neither the main thread nor a device was seen to do anything
        stretches.append((NONE, process, at, end))
        while True:
            if node != NONE:
                while node != NONE:
                    on_path.append(node)
                    head, node = node, before[node]
                if not is_launched[head]:
                    stretches.append((NONE, process, begin, int(start_ns[head])))
                    break
                thread, at, join = int(threads[head]), int(launch_ns[head]), entered[head]
            join = last[join] if join != NONE else NONE
            if join == NONE:
                stretches.append((thread, process, begin, at))
                break
            # If a launch waited for room in the queue, it waited until the work `first` began. The path goes on with
            # what `first` waited for: other work, or its own launch.
            if what[join] == FOR_ROOM:
                first = int(of_work[join])
                node = before[first]
                stretches.append((thread, process, int(launch_ns[first] if node == NONE else end_ns[node]), at))
                thread, at, join = int(threads[first]), int(launch_ns[first]), entered[first]
                continue
            stretches.append((thread, process, int(target[join]), at))
            if what[join] == FOR_WORK:
                node = int(of_work[join])
            else:
                thread, at, join = int(other[join]), int(target[join]), entry[join]
    schema = dict.fromkeys(("thread", "process", "start_ns", "end_ns"), pl.Int64)
    return Walk(np.array(on_path, dtype=np.int64), pl.DataFrame(stretches, schema=schema, orient="row"))


def _last_that_bound(joins: pl.DataFrame) -> npt.NDArray[np.int64]:
    """Returns, for each join, the last join of its thread, up to this one, at which the thread really waited. A join is
    a moment at which a thread may wait (see path_graph)."""
    bound = joins.select("thread", "is_last").with_row_index("number")
    bound = bound.with_columns(pl.when("is_last").then("number").cast(pl.Int64))
    return bound.select(_col("number").forward_fill().over("thread").fill_null(NONE)).to_series().to_numpy()


def _on_devices(graph: Graph, walked: Walk) -> pl.DataFrame:
    work = graph.work
    rows = work[walked.work].with_columns(node=walked.work, bound=bound_by(work)[walked.work])
    ends = work["end_ns"].gather(rows["bound"].set(rows["bound"] == NONE, None))
    rows = rows.with_columns(
        since=pl.coalesce(ends, "launch_ns"),
        delay=pl.when(_col("launch_ns").is_null())
        .then(pl.lit("unknown", dtype=KIND))
        .when(_col("bound") == NONE)
        .then(pl.lit("launch", dtype=KIND))
        .otherwise(pl.lit("queued", dtype=KIND)),
    )
    same: dict[str, str | pl.Expr] = {
        "range": "range",
        "work": "row",
        "thread": pl.lit(NONE, dtype=pl.Int64),
        "node": "node",
    }
    ran = rows.select("process", "start_ns", "end_ns", kind=_col("what").cast(KIND), **same)
    delayed = rows.select("process", start_ns="since", end_ns="start_ns", kind="delay", **same)
    rows = pl.concat([ran, delayed.drop_nulls("start_ns")])
    return rows.select(_col(name).cast(dtype) for name, dtype in STRETCHES.items())


def on_path(graph: Graph, walked: Walk) -> pl.DataFrame:
    """Returns the path of each process in order, with the columns STRETCHES. `node` is the row of Graph.work."""
    none = {name: pl.lit(None, dtype=ROW_NUMBER) for name in ("range", "work")}
    is_known = _col("thread") != NONE
    kind = pl.when(is_known).then(pl.lit("host", dtype=KIND)).otherwise(pl.lit("unknown", dtype=KIND))
    hosts = walked.stretches.with_columns(kind=kind, node=pl.lit(NONE, dtype=pl.Int64), **none)
    rows = pl.concat([_on_devices(graph, walked), hosts.select(*STRETCHES)])
    return rows.filter(_col("end_ns") > _col("start_ns")).sort("process", "start_ns")
