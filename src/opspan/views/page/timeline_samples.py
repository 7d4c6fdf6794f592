"""Samples of processors in the timeline: points on a lane of their thread.

A lane has a row for each event, because weights of different events are never added. A point has a time, a stack, a
weight, and the innermost range and call that were open on its thread. If the page has no room for all samples, those of
one function that are close together become one point, at the time of the first of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from opspan.analysis import Analysis
from opspan.analysis.hardware_events import is_ns
from opspan.analysis.samples import (
    BROKEN,
    counted_event,
    deepest,
    frames_of,
    innermost_frames,
    name_by_itself,
    numbered_stacks,
)
from opspan.analysis.spans import look_up
from opspan.printable import plural
from opspan.views.page.columns import numbered, text
from opspan.views.page.section import packed
from opspan.views.page.timeline_columns import deltas, of_numbers, shown
from opspan.views.page.timeline_details import sample_details
from opspan.views.page.timeline_lanes import TimelineLanes

MOST_POINTS = 100_000  # maximum number of points, and of functions in all stacks together
MOST_BYTES = 1_000_000  # maximum number of bytes of the samples in the page
MOST_EVENTS = 8
_LONGEST = 62  # exponent of a time that is longer than any trace
_ROW = ("lane", "line")  # the lane and the row of a point
_STACK = ("stack", "libraries")
_FUNCTION = ("function", "library")
_col = pl.col


@dataclass(frozen=True)
class TimelineSamples:
    """`lanes` has the data of each lane: rows (0, 1, ...), and for each row: shapes (the number of points), ranges (the
    number of samples), and events (indices into the data's `events`)."""

    data: dict[str, Any]
    details: list[dict[str, Any]]
    lanes: dict[int, dict[str, Any]]
    notes: list[str]


def timeline_samples(analysis: Analysis, lanes: TimelineLanes) -> TimelineSamples | None:
    """Returns None if no lane has samples."""
    if not lanes.samples.height:
        return None
    rows, events, notes = _of_events(_located(analysis, lanes))
    stacks = numbered_stacks(rows.select(_STACK).unique(maintain_order=True))
    stacks = stacks.join(innermost_frames(stacks), on="number", how="left", maintain_order="left")
    leaves = stacks.select(_FUNCTION).unique(maintain_order=True).with_row_index("leaf")
    of_stack = look_up(stacks, leaves, _FUNCTION).select(*_STACK, "number", "leaf")
    rows = look_up(rows, of_stack, _STACK).drop(_STACK).sort(*_ROW, "start_ns", maintain_order=True)
    most = MOST_POINTS
    while True:
        samples = _data(analysis, rows, stacks, events, most, notes)
        in_page = len(packed({"data": samples.data, "details": samples.details}))
        if in_page <= MOST_BYTES or most < 100:
            return samples
        most = int(most * 0.9 * MOST_BYTES / in_page)


def _located(analysis: Analysis, lanes: TimelineLanes) -> pl.DataFrame:
    row = lanes.samples["row"]
    samples = analysis.complete.samples.select(*_STACK, "event", "weight")[row]
    places = analysis.sample_places.select("range", "call")[row]
    return pl.concat([lanes.samples.select("lane", "start_ns"), samples, places], how="horizontal")


def _of_events(rows: pl.DataFrame) -> tuple[pl.DataFrame, list[str | None], list[str]]:
    """Replaces `event` by its number, and adds `line`, the row in the lane. The event whose weights measure time is the
    first. Also returns the names of the events, and sentences on those that are left out."""
    counts = rows.group_by("event", maintain_order=True).agg(samples=pl.len())
    counts = counts.with_columns(event=_col("event").cast(pl.String))
    first = pl.lit(counted_event(counts), dtype=pl.String)
    counts = counts.sort(_col("event").ne_missing(first), -_col("samples").cast(pl.Int64), "event")
    drawn, more = counts.head(MOST_EVENTS), counts[MOST_EVENTS:]
    numbers = drawn.select(_col("event").cast(rows.schema["event"]), number=pl.int_range(pl.len(), dtype=pl.Int64))
    rows = rows.join(numbers, on="event", how="inner", nulls_equal=True, maintain_order="left")
    rows = rows.drop("event").rename({"number": "event"})
    rows = rows.with_columns(line=_col("event").rank("dense").over("lane").cast(pl.Int64) - 1)
    notes = []
    if more.height:
        lost = plural(int(more["samples"].sum()), "sample")
        notes.append(f"{lost} of {plural(more.height, 'event')} are not drawn: those with the fewest samples")
    return rows, drawn["event"].to_list(), notes


def _data(
    analysis: Analysis,
    rows: pl.DataFrame,
    stacks: pl.DataFrame,
    events: list[str | None],
    most: int,
    notes: list[str],
) -> TimelineSamples:
    points, within_ns, lost = _points(rows, most)
    if lost:
        notes = [*notes, f"{plural(lost, 'sample')} of rare functions are not drawn"]
    gap = points.select(_col("start_ns") - _col("start_ns").shift(1, fill_value=0).over(_ROW))["start_ns"]
    used = stacks.filter(_col("number").is_in(points["number"].unique().implode())).sort(_STACK, nulls_last=True)
    places = used.select("number", place=pl.int_range(pl.len(), dtype=pl.Int64))
    several = points.select("count", length_ns=_col("last_ns") - _col("start_ns"), at=pl.int_range(pl.len()))
    several = several.filter(_col("count") > 1)
    of_functions = _functions(used, rows, most)
    data = {
        "events": [
            {"name": None if event is None else text(event), "unit": "ns" if is_ns(event) else "count"}
            for event in events
        ],
        **of_functions,
        "gap": gap,
        "stack": look_up(points, places, ("number",))["place"],
        "weight": of_numbers("weight", "Weight", "count", points["weight"]),
        "several": {
            "at": deltas(several["at"]),
            "count": several["count"],
            "length_ns": several["length_ns"],
        },
        "merged": {"within_ns": within_ns, "samples": int(several["count"].sum()), "of": rows.height},
    }
    details = sample_details(analysis, points["range"], points["call"])
    return TimelineSamples(data, details, _lanes(points, [event["name"] for event in data["events"]]), notes)


def _lanes(points: pl.DataFrame, names: list[str | None]) -> dict[int, dict[str, Any]]:
    rows = points.group_by(*_ROW, maintain_order=True).agg(
        _col("event").first(), shapes=pl.len(), ranges=_col("count").sum()
    )
    lanes = rows.group_by("lane", maintain_order=True).agg("shapes", "ranges", rows="line", events="event")
    shows = [", ".join(names[event] or "no event" for event in events) for events in lanes["events"]]
    return {
        lane.pop("lane"): {
            **lane,
            "shows": f"samples: {listed}" if len(names) > 1 else "samples",
            "ranges": sum(lane["ranges"]),
        }
        for lane, listed in zip(lanes.iter_rows(named=True), shows, strict=True)
    }


def _points(rows: pl.DataFrame, most: int) -> tuple[pl.DataFrame, int, int]:
    """Returns the points that are drawn, at most `most`. Samples of one function are one point if they are in the same
    stretch of time. Also returns the length of these stretches, the shortest power of two with which the points fit, or
    0; and the number of samples that are left out because even the longest is too short."""
    if rows.height <= most:
        one = rows.with_columns(count=pl.lit(1, dtype=pl.Int64), last_ns="start_ns")
        return one, 0, 0

    def key(exponent: int) -> list[pl.Expr]:
        return [*map(_col, (*_ROW, "leaf")), (_col("start_ns") // 2**exponent).alias("stretch")]

    short, long = 0, _LONGEST
    while short < long:
        middle = (short + long) // 2
        fits = rows.select(key(middle)).unique().height <= most
        short, long = (short, middle) if fits else (middle + 1, long)
    points = rows.group_by(key(short), maintain_order=True).agg(
        _col("start_ns", "number", "event").first(),
        pl.when(_col("weight").count() > 0).then(_col("weight").sum()),
        *map(_if_same, ("range", "call")),
        last_ns=_col("start_ns").last(),
        count=pl.len().cast(pl.Int64),
    )
    drawn = points.sort("count", descending=True, maintain_order=True).head(most)
    lost = rows.height - int(drawn["count"].sum())
    return drawn.sort(*_ROW, "start_ns", maintain_order=True), 2**short, lost


def _if_same(name: str) -> pl.Expr:
    column = _col(name)
    return pl.when((column.min() == column.max()) & (column.null_count() == 0)).then(column.first()).alias(name)


def _functions(used: pl.DataFrame, rows: pl.DataFrame, most: int) -> dict[str, Any]:
    """Returns the stacks that points have, as numbers of functions, the outermost first. `leaf` has the innermost
    function of each stack; -1 if it is not known. Libraries are sorted by the number of samples in them."""
    depth = deepest(used["frames"], most)
    frames = frames_of(used, depth)
    is_known = _col("function").ne_missing(BROKEN)
    frames = frames.select("number", "library", function=pl.when(is_known).then(name_by_itself()))
    leaves = used.select("number", "library", function=name_by_itself())
    functions = pl.concat([frames.select(_FUNCTION), leaves.select(_FUNCTION)])
    functions = functions.drop_nulls("function").unique(maintain_order=True)
    names, name = numbered(functions["function"])
    counts = rows["number"].value_counts(sort=True)
    by_library = counts.join(used.select("number", "library"), on="number", maintain_order="left")
    by_library = by_library.group_by("library", maintain_order=True).agg(_col("count").sum()).drop_nulls("library")
    in_order = by_library.sort("count", descending=True, maintain_order=True)["library"]
    libraries, places = numbered(pl.concat([in_order, functions["library"]]))
    number = functions.with_columns(at=pl.int_range(pl.len(), dtype=pl.Int64))

    def at(of: pl.DataFrame) -> pl.Series:
        return of.join(number, on=_FUNCTION, how="left", nulls_equal=True, maintain_order="left")["at"].fill_null(-1)

    return {
        "names": shown(names),
        "libraries": shown(libraries),
        "functions": {"name": deltas(name), "library": deltas(places[len(in_order) :].fill_null(-1))},
        "stacks": {
            "leaf": at(leaves),
            "frames": used["frames"].clip(upper_bound=depth),
            "cut": deltas(used["frames"] - used["frames"].clip(upper_bound=depth)),
            "frame": at(frames),
        },
    }
