"""The stacks of .stacks and .device.stacks in one tree: each once, with host time, device time and how often it was.

    merged(trace) -> .stacks: stack, parent (the stack around it), root, level, frame, kind, count, host_ns, device_ns,
        and `roots`: the process and the thread that stacks of a root are in

Times are of the stack itself, without those inside it. Kernels and copies are the innermost frames, with device time.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from opspan.analysis.stacks import levels
from opspan.tables import Tables
from opspan.views.device_stacks import with_work
from opspan.views.stacks import NO_FUNCTIONS, placed, tree

FUNCTION = "function"  # the kind of Python's functions; the others are those of ranges and of work
_PLACE = ("rank", "pid", "tid", "name", "parent", "depth", "is_mark", "is_async")
_SUMS = [
    pl.col("kind").first(),
    pl.col("kind").count().cast(pl.Int64).alias("count"),  # what stands for no range is none
    pl.col("host_ns").sum(),
    pl.col("device_ns").sum(),
]
_col = pl.col


@dataclass(frozen=True)
class Merged:
    stacks: pl.DataFrame  # those around come before those inside
    roots: pl.DataFrame  # root, rank, pid, tid, process, thread
    left_out: list[str]  # sentences


def merged(trace: Tables) -> Merged:
    """The trace must have gone through `attribute`."""
    rows = tree(trace)
    is_function = pl.int_range(pl.len()) < trace.functions.height
    kind = _col("kind").cast(pl.String).fill_null("unknown")
    kind = pl.when(is_function).then(pl.lit(FUNCTION)).otherwise(kind).cast(pl.Categorical)
    rows = rows.select(*_PLACE, kind=kind, host_ns=_col("self_ns").fill_null(0), weight=pl.lit(0, dtype=pl.Int64))
    rows = with_work(trace, rows).rename({"weight": "device_ns"}).with_columns(_col("host_ns").fill_null(0))
    found = placed(trace, rows)
    columns = ["row", "parent", "depth", "root", "frame", "kind", "host_ns", "device_ns"]
    by_level = list(levels(found.rows.select(columns), _SUMS))
    stacks = pl.concat(by_level) if by_level else _empty(found.rows.select(columns))
    no_functions = not trace.functions.height and trace.ranges.height and stacks["host_ns"].sum()
    return Merged(stacks, found.roots, [*found.left_out, *([NO_FUNCTIONS] if no_functions else [])])


def _empty(rows: pl.DataFrame) -> pl.DataFrame:
    key = {"stack": pl.UInt32, "parent": pl.UInt32, "root": pl.UInt32, "frame": pl.String, "level": pl.UInt32}
    sums = rows.select("kind", "host_ns", "device_ns", count=pl.lit(0, dtype=pl.Int64)).clear()
    return pl.concat([pl.DataFrame(schema=key), sums], how="horizontal")
