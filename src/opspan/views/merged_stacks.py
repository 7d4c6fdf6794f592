"""Merges the stacks of the outputs .stacks and .device.stacks into one tree. Each stack occurs once, with its
host time, device time and count.

    bounded(stacks, order, sums) -> the stacks that a file has room for
    stack_tree(trace, only=None) -> StackTree
        stacks   columns: stack, parent (the stack around it), root, level, frame, kind, count, host_ns, device_ns
        roots    a row for each thread, which is the root of its stacks

The times of a stack do not include the stacks inside it. Kernels and copies are the innermost frames, with device time.
If `only` is a kind, such as "module", only frames of that kind are kept. The times of other frames are added to the
kept frame around them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from opspan.analysis.line_stacks import FUNCTION
from opspan.analysis.nest import nearest
from opspan.analysis.stacks import depths, levels
from opspan.row_numbers import ROW_NUMBER
from opspan.tables import Tables
from opspan.views.device_stacks import with_work
from opspan.views.stacks import NO_FUNCTIONS, has_functions, stack_rows, tree

PLACE = ("rank", "pid", "tid", "name", "parent", "depth", "is_mark", "is_async")
MOST_FRAMES = 5_000_000  # maximum number of frames in all stacks of a file together
SMALLER = "(stacks that take less)"
_SUMS = [
    pl.col("kind").first(),
    pl.col("count").sum(),
    pl.col("host_ns").sum(),
    pl.col("device_ns").sum(),
]
_col = pl.col


@dataclass(frozen=True)
class StackTree:
    stacks: pl.DataFrame  # each stack comes before the stacks inside it
    roots: pl.DataFrame  # columns: root, rank, pid, tid, process, thread
    left_out: list[str]  # sentences on what was left out


def stack_tree(trace: Tables, only: str | None = None) -> StackTree:
    """Returns the stacks of an attributed trace (`Analysis.attributed`)."""
    rows = tree(trace)
    rows = rows.select(
        *PLACE, kind=kinds(trace), host_ns=_col("self_ns").fill_null(0), weight=pl.lit(0, dtype=pl.Int64)
    )
    rows = with_work(trace, rows).rename({"weight": "device_ns"}).with_columns(_col("host_ns").fill_null(0))
    # A row called (in no range) has no kind, and is not counted.
    in_tree = stack_rows(trace, rows.with_columns(count=_col("kind").is_not_null().cast(pl.Int64)))
    shown = in_tree.rows.select("row", "parent", "depth", "root", "frame", "kind", "count", "host_ns", "device_ns")
    if only is not None:
        shown = _only(shown, only)
    by_level = list(levels(shown, _SUMS))
    stacks = pl.concat(by_level) if by_level else _empty(shown)
    no_functions = only is None and not has_functions(trace) and trace.ranges.height and stacks["host_ns"].sum()
    return StackTree(stacks, in_tree.roots, [*in_tree.left_out, *([NO_FUNCTIONS] if no_functions else [])])


def kinds(trace: Tables) -> pl.Expr:
    """Returns the kind of each row of `tree(trace)`, which is never null."""
    is_function = pl.int_range(pl.len()) < trace.functions.height
    kind = _col("kind").cast(pl.String).fill_null("unknown")
    return pl.when(is_function).then(pl.lit(FUNCTION)).otherwise(kind).cast(pl.Categorical)


def bounded(stacks: pl.DataFrame, order: Sequence[str], sums: Sequence[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns the stacks to write, and the tree of all stacks. If there are too many stacks, those with the largest
    values in the columns `order` are written. For each thread, the other stacks are merged into one extra stack with
    their `sums`, which is also in the tree."""
    frames = _col("level").cast(pl.Int64) + 1
    if stacks.select(frames.sum()).item() <= MOST_FRAMES:
        return stacks, stacks
    ordered = stacks.sort(pl.sum_horizontal(order), descending=True, maintain_order=True)
    is_kept = ordered.select(frames.cum_sum() <= MOST_FRAMES).to_series()
    rest = ordered.filter(~is_kept).group_by("root", maintain_order=True).agg(_col(sums).sum())
    rest = rest.with_row_index("stack", offset=stacks.height).with_columns(frame=pl.lit(SMALLER))
    tree = pl.concat([stacks, rest], how="diagonal_relaxed")
    return pl.concat([ordered.filter(is_kept), tree.slice(stacks.height)]), tree


def _only(rows: pl.DataFrame, kind: str) -> pl.DataFrame:
    """Keeps the rows of one kind. The times of any other row are added to the innermost kept row around it. If no row
    around it is kept, its times are added to an extra row for its root."""
    place = pl.DataFrame({"row": rows["row"], "place": pl.int_range(rows.height, eager=True, dtype=ROW_NUMBER)})
    tree = rows.join(place, left_on="parent", right_on="row", how="left", maintain_order="left")
    is_kept = (rows["kind"].cast(pl.String) == kind).fill_null(value=False)
    owner = nearest(pl.DataFrame({"parent": tree["place"]}), is_kept)
    times = [_col("host_ns").sum(), _col("device_ns").sum()]
    sums = rows.with_columns(row=rows["row"].gather(owner)).group_by("row", "root").agg(times)
    of_kind = rows.with_columns(parent=rows["row"].gather(owner.gather(tree["place"]))).filter(is_kept)
    of_kind = of_kind.drop("host_ns", "device_ns", "depth").join(sums.drop("root"), on="row", how="left")
    outside = sums.filter(_col("row").is_null() & (_col("host_ns") + _col("device_ns") > 0)).with_columns(
        row=(rows.select(_col("row").max()).item() or 0) + 1 + pl.int_range(pl.len(), dtype=ROW_NUMBER),
        frame=pl.lit(f"(in no {kind})"),
    )
    shown = pl.concat([of_kind, outside], how="diagonal_relaxed")
    index = pl.DataFrame({"row": shown["row"], "place": pl.int_range(shown.height, eager=True, dtype=ROW_NUMBER)})
    parent = shown.join(index, left_on="parent", right_on="row", how="left", maintain_order="left")["place"]
    return shown.with_columns(depth=depths(parent)).select(rows.columns)


def _empty(rows: pl.DataFrame) -> pl.DataFrame:
    key = {"stack": ROW_NUMBER, "parent": ROW_NUMBER, "root": ROW_NUMBER, "frame": pl.String, "level": ROW_NUMBER}
    sums = rows.select("kind", "host_ns", "device_ns", count=pl.lit(0, dtype=pl.Int64)).clear()
    return pl.concat([pl.DataFrame(schema=key), sums], how="horizontal")
