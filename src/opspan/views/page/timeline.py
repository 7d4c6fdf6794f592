"""The timeline: a lane for each thread and stream, counters, and arrows from launches and forward ops.

A shape is what is drawn for a range, call, kernel, gap, ... Neighbouring shapes that are too small to be drawn one by
one become a block. Shapes are ordered by lane, row and time. So the page needs only the number of shapes in each row.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from opspan import native
from opspan.analysis import Analysis
from opspan.analysis.autograd import BY_NESTING
from opspan.analysis.spans import difference, length
from opspan.row_numbers import ROW_NUMBER
from opspan.views.page.columns import numbered, text, values
from opspan.views.page.section import Section, Subject, packed
from opspan.views.page.timeline_columns import deltas, shown
from opspan.views.page.timeline_counters import counters
from opspan.views.page.timeline_details import details, self_times
from opspan.views.page.timeline_lanes import TABLES, TimelineLanes, lanes_of
from opspan.views.page.timeline_looks import FORMS, KINDS, forms, kinds
from opspan.views.page.timeline_samples import TimelineSamples, timeline_samples

MOST_SHAPES = 250_000
MOST_ROWS = 96  # maximum number of rows in a lane: nested Python functions have about as many levels
MOST_BYTES = 4_000_000  # maximum number of bytes of this section in the page
_MOST_STEPS = 5_000
# The page has only the most frequent names of shapes inside blocks: 100 names or, if that is more, one name for every
# 50 shapes that may be drawn.
_LEAST_HIDDEN, _SHAPES_OF_HIDDEN = 100, 50
_OF_NUMBER = 7  # maximum number of bytes that a number takes when it is packed
_col = pl.col


def section(subject: Subject) -> Section:
    lanes = lanes_of(subject.analysis)
    if lanes is None:
        why = "Nothing that the program did has a time: the trace holds figures, and no ranges, calls or work"
        return Section("Timeline", None, why, f"opspan summary {subject.typed}")
    placed = native.places(lanes.shapes.select("lane", "start_ns", "length_ns"), MOST_ROWS)
    samples = timeline_samples(subject.analysis, lanes)
    most = MOST_SHAPES
    while True:
        data = _data(subject, lanes, placed, samples, most)
        if _at_most(data) <= MOST_BYTES:
            return Section("Timeline", data)
        in_page = packed(data)
        if len(in_page) <= MOST_BYTES or most < 100:
            return Section("Timeline", data, packed=in_page)
        most = int(most * 0.9 * MOST_BYTES / len(in_page))


def _at_most(data: Any) -> int:
    """Returns an upper bound of the packed size in bytes, without looking at each number. A number of ten digits and a
    comma take at most _OF_NUMBER bytes."""
    if isinstance(data, dict):
        return sum(map(_at_most, data.values()))
    if isinstance(data, str):
        return 2 * len(data)
    if isinstance(data, pl.Series):
        return _OF_NUMBER * len(data)
    if not isinstance(data, (list, tuple)):
        return _OF_NUMBER
    if data and isinstance(data[0], (int, float)):
        return _OF_NUMBER * len(data)
    return sum(map(_at_most, data))


def _data(
    subject: Subject, lanes: TimelineLanes, placed: pl.DataFrame, samples: TimelineSamples | None, most: int
) -> dict[str, Any]:
    analysis = subject.analysis
    blocks = native.blocks(placed, most)
    shapes = _drawn_shapes(analysis, lanes, placed, blocks)
    block = _block_of(placed, blocks)
    names, hidden = _names(lanes, placed, shapes, block, max(_LEAST_HIDDEN, most // _SHAPES_OF_HIDDEN))
    texts, name = numbered(names)
    end = shapes["start_ns"] + shapes["length_ns"]
    gap = (shapes["start_ns"] - end.shift(1)).zip_with(shapes["place"] == shapes["place"].shift(1), shapes["start_ns"])
    is_block = shapes["count"] > 1
    rows = {table: shapes["row"].filter(~is_block & (shapes["table"] == table)) for table in TABLES}
    inner = self_times(analysis, rows["ranges"])
    values_over_time, notes = counters(analysis, lanes.begin_ns, lanes.length_ns)
    of_tables = {table: details(analysis, table, rows[table]) for table in TABLES}
    if samples is not None:
        of_tables["samples"] = samples.details
        notes = [*notes, *samples.notes]
    return {
        "begin": str(lanes.begin_ns),
        "length": lanes.length_ns,
        "kinds": KINDS,
        "forms": FORMS,
        "tables": TABLES,
        "groups": [_group(row) for row in lanes.groups.iter_rows(named=True)],
        "lanes": _lanes(lanes, shapes, samples),
        "names": shown(texts),
        "hidden": _hidden(texts, hidden),
        "gap": gap.fill_null(shapes["start_ns"]),
        "length_ns": shapes["length_ns"],
        "name": name.slice(0, shapes.height).fill_null(-1),
        "kind": deltas(shapes["kind"].to_physical()),
        "form": deltas(shapes["form"].to_physical()),
        "blocks": _blocks(shapes, is_block),
        "inner": inner.fill_null(-1),
        "details": of_tables,
        "arrows": _arrows(analysis, lanes, placed, block, is_block),
        "counters": values_over_time,
        "steps": _steps(analysis, lanes),
        "merged": {
            "under_ns": int(blocks["under_ns"][0]) if blocks.height else 0,
            "ranges": int(shapes["count"].filter(is_block).sum()),
            "of": int(shapes["count"].sum()),
        },
        "notes": [*lanes.notes, *notes, *_more_steps(analysis)],
        **({} if samples is None else {"samples": samples.data}),
        "perfetto": f"opspan export {subject.typed} run.perfetto-trace",
        "files": subject.typed,
    }


def _drawn_shapes(analysis: Analysis, lanes: TimelineLanes, placed: pl.DataFrame, blocks: pl.DataFrame) -> pl.DataFrame:
    """Returns a row for each shape that is drawn. A block has the name and the kind of its longest shape, and the form
    of its first shape."""
    first = lanes.shapes.select("table", "row")[placed["shape"].gather(blocks["first"])]
    longest = lanes.shapes.select("table", "row", "name")[placed["shape"].gather(blocks["longest"])]
    return longest.with_columns(
        placed["place"].gather(blocks["first"]),
        placed["start_ns"].gather(blocks["first"]),
        blocks["length_ns"],
        blocks["count"],
        blocks["busy_ns"],
        kinds(analysis, longest).alias("kind"),
        forms(analysis, first).alias("form"),
    )


def _block_of(placed: pl.DataFrame, blocks: pl.DataFrame) -> pl.Series:
    """Returns for each placed shape the number of its block. A shape that is drawn alone is a block of one. The shapes
    of a block are neighbours in `placed`."""
    return pl.zeros(placed.height, ROW_NUMBER, eager=True).scatter(blocks["first"][1:], 1).cum_sum().alias("block")


def _names(
    lanes: TimelineLanes, placed: pl.DataFrame, shapes: pl.DataFrame, block: pl.Series, most: int
) -> tuple[pl.Series, pl.DataFrame]:
    """Returns the names of drawn shapes, followed by the most frequent names of shapes inside blocks. Also returns how
    often each of these names occurs in blocks."""
    together = placed["shape"].filter((shapes["count"] > 1).gather(block))
    inside = lanes.shapes["name"].gather(together).value_counts(sort=True).drop_nulls().head(most)
    return pl.concat([shapes["name"], inside["name"]]), inside


def _hidden(texts: pl.Series, hidden: pl.DataFrame) -> dict[str, Any]:
    at = hidden.join(pl.DataFrame({"name": texts}).with_row_index("at"), on="name").sort("at")
    return {"name": deltas(at["at"]), "count": at["count"]}


def _group(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "title": text(row["title"]),
        "rank": row["rank"] or 0,
        "device": row["device_id"],
        "host": row["is_host"],
        "quiet": row["is_quiet"],
    }


def _lanes(lanes: TimelineLanes, shapes: pl.DataFrame, samples: TimelineSamples | None) -> list[dict[str, Any]]:
    of_place = shapes.group_by("place", maintain_order=True).agg(shapes=pl.len(), ranges=_col("count").sum())
    rows = of_place.with_columns(lane=_col("place") // MOST_ROWS, row=_col("place") % MOST_ROWS)
    of_lane = rows.group_by("lane", maintain_order=True).agg("row", "shapes", "ranges")
    of_samples = {} if samples is None else samples.lanes
    return [
        {
            "title": text(lane["title"]),
            "shows": lane["shows"],
            "group": lane["group"],
            "table": lane["table"],
            "rank": lane["rank"] or 0,
            "pid": lane["pid"],
            "rows": lane["row"] or [0],
            "shapes": lane["shapes"] or [0],
            "ranges": sum(lane["ranges"] or []),
            **of_samples.get(lane["lane"], {}),
        }
        for lane in lanes.lanes.join(of_lane, on="lane", how="left", maintain_order="left").iter_rows(named=True)
    ]


def _blocks(shapes: pl.DataFrame, is_block: pl.Series) -> dict[str, Any]:
    at = shapes.select("count", "busy_ns", shape=pl.int_range(pl.len())).filter(is_block)
    return {"shape": deltas(at["shape"]), "count": at["count"], "busy_ns": at["busy_ns"]}


def _arrows(
    analysis: Analysis, lanes: TimelineLanes, placed: pl.DataFrame, block: pl.Series, is_block: pl.Series
) -> dict[str, Any]:
    """Returns arrows as pairs of shapes: from launches to kernels and copies, and from forward to backward ops. Arrows
    from a block to a block are left out."""
    work = analysis.complete.work.select(_from="call", to=pl.int_range(pl.len(), dtype=ROW_NUMBER))
    ranges = analysis.complete.ranges
    linked = ranges.select(_from="forward", to=pl.int_range(pl.len(), dtype=ROW_NUMBER)).filter(
        ranges["link"] != BY_NESTING
    )
    blocks = pl.zeros(placed.height, ROW_NUMBER, eager=True).scatter(placed["shape"], block)
    rows = lanes.shapes.select("table", "row", blocks.alias("block"))
    shape_of = {
        table: pl.Series([None], dtype=ROW_NUMBER)
        .new_from_index(0, analysis.complete.frames[table].height)
        .scatter(of_table["row"], of_table["block"])
        for table in ("ranges", "calls", "work")
        for of_table in [rows.filter(_col("table") == table)]
    }
    kinds = {"launch": (work, "calls", "work"), "backward": (linked, "ranges", "ranges")}
    return {
        name: _pairs(rows, shape_of[source], shape_of[target], is_block)
        for name, (rows, source, target) in kinds.items()
    }


def _pairs(rows: pl.DataFrame, shape_of_from: pl.Series, shape_of_to: pl.Series, is_block: pl.Series) -> dict[str, Any]:
    rows = rows.drop_nulls()
    pairs = pl.DataFrame({"from": shape_of_from.gather(rows["_from"]), "to": shape_of_to.gather(rows["to"])})
    pairs = pairs.drop_nulls()
    if is_block.any():
        pairs = pairs.filter(~(is_block.gather(pairs["from"]) & is_block.gather(pairs["to"]))).unique()
    pairs = pairs.sort("to", "from")
    return {"from": deltas(pairs["from"]), "to": deltas(pairs["to"])}


def _steps(analysis: Analysis, lanes: TimelineLanes) -> dict[str, Any]:
    steps = analysis.iterations.sort("rank", "pid", "start_ns").head(_MOST_STEPS)
    begin = pl.lit(lanes.begin_ns, pl.Int64)
    steps = steps.with_columns(since=difference(begin, _col("start_ns")), took=length())
    return {
        "name": values(steps["step"]),
        "rank": steps["rank"].fill_null(0).to_list(),
        "pid": steps["pid"].to_list(),
        "start": steps["since"].to_list(),
        "length": steps["took"].to_list(),
        "outlier": steps["is_outlier"].to_list(),
    }


def _more_steps(analysis: Analysis) -> list[str]:
    more = analysis.iterations.height - _MOST_STEPS
    return [f"{more:,} more steps are not above the axis"] if more > 0 else []
