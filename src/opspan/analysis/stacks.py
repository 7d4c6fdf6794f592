"""Builds stacks for flame graphs. Writes a tree of rows as lines `outer;inner weight`, and nests ranges and functions
in one tree.

    levels(rows, sums) -> the stacks of each level, with equal ones merged.
    collapse(rows, roots) -> batches of lines, one line for each stack.
    merge_stacks(rows, keys, sums) -> the stacks as nodes of one tree.
    totals(parent, own) -> for each node, the sum of its own value and the values of all nodes below it.
    with_functions(trace) -> the rows of trace.functions, and after them those of trace.ranges, nested in one another.

flamegraph.pl, inferno and speedscope read the lines. So characters that separate frames or lines are replaced in
frames.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import polars as pl

from opspan import native
from opspan.analysis.nest import innermost, nest, trace_end_ns
from opspan.row_numbers import ROW_NUMBER
from opspan.tables.schema import without_added

if TYPE_CHECKING:
    from opspan.tables import Tables

DEEPEST = 500  # maximum number of levels of a stack, because its text grows with every level
_UNSAFE = r"[;\pC\p{Zl}\p{Zp}]"
_SPAN = ("rank", "pid", "tid", "start_ns", "end_ns", "name")
_col = pl.col


def depths(parent: pl.Series) -> pl.Series:
    """Returns how many rows are around each row. Each round of the loop looks twice as far up, so deep trees need few
    rounds."""
    depth, above = parent.is_not_null().cast(ROW_NUMBER), parent
    while above.count():
        depth = depth + depth.gather(above).fill_null(0)
        above = above.gather(above)
    return depth


def levels(rows: pl.DataFrame, sums: Sequence[pl.Expr], keys: Sequence[str] = ("frame",)) -> Iterator[pl.DataFrame]:
    """Yields a frame for each level, the outermost first, with a row for each stack: stack (its number), parent (the
    stack around it, or null), root (a number for each tree, such as each thread), the keys, level, and the sums. Rows
    with the same root, the same parent stack and equal keys are in one stack. The sums are over the rows of the stack
    itself.

    `rows` have row, parent (a row, which must exist, or null), depth, root, the keys, and the columns that are summed.
    """
    count = 0
    # the rows of the level above, and the stack that each is in
    above = pl.DataFrame(schema={"row": ROW_NUMBER, "around": ROW_NUMBER})
    parts = rows.partition_by("depth", as_dict=True)
    for level, (_, part) in enumerate(sorted(parts.items())):
        rows_of_level = part.join(above, left_on="parent", right_on="row", how="left", maintain_order="left")
        stacks = rows_of_level.group_by("root", "around", *keys, maintain_order=True).agg(
            *sums, _col("row").alias("rows")
        )
        stacks = stacks.with_row_index("stack", offset=count).rename({"around": "parent"})
        count += stacks.height
        above = stacks.select(row="rows", around="stack").explode("row")
        yield stacks.drop("rows").with_columns(level=pl.lit(level, dtype=ROW_NUMBER))


def collapse(rows: pl.DataFrame, roots: pl.DataFrame, unit: int = 1) -> Iterator[pl.Series]:
    """Yields lines. `rows` have the columns that `levels` needs, and weight. `roots` have root, and the text to put
    before every stack of the root. Weights are divided by `unit` and rounded down; a stack whose own weight is 0 does
    not get a line."""
    around, key = roots.select("text", around="root"), "root"
    for stacks in levels(rows, [_col("weight").sum()]):
        joined = stacks.join(around, left_on=key, right_on="around", how="left", maintain_order="left")
        text = pl.concat_str(_col("text"), safe(_col("frame")), separator=";").str.strip_prefix(";")
        joined = joined.with_columns(text=text)
        lines = joined.with_columns(_col("weight") // unit).filter(_col("weight") > 0)
        yield lines.select(pl.concat_str("text", pl.lit(" "), "weight")).to_series()
        around, key = joined.select("text", around="stack"), "parent"


def merge_stacks(rows: pl.DataFrame, keys: Sequence[str], sums: Sequence[pl.Expr]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns the stacks as nodes of one tree, each after its parent: parent (a node), the keys, the sums. Also returns
    the node that each row is in: row, node. `rows` have the columns that `levels` needs, without root."""
    stacks = list(levels(rows.with_columns(root=pl.lit(0, dtype=ROW_NUMBER)), [*sums, _col("row")], keys))
    if not stacks:
        none = rows.group_by(keys).agg(sums).select(pl.lit(None, dtype=ROW_NUMBER).alias("parent"), pl.all())
        return none, rows.select("row", node="row")
    nodes = pl.concat(stacks)
    return nodes.drop("stack", "root", "level", "row"), nodes.select("row", node="stack").explode("row")


def totals(parent: pl.Series, own: pl.Series) -> pl.Series:
    rows = pl.DataFrame({"end_ns": own.cast(pl.Int64)}).select(
        pl.int_range(pl.len(), dtype=ROW_NUMBER).alias("range"), pl.lit(0, dtype=pl.Int64).alias("start_ns"), "end_ns"
    )
    return native.rollup(parent.cast(ROW_NUMBER).alias("parent").to_frame(), rows)["device_ns"]


def safe(frame: pl.Expr) -> pl.Expr:
    return frame.str.replace_all(_UNSAFE, "_")


def with_functions(trace: Tables) -> pl.DataFrame:
    """Returns functions and ranges in one tree. The trace must have gone through `attribute`. A range may begin in a
    function and end after the function, for example if the range's `__enter__` was recorded as a function. The function
    is cut at the start of the range, because the range would be outside the tree otherwise."""
    ranges, calls = without_added("ranges", trace.ranges), trace.functions
    end_ns = trace_end_ns(ranges, calls, trace.work)
    spans = calls.select(_SPAN).with_columns(_col("end_ns").fill_null(end_ns))
    spans = pl.concat([spans, ranges.clear()], how="diagonal")
    both = nest(pl.concat([spans, ranges], how="diagonal"), end_ns)
    parted = both.slice(calls.height).filter(_col("overlaps") & ~trace.ranges["overlaps"])
    if not parted.height:
        return both
    cut = nest(spans)
    row = innermost(cut, parted.rename({"start_ns": "time_ns"}))
    ends = pl.DataFrame({"row": row, "start_ns": parted["start_ns"], "end_ns": parted["end_ns"]})
    cuts = []
    while (ends := ends.drop_nulls("row")).height:
        inside = ends.filter(cut["end_ns"].gather(ends["row"]) < ends["end_ns"])
        cuts.append(inside.select("row", "start_ns"))
        ends = inside.with_columns(cut["parent"].gather(inside["row"]).alias("row"))
    first = pl.concat(cuts).group_by("row").agg(_col("start_ns").min())
    spans = spans.with_columns(end_ns=spans["end_ns"].scatter(first["row"], first["start_ns"]))
    return nest(pl.concat([spans, ranges], how="diagonal"), end_ns)
