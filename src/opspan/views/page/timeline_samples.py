"""Samples of processors in the timeline: points on a lane of their thread.

A lane has a row for each event, because weights of different events are never added. A point has a time, a stack, a
weight, and the innermost range and call that were open on its thread. If the page has no room for all samples, those in
one library that are close together become one point, at the time of the first of them. It has the name of the function
that most of them were in.
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
COLOURED = (
    8  # the number of libraries that have a colour of their own; the samples in all others become points together
)
MOST_HIDDEN = 1_000  # maximum number of names of samples that are no point of their own
_LONGEST = 62  # exponent of a time that is longer than any trace
_ROW = ("lane", "line")  # the lane and the row of a point
_GROUP = (*_ROW, "colour")
_PLACES = ("range", "call")
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
    stacks = look_up(stacks, _leaves(rows, stacks), _FUNCTION)
    of_stack = stacks.select(*_STACK, "number", "leaf", "colour")
    rows = look_up(rows, of_stack, _STACK).drop(_STACK).sort(*_ROW, "start_ns", maintain_order=True)
    groups = _Groups(rows)
    most = MOST_POINTS
    while True:
        samples = _data(analysis, groups, stacks, events, most, notes)
        in_page = len(packed({"data": samples.data, "details": samples.details}))
        if in_page <= MOST_BYTES or most < 100:
            return samples
        most = int(min(most, len(samples.data["gap"])) * 0.9 * MOST_BYTES / in_page)


def _leaves(rows: pl.DataFrame, stacks: pl.DataFrame) -> pl.DataFrame:
    """Returns the innermost functions of samples: function, library, leaf (its number), and colour: the number of its
    library, 0 for the one with most samples, or COLOURED if it has no colour of its own."""
    counts = rows.group_by(_STACK).agg(samples=pl.len())
    counts = stacks.select(*_STACK, *_FUNCTION).join(counts, on=_STACK, nulls_equal=True, maintain_order="left")
    leaves = counts.group_by(_FUNCTION, maintain_order=True).agg(_col("samples").sum()).with_row_index("leaf")
    libraries = leaves.drop_nulls("library").group_by("library", maintain_order=True).agg(_col("samples").sum())
    libraries = libraries.sort("samples", descending=True, maintain_order=True).head(COLOURED)
    libraries = libraries.select("library", colour=pl.int_range(pl.len(), dtype=pl.Int64))
    leaves = leaves.join(libraries, on="library", how="left", maintain_order="left")
    return leaves.select(*_FUNCTION, "leaf", _col("colour").fill_null(COLOURED))


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
    groups: _Groups,
    stacks: pl.DataFrame,
    events: list[str | None],
    most: int,
    notes: list[str],
) -> TimelineSamples:
    rows = groups.rows
    points, within_ns = groups.points(most)
    if lost := rows.height - int(points["count"].sum()):
        notes = [*notes, f"{plural(lost, 'sample')} of libraries with few samples are not drawn"]
    gap = points.select(_col("start_ns") - _col("start_ns").shift(1, fill_value=0).over(_ROW))["start_ns"]
    used = stacks.filter(_col("number").is_in(points["number"].unique().implode())).sort(_STACK, nulls_last=True)
    places = used.select("number", place=pl.int_range(pl.len(), dtype=pl.Int64))
    length_ns = _col("last_ns") - _col("start_ns")
    several = points.select("count", "own", length_ns=length_ns, at=pl.int_range(pl.len())).filter(_col("count") > 1)
    data = {
        "events": [
            {"name": None if event is None else text(event), "unit": "ns" if is_ns(event) else "count"}
            for event in events
        ],
        **_functions(used, stacks, _hidden(rows, points, stacks), most),
        "gap": gap,
        "stack": look_up(points, places, ("number",))["place"],
        "weight": of_numbers("weight", "Weight", "count", points["weight"]),
        "several": {"at": deltas(several["at"]), **several.drop("at").to_dict()},
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


class _Groups:
    """Samples that become one point if the page has no room for all: those of a thread and an event that are in the
    same stretch of time, and in the same library."""

    def __init__(self, rows: pl.DataFrame) -> None:
        self.rows = rows
        in_order = rows.select(*_GROUP, "start_ns").sort(*_GROUP, "start_ns")
        is_first = pl.any_horizontal(_col(name) != _col(name).shift(1) for name in _GROUP).fill_null(value=True)
        self._times = in_order.select("start_ns", is_first=is_first)

    def points(self, most: int) -> tuple[pl.DataFrame, int]:
        """Returns at most `most` points: the columns of the samples, count (the number of samples), and own (the number
        of those in the function of the point). Also returns the length of the stretches, the shortest power of two with
        which the points fit, or 0. Even if the longest are too short, returns the points of most samples."""
        if self.rows.height <= most:
            one = pl.lit(1, dtype=pl.Int64)
            return self.rows.with_columns(count=one, own=one, last_ns="start_ns"), 0
        short, long = 0, _LONGEST
        while short < long:
            middle = (short + long) // 2
            short, long = (short, middle) if self._count(middle) <= most else (middle + 1, long)
        points = self._grouped(short)
        if points.height > most:
            points = points.sort("count", descending=True, maintain_order=True).head(most)
        return points.sort(*_ROW, "start_ns", maintain_order=True), 2**short

    def _count(self, exponent: int) -> int:
        stretch = _col("start_ns") // 2**exponent
        return int(self._times.select((_col("is_first") | (stretch != stretch.shift(1))).sum()).item())

    def _grouped(self, exponent: int) -> pl.DataFrame:
        stretch = (_col("start_ns") // 2**exponent).alias("stretch")
        by_function = self.rows.group_by(*_GROUP, stretch, "leaf", maintain_order=True).agg(
            _col("start_ns", "number", "event").first(),
            pl.when(_col("weight").count() > 0).then(_col("weight").sum()),
            *(_col(name).min().alias(f"least_{name}") for name in _PLACES),
            *(_col(name).max() for name in _PLACES),
            *(_col(name).null_count().alias(f"no_{name}") for name in _PLACES),
            last_ns=_col("start_ns").last(),
            own=pl.len().cast(pl.Int64),
        )
        by_function = by_function.sort("own", descending=True, maintain_order=True)
        return by_function.group_by(*_GROUP, "stretch", maintain_order=True).agg(
            _col("start_ns").min(),
            _col("last_ns").max(),
            _col("leaf", "number", "event", "own").first(),
            pl.when(_col("weight").count() > 0).then(_col("weight").sum()),
            *map(_if_same, _PLACES),
            count=_col("own").sum(),
        )


def _if_same(name: str) -> pl.Expr:
    is_same = (_col(f"least_{name}").min() == _col(name).max()) & (_col(f"no_{name}").sum() == 0)
    return pl.when(is_same).then(_col(name).max()).alias(name)


def _hidden(rows: pl.DataFrame, points: pl.DataFrame, stacks: pl.DataFrame) -> pl.DataFrame:
    """Returns the functions with most samples that are in no point of their function: function, library and count."""
    counts = {"every": rows.group_by("leaf").agg(every=pl.len().cast(pl.Int64))}
    counts["own"] = points.group_by("leaf").agg(own=_col("own").sum())
    hidden = counts["every"].join(counts["own"], on="leaf", how="left")
    hidden = hidden.select("leaf", count=_col("every") - _col("own").fill_null(0)).filter(_col("count") > 0)
    hidden = hidden.sort("count", "leaf", descending=[True, False]).head(MOST_HIDDEN)
    return hidden.join(stacks.select("leaf", *_FUNCTION).unique("leaf"), on="leaf", maintain_order="left")


def _functions(used: pl.DataFrame, stacks: pl.DataFrame, hidden: pl.DataFrame, most: int) -> dict[str, Any]:
    """Returns the stacks that points have, as numbers of functions, the outermost first. `leaf` has the innermost
    function of each stack; -1 if it is not known. The first libraries are those that have a colour of their own."""
    depth = deepest(used["frames"], most)
    frames = frames_of(used, depth)
    is_known = _col("function").ne_missing(BROKEN)
    frames = frames.select("number", "library", function=pl.when(is_known).then(name_by_itself()))
    leaves = used.select("number", "library", function=name_by_itself())
    functions = pl.concat([frames.select(_FUNCTION), leaves.select(_FUNCTION)])
    functions = functions.drop_nulls("function").unique(maintain_order=True)
    hidden = hidden.with_columns(function=name_by_itself()).drop_nulls("function")
    hidden = hidden.group_by("function", maintain_order=True).agg(_col("count").sum())
    names, name = numbered(pl.concat([functions["function"], hidden["function"]]))
    coloured = stacks.filter(_col("colour") < COLOURED).unique("colour").sort("colour")["library"]
    libraries, places = numbered(pl.concat([coloured, functions["library"]]))
    number = functions.with_columns(at=pl.int_range(pl.len(), dtype=pl.Int64))

    def at(of: pl.DataFrame) -> pl.Series:
        return of.join(number, on=_FUNCTION, how="left", nulls_equal=True, maintain_order="left")["at"].fill_null(-1)

    return {
        "names": shown(names),
        "libraries": shown(libraries),
        "hidden": {"name": deltas(name[functions.height :]), "count": hidden["count"]},
        "functions": {
            "name": deltas(name[: functions.height]),
            "library": deltas(places[len(coloured) :].fill_null(-1)),
        },
        "stacks": {
            "leaf": at(leaves),
            "frames": used["frames"].clip(upper_bound=depth),
            "cut": deltas(used["frames"] - used["frames"].clip(upper_bound=depth)),
            "frame": at(frames),
        },
    }
