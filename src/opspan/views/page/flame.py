"""A tree as src/page/flame.ts draws it: its largest frames, and the others as one frame wherever they are."""

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
    """`nodes`: parent (a row), name, kind, cpu_ns, device_ns, of its own; each after its parent."""
    measures = [measure for measure in MEASURES if nodes[measure].sum()]
    if not measures:
        return {"names": [], "kinds": [], "frames": {"name": [], "kind": [], "parent": []}, "own": {}, "notes": []}
    whole = nodes.select("parent", *(totals(nodes["parent"], nodes[measure]).alias(measure) for measure in measures))
    # What is around a frame is as large, or larger, and stands before it.
    kept = nodes.select("name", "kind", "parent", *measures).with_row_index("row").with_columns(sizes(whole, measures))
    kept = kept.filter(_col("size") > 0).sort("size", descending=True, maintain_order=True).head(MOST_FRAMES)
    kept = renumbered(kept)
    places = kept.select("row").with_row_index("place")
    rest = _rest(whole.with_row_index("row"), places, measures)
    frames = pl.concat(
        [kept.select("name", "kind", "parent", *measures), rest.drop("count")],
        how="vertical_relaxed",
    )
    left_out = int(rest["count"].sum())
    names, name = numbered(frames["name"].fill_null(""))
    kinds, kind = numbered(frames["kind"])
    return {
        "names": [text(one or "(no name)", LONGEST_NAME) for one in names],
        "kinds": kinds.to_list(),
        "frames": {"name": name.to_list(), "kind": kind.to_list(), "parent": values(frames["parent"])},
        "own": {measure: values(frames[measure]) for measure in measures},
        "notes": [f"{left_out:,} small frames are drawn together, as one in each frame that they are in"]
        if left_out
        else [],
    }


def _rest(whole: pl.DataFrame, places: pl.DataFrame, measures: list[str]) -> pl.DataFrame:
    """Returns, for each kept frame and for the root, one frame that stands for all in it that was not kept."""
    lost = whole.join(places, on="row", how="anti").filter(pl.any_horizontal(_col(name) > 0 for name in measures))
    first = lost.join(lost.select(parent="row"), on="parent", how="anti", nulls_equal=False)
    within = totals(whole["parent"], whole["row"].is_in(lost["row"].implode()).cast(pl.Int64))
    sums = first.with_columns(count=within.gather(first["row"])).join(
        places, left_on="parent", right_on="row", how="left", maintain_order="left"
    )
    rest = sums.group_by("place", maintain_order=True).agg(_col("count", *measures).sum())
    said = pl.format("{} small frames", _col("count"))
    return rest.select(
        said.alias("name"), pl.lit(REST).alias("kind"), _col("place").alias("parent"), *measures, "count"
    )
