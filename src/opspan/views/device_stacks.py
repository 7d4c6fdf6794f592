"""Stacks as in stacks.py, but with device time: the innermost frames are the kernels and copies of each range.

    process 100;thread 100 main;train.py(3): <module>;aten::linear;aten::addmm;gemm 12345
    process 100;thread of unknown number;(in no range);Memcpy HtoD 50

A kernel of compiled code is below the source lines that it was made from. Its time is divided among these lines
(line_stacks.py).
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from opspan.analysis import Analysis
from opspan.analysis.averages import DURATION, on_device
from opspan.row_numbers import ROW_NUMBER
from opspan.tables import Tables
from opspan.views.contents import holds, parts
from opspan.views.stacks import tree, write_stacks

_col = pl.col
NO_RANGE = "(in no range)"
_PLACE = ("rank", "pid", "tid", "name", "parent", "depth")


def write(analysis: Analysis, path: Path) -> list[str]:
    trace = analysis.attributed
    rows = tree(trace).select(*_PLACE, "is_mark", "is_async", pl.lit(0, dtype=pl.Int64).alias("weight"))
    rows = with_work(trace, rows)
    sentences = write_stacks(trace, rows, path)
    if rows["weight"].sum():
        return sentences
    way = "; a .stacks has its ranges" if "ranges" in parts(trace) else ""
    way = way or ("; a .sqlite or .parquet has all of that" if parts(trace) else "")
    kernels = "`nsys profile -t cuda,nvtx` records kernels, and torch.profiler with ProfilerActivity.CUDA"
    return [f"No range has device time: the file is empty. {holds(trace)}{way}. {kernels}"]


def with_work(trace: Tables, rows: pl.DataFrame) -> pl.DataFrame:
    """Adds each kernel and copy to the tree `rows`, as a child of its range. Kernels and copies without a range are
    children of a row called (in no range); each process has one such row. The column `work` has the row number of each
    kernel and copy in the trace."""
    before = rows.height - trace.ranges.height  # number of functions: in `rows` they come before the ranges
    work = on_device(trace.work.with_row_index("work")).filter(_col("start_ns").is_not_null())
    owner = work["range"].cast(ROW_NUMBER) + before
    # Async ranges are not in the tree. So the kernels and copies of an async range go to its nearest ancestor that is
    # in the tree.
    for _ in range(rows.height):
        is_apart = rows["is_async"].gather(owner).fill_null(value=False)
        if not is_apart.any():
            break
        owner = rows["parent"].gather(owner).zip_with(is_apart, owner)
    work = work.with_columns(owner.alias("parent"), DURATION.fill_null(0).alias("weight")).with_columns(
        rows["tid"].gather(owner).alias("tid"),
        rows["rank"].gather(owner).fill_null(work["rank"]).alias("rank"),
        rows["pid"].gather(owner).fill_null(work["pid"]).alias("pid"),
    )
    lone = work.filter(_col("parent").is_null()).select("rank", "pid").unique(maintain_order=True)
    lone = lone.with_columns(
        name=pl.lit(NO_RANGE, dtype=pl.Categorical),
        depth=pl.lit(0, dtype=ROW_NUMBER),
        weight=pl.lit(0, dtype=pl.Int64),
    ).with_row_index("place", offset=rows.height)
    work = work.join(lone.select("rank", "pid", "place"), on=["rank", "pid"], how="left", nulls_equal=True)
    work = work.with_columns(parent=pl.coalesce("parent", "place"))
    depth = pl.concat([rows["depth"], lone["depth"]]).gather(work["parent"]) + 1
    leaves = work.select(
        "rank", "pid", "tid", "name", "parent", "weight", "work", _col("kind").cast(pl.Categorical), depth=depth
    )
    return pl.concat([rows, lone.drop("place"), leaves], how="diagonal_relaxed")
