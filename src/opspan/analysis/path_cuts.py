"""Cuts the critical path into pieces: wherever a range, a call or a wait begins or ends on the thread of the path.

    cut(path, trace, waits, graph, at) -> the pieces: start_ns, end_ns, kind, range, work. The second result is an
        array: the row of the first piece of each process, and at the end the number of all pieces.

`path` comes from path.on_path. `at` (process, time_ns) has further moments at which to cut the path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import polars as pl

from opspan import native
from opspan.analysis.nest import THREAD_KEY, openings
from opspan.analysis.path_threads import NONE, driving
from opspan.analysis.spans import PROCESS, THREAD, within
from opspan.row_numbers import ROW_NUMBER
from opspan.tables.same import same

if TYPE_CHECKING:
    from opspan.analysis.path_graph import Graph
    from opspan.tables import Tables

_col = pl.col
OF_WORK = ("computing", "communicating", "copying", "filling")
DELAYS = ("launch", "queued")
OF_HOST = ("host", "call", "wait")
KINDS = (*OF_WORK, *DELAYS, *OF_HOST, "unknown")
KIND = pl.Enum(KINDS)


def cut(
    path: pl.DataFrame, trace: Tables, waits: pl.DataFrame, graph: Graph, at: pl.DataFrame
) -> tuple[pl.DataFrame, npt.NDArray[np.int64]]:
    path = _at_moments(path, at)
    pieces = native.cut(*_on_threads(path, trace, waits, graph.threads))
    stretch = pieces["stretch"]
    kind = pl.Series(KINDS, dtype=KIND).gather(pieces["kind"]).alias("kind")
    rows = pieces.select("start_ns", "end_ns", kind, "range", work=path["work"].gather(stretch))
    first = np.searchsorted(path["process"].to_numpy(), np.arange(graph.processes.height + 1))
    return rows, np.searchsorted(stretch.to_numpy(), first.astype(np.uint32))


def _at_moments(path: pl.DataFrame, at: pl.DataFrame) -> pl.DataFrame:
    moments = at.drop_nulls()
    inside = within(moments, "time_ns", path, ("process",))
    cuts = pl.DataFrame({"stretch": inside["stretch"], "start_ns": moments["time_ns"].gather(inside["row"])})
    begins = path.select(pl.int_range(pl.len(), dtype=ROW_NUMBER).alias("stretch"), "start_ns")
    begins = pl.concat([begins, cuts]).unique().sort("stretch", "start_ns")
    is_cut = _col("stretch") == _col("stretch").shift(-1)
    until = begins.select(end_ns=pl.when(is_cut).then(_col("start_ns").shift(-1)))["end_ns"]
    path = path[begins["stretch"]]
    return path.with_columns(begins["start_ns"], pl.coalesce(until, "end_ns").alias("end_ns"))


def _on_threads(
    path: pl.DataFrame, trace: Tables, waits: pl.DataFrame, threads: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns the path with its threads, and the spans that cut it, in this order: ranges, calls, waits."""
    ranges = openings(trace.ranges)
    others = [
        rows.select(
            *THREAD_KEY, "start_ns", "end_ns", is_async=pl.lit(False), kind=pl.lit(KINDS.index(kind), dtype=pl.UInt8)
        )
        for rows, kind in ((driving(trace.calls), "call"), (waits, "wait"))
    ]
    known = same(PROCESS, threads, *(rows for rows in (ranges, *others) if rows.height))
    key = [column for column in THREAD_KEY if column.meta.output_name() not in known]
    spans = pl.concat([ranges, *others]).select(*key, pl.exclude(THREAD))
    on = path.with_columns(_col("kind").to_physical(), thread=pl.when(_col("thread") != NONE).then("thread"))
    on = on.join(threads.select("thread", *THREAD), on="thread", how="left", maintain_order="left")
    return on.select(*key, "start_ns", "end_ns", "kind", "range"), spans
