"""Places the boxes of a flame graph. The outermost boxes are at the top. The width of a box shows the time of its
frame, with all frames inside it. Samples of processors may have weights of another unit instead of times.

    icicle(tree.stacks, tree.roots, "host_ns") -> boxes: x and width as shares of the whole, the level, and
        the frame that the box shows

Processes and threads are boxes, too. The boxes of a parent are sorted, the widest first. If boxes are too narrow to be
seen, or if there are too many, the narrowest boxes of a parent are merged into one box, the last inside the parent.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from opspan.analysis.stacks import totals

LEAST_SHARE = 0.001  # share of the whole time: a box with this share is about a pixel wide
MOST_BOXES = 10_000
_col = pl.col


@dataclass(frozen=True)
class Box:
    x: float
    width: float
    level: int
    frame: str
    kind: str | None  # kind of the frame; None for processes, threads, merged boxes and the frame (in no range)
    value: int  # the time or weight, with all frames inside
    count: int  # how often the frame ran; 0 if `kind` is None
    merged: int = 0  # number of boxes that were merged into this box; 0 if it shows a frame


@dataclass(frozen=True)
class Icicle:
    boxes: list[Box]
    whole: int
    levels: int
    left_out: int  # number of boxes that were merged or dropped
    least: int  # boxes with smaller values were merged or dropped


def icicle(stacks: pl.DataFrame, roots: pl.DataFrame, column: str) -> Icicle:
    """Returns the boxes of a tree of stacks: that of merged_stacks.py, or that of sampled_stacks.py. `column` has the
    value of each stack without the stacks inside it."""
    tree = _tree(stacks, roots, column)
    whole = int(tree.filter(level=0)["value"].sum())
    if not whole:
        return Icicle([], 0, 0, 0, 0)
    least = max(1, round(whole * LEAST_SHARE))
    if (tree["value"] >= least).sum() > MOST_BOXES:
        # Boxes with equal times are all kept or all left out. So no box is kept without its parent, which takes at
        # least as long.
        least = int(tree["value"].top_k(MOST_BOXES + 1).min()) + 1  # type: ignore[arg-type]
    shown = tree.filter(_col("value") >= least)
    rest = tree.filter(_col("value") < least).group_by("parent", maintain_order=True).agg(pl.len(), _col("value").sum())
    # Drop merged boxes that would be too narrow to be seen.
    rest = rest.filter(_col("value") >= whole * LEAST_SHARE)
    boxes: list[Box] = []
    # For each box: the x where the next box inside it begins, and the level of the box.
    free: dict[int | None, tuple[float, int]] = {None: (0.0, -1)}
    for row in shown.sort("level", _col("value"), descending=[False, True], maintain_order=True).iter_rows(named=True):
        x, above = free[row["parent"]]
        width = row["value"] / whole
        boxes.append(Box(x, width, above + 1, row["frame"], row["kind"], row["value"], row["count"]))
        free[row["node"]] = (x, above + 1)
        free[row["parent"]] = (x + width, above)
    for parent, count, value in rest.iter_rows():
        if parent in free:
            x, above = free[parent]
            boxes.append(Box(x, value / whole, above + 1, "", None, value, 0, count))
    return Icicle(boxes, whole, 1 + max(box.level for box in boxes), tree.height - shown.height, least)


def _tree(stacks: pl.DataFrame, roots: pl.DataFrame, column: str) -> pl.DataFrame:
    """Returns a row for each process, thread and stack: node, parent, level, frame, kind, count and value. The value
    includes those of all frames inside."""
    stacks = stacks.with_columns(totals(stacks["parent"], stacks[column]).alias("value"))
    sums = stacks.filter(level=0).group_by("root", maintain_order=True).agg(_col("value").sum())
    threads = roots.join(sums, on="root", how="left").with_columns(
        _col("value").fill_null(0), process_node=pl.struct("rank", "pid").rank("dense").cast(pl.Int64) - 1
    )
    processes = threads.group_by("process_node", maintain_order=True).agg(
        _col("process").first().alias("frame"), _col("value").sum()
    )
    first = processes.height
    second = first + threads.height
    node = _col("stack").cast(pl.Int64) + second
    none = {"kind": pl.lit(None, dtype=pl.String), "count": pl.lit(0, dtype=pl.Int64)}
    columns = ["node", "parent", "level", "frame", "kind", "count", "value"]
    tree = pl.concat(
        [
            processes.select(
                pl.lit(None, dtype=pl.Int64).alias("parent"), "frame", "value", node="process_node", level=0, **none
            ).select(columns),
            threads.select(
                "value",
                node=_col("root").cast(pl.Int64) + first,
                parent="process_node",
                level=1,
                frame="thread",
                **none,
            ).select(columns),
            stacks.select(
                "frame",
                "count",
                "value",
                node=node,
                parent=pl.coalesce(_col("parent").cast(pl.Int64) + second, _col("root").cast(pl.Int64) + first),
                level=_col("level").cast(pl.Int32) + 2,
                kind=_col("kind").cast(pl.String),
            ).select(columns),
        ]
    )
    return tree.filter(_col("value") > 0)
