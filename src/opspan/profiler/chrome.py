"""Makes the trace that a profile writes as a Chrome trace: with torch.profiler's members at the top, and without the
kinds of events that `activities=` leaves out."""

from __future__ import annotations

import socket
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from opspan import forked

if TYPE_CHECKING:
    from opspan.trace import Trace


def members(path: str, trace_id: str | None) -> dict[str, Any]:
    """Returns what torch.profiler writes about a file at its top."""
    return {"trace_id": trace_id, "traceName": path, "host_name": socket.gethostname()}


@forked.elsewhere
def with_functions(trace: Trace) -> Trace:
    """Returns the trace with calls of Python functions, as far as the stacks of ops show them."""
    from opspan.profiler.sampled_functions import functions
    from opspan.tables import Tables
    from opspan.trace import Trace

    return Trace.of(Tables(trace.ranks, **{**trace.frames, "functions": functions(trace)}))


@forked.elsewhere
def with_engine(trace: Trace) -> Trace:
    """Returns the trace with sequence numbers on the ranges of the autograd engine, as torch.profiler writes them."""
    from opspan.events.profiler import numbered_engine
    from opspan.tables import Tables
    from opspan.trace import Trace

    ranges = numbered_engine(trace.ranges)
    return Trace.of(Tables(trace.ranks, **{**trace.frames, "ranges": ranges}))


@forked.elsewhere
def only_with(trace: Trace, left_out: Collection[str]) -> Trace:
    """Returns the trace without the rows whose events have these categories."""
    import polars as pl

    from opspan.tables import Tables
    from opspan.tables.schema import KIND
    from opspan.trace import Trace
    from opspan.views import drawn

    categories = {
        "ranges": drawn.category(KIND, "user"),
        "calls": drawn.call_category(),
        "functions": pl.lit("python_function"),
        "memory": pl.lit("cpu_instant_event"),
        "work": drawn.work_category(),
    }
    frames = dict(trace.frames)
    for table, category in categories.items():
        frames[table] = frames[table].filter(~category.cast(pl.String).is_in(list(left_out)))
    return Trace.of(Tables(trace.ranks, **frames))
