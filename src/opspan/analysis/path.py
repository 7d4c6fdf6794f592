"""The critical path: of each moment of a run what it was that all the rest waited for.

    path(trace, times, waits, found) -> rank, pid, number, start_ns, end_ns, kind, range, work
    walk(found)               -> the path of each process, over its whole time: see Walk

A row is a piece of the path; those of a step follow each other without a gap and add up to its time. `number`: row of
`times`; `kind`: one of KINDS; `range`: row of the range that the piece belongs to, `work`: row of the work that it
is, or that it is the delay of. `found`: what path_graph.graph gives for `trace`, which must be attributed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import polars as pl

from opspan.analysis.busy import APIS
from opspan.analysis.nest import innermost
from opspan.analysis.path_threads import FOR_WORK, NONE
from opspan.analysis.spans import PROCESS, within

if TYPE_CHECKING:
    from opspan.analysis.path_graph import Graph
    from opspan.tables import Tables

_col = pl.col
_THREAD = (*PROCESS, "tid")
OF_WORK = ("computing", "communicating", "copying", "filling")
DELAYS = ("launch", "queued")
OF_HOST = ("host", "call", "wait")
KINDS = (*OF_WORK, *DELAYS, *OF_HOST, "unknown")
PIECES = {
    "process": pl.Int64,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "kind": pl.String,
    "range": pl.UInt32,
    "work": pl.UInt32,
    "thread": pl.Int64,
    "node": pl.Int64,
}


@dataclass(frozen=True)
class Walk:
    """From the last moment of each process back to its first."""

    work: npt.NDArray[np.int64]  # rows of Graph.work that are on the path
    stretches: pl.DataFrame  # thread (NONE: not known), process, start_ns, end_ns: and what threads did between


def path(trace: Tables, times: pl.DataFrame, waits: pl.DataFrame, found: Graph) -> pl.DataFrame:
    """`times`: as busy.step_times gives them; `waits`: as waits.waits does."""
    return by_step(pieces(trace, waits, found), times, found)


def by_step(whole: pl.DataFrame, times: pl.DataFrame, found: Graph) -> pl.DataFrame:
    """What of the path lies in each step."""
    numbers = found.processes.select("process", *PROCESS)
    steps = times.with_row_index("number").join(numbers, on=PROCESS, nulls_equal=True, maintain_order="left")
    parts = [pl.DataFrame(schema={**PIECES, "number": pl.UInt32})]
    asked = steps.partition_by("process", as_dict=True)
    for key, some in whole.partition_by("process", as_dict=True).items():
        if (mine := asked.get(key)) is None:
            continue
        first = some["end_ns"].search_sorted(mine["start_ns"], side="right")
        past = some["start_ns"].search_sorted(mine["end_ns"], side="left")
        places = mine.select("number", begin="start_ns", close="end_ns", place=pl.int_ranges(first, past)).explode(
            "place"
        )
        places = places.drop_nulls("place")
        cut = some[places["place"]].with_columns(
            pl.max_horizontal("start_ns", places["begin"]).alias("start_ns"),
            pl.min_horizontal("end_ns", places["close"]).alias("end_ns"),
            places["number"],
        )
        parts.append(cut.filter(_col("end_ns") > _col("start_ns")).select(parts[0].columns))
    rows = pl.concat(parts).join(numbers, on="process", how="left", maintain_order="left")
    return rows.select(*PROCESS, "number", "start_ns", "end_ns", "kind", "range", "work").sort("number", "start_ns")


def pieces(trace: Tables, waits: pl.DataFrame, found: Graph) -> pl.DataFrame:
    """The path of each process, in order: PIECES. `node`: row of Graph.work."""
    walked = walk(found)
    rows = pl.concat([on_devices(found, walked), _on_hosts(trace, waits, found, walked)])
    return rows.filter(_col("end_ns") > _col("start_ns")).sort("process", "start_ns")


def walk(found: Graph) -> Walk:
    joins, work = found.joins, found.work
    what, target, of_work, other, entry = (
        joins[name].to_numpy() for name in ("what", "target_ns", "work", "other", "entry")
    )
    last = _last_that_bound(joins)
    bound = bound_by(work)
    launch_ns, is_launched = work["launch_ns"].fill_null(0).to_numpy(), work["launch_ns"].is_not_null().to_numpy()
    start_ns, threads, entered = (work[name].to_numpy() for name in ("start_ns", "thread", "join"))
    before = bound.tolist()
    on_path: list[int] = []
    stretches: list[tuple[int, int, int, int]] = []
    done = pl.max_horizontal("main_ns", "last_ns").fill_null(_col("start_ns"))
    columns = found.processes.select("process", "start_ns", "end_ns", done, "main", "join", "last")
    for process, begin, end, at, thread, join, node in columns.iter_rows():
        stretches.append((NONE, process, at, end))  # other threads were not done yet
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
            stretches.append((thread, process, int(target[join]), at))
            if what[join] == FOR_WORK:
                node = int(of_work[join])
            else:
                thread, at, join = int(other[join]), int(target[join]), entry[join]
    schema = dict.fromkeys(("thread", "process", "start_ns", "end_ns"), pl.Int64)
    return Walk(np.array(on_path, dtype=np.int64), pl.DataFrame(stretches, schema=schema, orient="row"))


def bound_by(work: pl.DataFrame) -> npt.NDArray[np.int64]:
    """For each work the one whose end it waited for last; NONE: it was the launch, or nothing is known."""
    ends = work["end_ns"].gather(work["before"].set(work["before"] == NONE, None))
    is_launched = (work["launch_ns"] > ends).fill_null(value=False)
    return work["before"].set(is_launched, NONE).to_numpy()


def _last_that_bound(joins: pl.DataFrame) -> npt.NDArray[np.int64]:
    """For each join of a thread the last one, until then, that did not wait for nothing."""
    numbered = joins.select("thread", "is_last").with_row_index("number")
    bound = numbered.with_columns(pl.when("is_last").then("number").cast(pl.Int64))
    found = bound.select(_col("number").forward_fill().over("thread").fill_null(NONE))
    return found.to_series().to_numpy()


def on_devices(found: Graph, walked: Walk) -> pl.DataFrame:
    work = found.work
    rows = work[walked.work].with_columns(node=walked.work, bound=bound_by(work)[walked.work])
    ends = work["end_ns"].gather(rows["bound"].set(rows["bound"] == NONE, None))
    rows = rows.with_columns(
        since=pl.coalesce(ends, "launch_ns"),
        delay=pl.when(_col("launch_ns").is_null())
        .then(pl.lit("unknown"))
        .when(_col("bound") == NONE)
        .then(pl.lit("launch"))
        .otherwise(pl.lit("queued")),
    )
    same: dict[str, str | pl.Expr] = {
        "range": "range",
        "work": "row",
        "thread": pl.lit(NONE, dtype=pl.Int64),
        "node": "node",
    }
    ran = rows.select("process", "start_ns", "end_ns", kind="what", **same)
    delayed = rows.select("process", start_ns="since", end_ns="start_ns", kind="delay", **same)
    rows = pl.concat([ran, delayed.drop_nulls("start_ns")])
    return rows.select(_col(name).cast(dtype) for name, dtype in PIECES.items())


def _on_hosts(trace: Tables, waits: pl.DataFrame, found: Graph, walked: Walk) -> pl.DataFrame:
    late = walked.stretches.filter(_col("end_ns") > _col("start_ns"))
    late = late.join(found.threads.select("thread", *_THREAD), on="thread", how="left", maintain_order="left")
    unknown = late.filter(_col("thread") == NONE).with_columns(kind=pl.lit("unknown"))
    late = late.filter(_col("thread") != NONE).with_row_index("stretch")
    ranges = trace.ranges.select(*_THREAD, "start_ns", "end_ns", "is_mark", "is_async")
    calls = driving(trace.calls).with_columns(is_async=pl.lit(False))
    waiting = waits.select(*_THREAD, "start_ns", "end_ns", is_async=pl.lit(False))
    whole = (ranges.filter(~_col("is_mark").fill_null(value=False)), calls, waiting)
    changes = pl.concat(frame.select(*_THREAD, time_ns=name) for frame in whole for name in ("start_ns", "end_ns"))
    changes = changes.drop_nulls("time_ns")
    inside = within(changes, "time_ns", late, _THREAD)
    begins = late.select(time_ns="start_ns", stretch="stretch")
    between = pl.DataFrame({"time_ns": changes["time_ns"].gather(inside["row"]), "stretch": inside["stretch"]})
    cuts = pl.concat([begins, between]).sort("stretch", "time_ns")
    following = _col("stretch").shift(-1) == _col("stretch")
    ends = late["end_ns"].gather(cuts["stretch"])
    cuts = cuts.with_columns(until=pl.when(following).then(_col("time_ns").shift(-1)).otherwise(ends))
    cuts = cuts.filter(_col("until") > _col("time_ns"))
    cuts = cuts.with_columns(late[name].gather(cuts["stretch"]) for name in ("process", "thread", *_THREAD))
    cuts = cuts.with_columns(range=innermost(ranges, cuts), call=innermost(calls, cuts), wait=innermost(waiting, cuts))
    kind = (
        pl.when(_col("wait").is_not_null())
        .then(pl.lit("wait"))
        .when(_col("call").is_not_null())
        .then(pl.lit("call"))
        .otherwise(pl.lit("host"))
    )
    none = {"work": pl.lit(None, dtype=pl.UInt32), "node": pl.lit(NONE, dtype=pl.Int64)}
    known = cuts.select("process", "range", "thread", start_ns="time_ns", end_ns="until", kind=kind, **none)
    unknown = unknown.with_columns(pl.lit(None, dtype=pl.UInt32).alias("range"), **none)
    return pl.concat([known.select(*PIECES), unknown.select(*PIECES)])


def driving(calls: pl.DataFrame) -> pl.DataFrame:
    """The calls into the libraries of devices."""
    apis = calls["api"].unique().cast(pl.String)
    names = apis.filter(apis.str.contains(APIS)).cast(pl.Categorical)
    return calls.select(*_THREAD, "start_ns", "end_ns", "api").filter(_col("api").is_in(names.implode()))
