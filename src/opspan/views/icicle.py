"""Where the boxes of a flame graph are: the outermost at the top, each as wide as the time of all that is inside it.

    icicle(merged, "host_ns") -> boxes with x and width as shares of the whole, the level and what they stand for

Processes and threads are boxes, too. Boxes beside each other begin with the widest. What is too narrow to be seen, or
one too many, is merged into a last box of its parent.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from opspan.analysis.stacks import totals
from opspan.views.merged_stacks import Merged

LEAST_SHARE = 0.001  # of the whole: about a pixel
MOST_BOXES = 10_000
_col = pl.col


@dataclass(frozen=True)
class Box:
    x: float
    width: float
    level: int
    frame: str
    kind: str | None  # of a range or of work; null: a process, a thread, or what stands for no range
    ns: int
    count: int  # how often it was; 0: not known
    merged: int = 0  # so many boxes would have been inside this one's parent


@dataclass(frozen=True)
class Icicle:
    boxes: list[Box]
    whole_ns: int
    levels: int
    left_out: int  # boxes that were merged, or are inside one that was
    least_ns: int  # what takes less was merged


def icicle(found: Merged, column: str) -> Icicle:
    tree = _tree(found, column)
    whole = int(tree.filter(level=0)["ns"].sum())
    if not whole:
        return Icicle([], 0, 0, 0, 0)
    least = max(1, round(whole * LEAST_SHARE))
    if (tree["ns"] >= least).sum() > MOST_BOXES:
        # Boxes as long as the first that is left out go with it, so that a box is never without the one around it.
        least = int(tree["ns"].top_k(MOST_BOXES + 1).min()) + 1  # type: ignore[arg-type]
    shown = tree.filter(_col("ns") >= least)
    rest = tree.filter(_col("ns") < least).group_by("parent").agg(pl.len(), _col("ns").sum())
    rest = rest.filter(_col("ns") >= whole * LEAST_SHARE)  # below a box that is shown: others have no such time
    boxes: list[Box] = []
    # For each box, where the next one inside it begins; and which level it is on.
    free: dict[int | None, tuple[float, int]] = {None: (0.0, -1)}
    for row in shown.sort("level", _col("ns"), descending=[False, True], maintain_order=True).iter_rows(named=True):
        x, above = free[row["parent"]]
        width = row["ns"] / whole
        boxes.append(Box(x, width, above + 1, row["frame"], row["kind"], row["ns"], row["count"]))
        free[row["node"]] = (x, above + 1)
        free[row["parent"]] = (x + width, above)
    for parent, count, ns in rest.iter_rows():
        if parent in free:
            x, above = free[parent]
            boxes.append(Box(x, ns / whole, above + 1, "", None, ns, 0, count))
    levels = 1 + max(box.level for box in boxes)
    return Icicle(boxes, whole, levels, tree.height - shown.height, least)


def _tree(found: Merged, column: str) -> pl.DataFrame:
    """node, parent, level, frame, kind, count, ns (of all inside): processes, their threads, their stacks."""
    stacks = found.stacks.with_columns(totals(found.stacks["parent"], found.stacks[column]).alias("ns"))
    roots = stacks.filter(level=0).group_by("root").agg(_col("ns").sum())
    threads = found.roots.join(roots, on="root", how="left").with_columns(
        _col("ns").fill_null(0), process_node=pl.struct("rank", "pid").rank("dense").cast(pl.Int64) - 1
    )
    processes = threads.group_by("process_node").agg(_col("process").first().alias("frame"), _col("ns").sum())
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
