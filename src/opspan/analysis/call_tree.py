"""Builds the tree of a flame graph: ranges inside the functions that they ran in, merged by name.

    call_tree(trace) -> nodes, each after its parent: parent, name, kind, cpu_ns, device_ns (sums of self times).

`kind` is function, module, step, the phase of a range, or other. Threads, ranks and steps are merged. Async ranges,
which are outside the tree, and rows deeper than DEEPEST are left out. The trace must have gone through `analyse`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from opspan.analysis.stacks import DEEPEST, merge_stacks, with_functions

if TYPE_CHECKING:
    from opspan.tables import Tables

_STEP = "ProfilerStep#"
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
    rows = rows.with_row_index("row").select(
        "row",
        "parent",
        "depth",
        pl.when(is_step).then(pl.lit(f"{_STEP[:-1]}*").cast(pl.Categorical)).otherwise("name").alias("name"),
        kind.cast(pl.Categorical).alias("kind"),
        cpu_ns="self_ns",
        device_ns="self_device_ns",
        is_in=~_col("is_mark").fill_null(value=False)
        & ~_col("is_async").fill_null(value=False)
        & (_col("depth") < DEEPEST),
    )
    nodes, _ = merge_stacks(rows.filter("is_in"), ["name", "kind"], [_col("cpu_ns", "device_ns").sum()])
    return nodes.with_columns(_col("name", "kind").cast(pl.String))
