"""Places the boxes of a flame graph. The outermost boxes are at the top. The width of a box shows the time of its
frame, with all frames inside it.

    icicle(tree, "host_ns") -> boxes: x and width as shares of the whole, the level, and the frame that the box shows

Processes and threads are boxes, too. The boxes of a parent are sorted, the widest first. If boxes are too narrow to be
seen, or if there are too many, the narrowest boxes of a parent are merged into one box, the last inside the parent.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from opspan.analysis.stacks import totals
from opspan.views.merged_stacks import StackTree

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
    ns: int
    count: int  # how often the frame ran; 0 if `kind` is None
    merged: int = 0  # number of boxes that were merged into this box; 0 if it shows a frame


@dataclass(frozen=True)
class Icicle:
    boxes: list[Box]
    whole_ns: int
    levels: int
    left_out: int  # number of boxes that were merged or dropped
    least_ns: int  # boxes that take less time were merged or dropped


def icicle(stack_tree: StackTree, column: str) -> Icicle:
    tree = _tree(stack_tree, column)
    whole_ns = int(tree.filter(level=0)["ns"].sum())
    if not whole_ns:
        return Icicle([], 0, 0, 0, 0)
    least = max(1, round(whole_ns * LEAST_SHARE))
    if (tree["ns"] >= least).sum() > MOST_BOXES:
        # Boxes with equal times are all kept or all left out. So no box is kept without its parent, which takes at
        # least as long.
        least = int(tree["ns"].top_k(MOST_BOXES + 1).min()) + 1  # type: ignore[arg-type]
    shown = tree.filter(_col("ns") >= least)
    rest = tree.filter(_col("ns") < least).group_by("parent", maintain_order=True).agg(pl.len(), _col("ns").sum())
    # Drop merged boxes that would be too narrow to be seen.
    rest = rest.filter(_col("ns") >= whole_ns * LEAST_SHARE)
    boxes: list[Box] = []
    # For each box: the x where the next box inside it begins, and the level of the box.
    free: dict[int | None, tuple[float, int]] = {None: (0.0, -1)}
    for row in shown.sort("level", _col("ns"), descending=[False, True], maintain_order=True).iter_rows(named=True):
        x, above = free[row["parent"]]
        width = row["ns"] / whole_ns
        boxes.append(Box(x, width, above + 1, row["frame"], row["kind"], row["ns"], row["count"]))
        free[row["node"]] = (x, above + 1)
        free[row["parent"]] = (x + width, above)
    for parent, count, ns in rest.iter_rows():
        if parent in free:
            x, above = free[parent]
            boxes.append(Box(x, ns / whole_ns, above + 1, "", None, ns, 0, count))
    return Icicle(boxes, whole_ns, 1 + max(box.level for box in boxes), tree.height - shown.height, least)


def _tree(stack_tree: StackTree, column: str) -> pl.DataFrame:
    """Returns a row for each process, thread and stack: node, parent, level, frame, kind, count and ns. `ns` includes
    the time of all frames inside."""
    stacks = stack_tree.stacks.with_columns(totals(stack_tree.stacks["parent"], stack_tree.stacks[column]).alias("ns"))
    roots = stacks.filter(level=0).group_by("root", maintain_order=True).agg(_col("ns").sum())
    threads = stack_tree.roots.join(roots, on="root", how="left").with_columns(
        _col("ns").fill_null(0), process_node=pl.struct("rank", "pid").rank("dense").cast(pl.Int64) - 1
    )
    processes = threads.group_by("process_node", maintain_order=True).agg(
        _col("process").first().alias("frame"), _col("ns").sum()
    )
    first = processes.height
    second = first + threads.height
    node = _col("stack").cast(pl.Int64) + second
    none = {"kind": pl.lit(None, dtype=pl.String), "count": pl.lit(0, dtype=pl.Int64)}
    columns = ["node", "parent", "level", "frame", "kind", "count", "ns"]
    tree = pl.concat(
        [
            processes.select(
                pl.lit(None, dtype=pl.Int64).alias("parent"), "frame", "ns", node="process_node", level=0, **none
            ).select(columns),
            threads.select(
                "ns", node=_col("root").cast(pl.Int64) + first, parent="process_node", level=1, frame="thread", **none
            ).select(columns),
            stacks.select(
                "frame",
                "count",
                "ns",
                node=node,
                parent=pl.coalesce(_col("parent").cast(pl.Int64) + second, _col("root").cast(pl.Int64) + first),
                level=_col("level").cast(pl.Int32) + 2,
                kind=_col("kind").cast(pl.String),
            ).select(columns),
        ]
    )
    return tree.filter(_col("ns") > 0)
