"""Prepares a trace before it is exported as a Chrome trace, so that the file is like one of torch.profiler."""

from __future__ import annotations

import socket
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from opspan import forked

if TYPE_CHECKING:
    from opspan.trace import Trace


def members(path: str, trace_id: str | None) -> dict[str, Any]:
    """Returns the top-level members that torch.profiler writes to identify a file."""
    return {"trace_id": trace_id, "traceName": path, "host_name": socket.gethostname()}


@forked.elsewhere
def with_functions(trace: Trace) -> Trace:
    """Returns the trace with calls of Python functions, which are derived from the stacks of ops."""
    from opspan.profiler.sampled_functions import functions

    return trace.replace(functions=functions(trace))


@forked.elsewhere
def with_engine(trace: Trace) -> Trace:
    """Returns the trace with sequence numbers on the ranges of the autograd engine, as torch.profiler writes them."""
    from opspan.events.profiler import numbered_engine

    return trace.replace(ranges=numbered_engine(trace.ranges))


@forked.elsewhere
def only_with(trace: Trace, left_out: Collection[str]) -> Trace:
    """Returns the trace with only the rows whose Chrome events are not of the categories `left_out`."""
    import polars as pl

    from opspan.tables.schema import KIND
    from opspan.views import drawn

    categories = {
        "ranges": drawn.category(KIND, "user"),
        "calls": drawn.call_category(),
        "functions": pl.lit("python_function"),
        "memory": pl.lit("cpu_instant_event"),
        "work": drawn.work_category(),
    }
    kept = {table: ~category.cast(pl.String).is_in(list(left_out)) for table, category in categories.items()}
    return trace.replace(**{table: trace.frames[table].filter(is_kept) for table, is_kept in kept.items()})
