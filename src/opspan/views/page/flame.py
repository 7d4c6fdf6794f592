"""The data of a flame graph for src/page/flame.ts. Only the largest frames are kept. Inside each of them, the
frames that are not kept are merged into one frame."""

from __future__ import annotations

from typing import Any

import polars as pl

from opspan.analysis.stacks import totals
from opspan.printable import LONGEST_NAME
from opspan.views.page.columns import numbered, renumbered, sizes, text, values

MOST_FRAMES = 4_000
MEASURES = ("device_ns", "cpu_ns")
REST = "rest"
_col = pl.col


def flame(nodes: pl.DataFrame) -> dict[str, Any]:
    """Returns the flame graph of the tree `nodes`. `nodes` has the columns parent (the number of an earlier row), name,
    kind, and the self times cpu_ns and device_ns."""
    measures = [measure for measure in MEASURES if nodes[measure].sum()]
    if not measures:
        return {"names": [], "kinds": [], "frames": {"name": [], "kind": [], "parent": []}, "own": {}, "notes": []}
    inclusive = nodes.select(
        "parent", *(totals(nodes["parent"], nodes[measure]).alias(measure) for measure in measures)
    )
    # A parent is at least as large as its children, and comes before them. So head() never keeps a frame without its
    # parent.
    shown = (
        nodes.select("name", "kind", "parent", *measures).with_row_index("row").with_columns(sizes(inclusive, measures))
    )
    shown = shown.filter(_col("size") > 0).sort("size", descending=True, maintain_order=True)
    shown = renumbered(shown.head(MOST_FRAMES))
    rest = _rest(inclusive.with_row_index("row"), shown.select("row").with_row_index("place"), measures)
    frames = pl.concat([shown.select("name", "kind", "parent", *measures), rest.drop("count")], how="vertical_relaxed")
    left_out = int(rest["count"].sum())
    names, name = numbered(frames["name"].fill_null(""))
    kinds, kind = numbered(frames["kind"])
    return {
        "names": [text(frame or "(no name)", LONGEST_NAME) for frame in names],
        "kinds": kinds.to_list(),
        "frames": {"name": name.to_list(), "kind": kind.to_list(), "parent": values(frames["parent"])},
        "own": {measure: values(frames[measure]) for measure in measures},
        "notes": [f"{left_out:,} small frames are drawn together, as one in each frame that they are in"]
        if left_out
        else [],
    }


def _rest(inclusive: pl.DataFrame, places: pl.DataFrame, measures: list[str]) -> pl.DataFrame:
    """Merges the frames that were not kept into one frame inside each kept frame, and into one frame for the roots that
    were not kept."""
    lost = inclusive.join(places, on="row", how="anti").filter(pl.any_horizontal(_col(name) > 0 for name in measures))
    first = lost.join(lost.select(parent="row"), on="parent", how="anti", nulls_equal=False)
    within = totals(inclusive["parent"], inclusive["row"].is_in(lost["row"].implode()).cast(pl.Int64))
    sums = first.with_columns(count=within.gather(first["row"])).join(
        places, left_on="parent", right_on="row", how="left", maintain_order="left"
    )
    rest = sums.group_by("place", maintain_order=True).agg(_col("count", *measures).sum())
    name = pl.format("{} small frames", _col("count"))
    return rest.select(
        name.alias("name"), pl.lit(REST).alias("kind"), _col("place").alias("parent"), *measures, "count"
    )
