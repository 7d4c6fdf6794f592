"""Builds the tree of a flame graph: ranges inside the functions that they ran in, merged by name.

    call_tree(trace) -> nodes, each after its parent: parent, name, kind, cpu_ns, device_ns (sums of self times).

`kind` is function, module, step, the phase of a range, or other. Threads, ranks and steps are merged. Async ranges,
and everything deeper than DEEPEST, are left out. A kernel of compiled code is a node below the source lines that it was
generated from (line_stacks.py). The time of any other kernel belongs to the node of its range. Call `analyse` first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from opspan.analysis.averages import DURATION, on_device
from opspan.analysis.line_stacks import LineStacks
from opspan.analysis.stacks import DEEPEST, merge_stacks, with_functions
from opspan.row_numbers import ROW_NUMBER

if TYPE_CHECKING:
    from opspan.tables import Tables

_STEP = "ProfilerStep#"
_TIMES = ("cpu_ns", "device_ns")
_PLACE = ("parent", "depth", "is_mark", "is_async")
_col = pl.col


def call_tree(trace: Tables) -> pl.DataFrame:
    ranges = trace.ranges
    count = trace.functions.height
    if count:
        columns = ranges.select("phase", "self_device_ns")
        rows = with_functions(trace).hstack(pl.concat([columns.clear(count), columns]))
    else:
        rows = ranges
    rows = rows.with_columns(is_function=pl.int_range(pl.len()) < count)
    kind = (
        pl.when("is_function")
        .then(pl.lit("function"))
        .when(_col("kind").is_in(["module", "step"]).fill_null(value=False))
        .then(_col("kind").cast(pl.String))
        .otherwise(_col("phase").cast(pl.String).fill_null("other"))
    )
    is_step = _col("name").cat.starts_with(_STEP).fill_null(value=False)
    rows = rows.select(
        *_PLACE,
        pl.when(is_step).then(pl.lit(f"{_STEP[:-1]}*").cast(pl.Categorical)).otherwise("name").alias("name"),
        kind.cast(pl.Categorical).alias("kind"),
        cpu_ns="self_ns",
        device_ns="self_device_ns",
    )
    lines = None if trace.provenance.is_empty() else LineStacks(trace)
    if lines is not None:
        rows = _with_kernels(trace, rows, lines)
    is_out = _col("is_mark").fill_null(value=False) | _col("is_async").fill_null(value=False)
    rows = rows.with_row_index("row").filter(~is_out & (_col("depth") < DEEPEST))
    if lines is not None:
        rows = rows.rename({"name": "frame"}).with_columns(_col("frame").cast(pl.String))
        rows = lines.below(rows, _TIMES).rename({"frame": "name"})
    rows = rows.select("row", "parent", "depth", "name", "kind", *_TIMES)
    nodes, _ = merge_stacks(rows, ["name", "kind"], [_col("cpu_ns", "device_ns").sum()])
    return nodes.with_columns(_col("name", "kind").cast(pl.String))


def _with_kernels(trace: Tables, rows: pl.DataFrame, lines: LineStacks) -> pl.DataFrame:
    """Adds a row for each kernel with known source lines, and subtracts the time of the kernel from the kernel's range.
    Adds the columns call and root, which `LineStacks.below` needs."""
    before, is_out = trace.functions.height, trace.ranges["is_async"].fill_null(value=False)
    work = on_device(trace.work.with_row_index("work").filter(lines.of_work.is_not_null()))
    work = work.filter(_col("range").is_not_null(), DURATION > 0)
    work = work.filter(~is_out.gather(work["range"]))
    owner = (work["range"] + before).cast(ROW_NUMBER)
    kernels = rows.select("kind", depth=_col("depth") + 1)[owner].with_columns(
        work.select("name", "work", device_ns=DURATION), cpu_ns=pl.lit(0, dtype=pl.Int64), parent=owner
    )
    moved = kernels.group_by(row="parent").agg(moved_ns=_col("device_ns").sum())
    rows = rows.with_columns(row=pl.int_range(pl.len(), dtype=ROW_NUMBER))
    rows = rows.join(moved, on="row", how="left", maintain_order="left")
    rows = rows.with_columns(_col("device_ns") - _col("moved_ns").fill_null(0)).drop("row", "moved_ns")
    rows = pl.concat([rows, kernels], how="diagonal_relaxed")
    return rows.with_columns(lines.calls(rows), root=pl.lit(0, dtype=ROW_NUMBER))
