"""Cuts a trace to a window, which is a time span or some steps. Rows that overlap the window are kept, and their times
are not changed. If the window is given by steps, work that ran later on a device is kept too if a kept row launched it.

Steps are torch's ProfilerStep#N, chosen by number, or ranges chosen by a name (`step`) or a pattern (`epoch *`). Code
that has found other steps by analysis passes the time span of these steps to `cut`.

Times of a window are relative to the begin of the trace. The time of a capture of opspan begins when its file was
opened. The time of any other trace begins with its first range, call or work.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from opspan.errors import NoNumberedSteps, NoSuchStep, UsageError
from opspan.printable import LONGEST_LINE, listed
from opspan.row_numbers import ROW_NUMBER
from opspan.tables.issues import Issues
from opspan.tables.names import matching
from opspan.tables.schema import STEP
from opspan.tables.tables import STRETCH, Tables

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# For each table, the columns with the begin and the end of a row.
_TIMES = {
    "ranges": ("start_ns", "end_ns"),
    "calls": ("start_ns", "end_ns"),
    "work": ("start_ns", "end_ns"),
    "functions": ("start_ns", "end_ns"),
    "relations": ("time_ns", None),
    "memory": ("time_ns", "end_ns"),
    "samples": ("time_ns", None),
    "counters": ("time_ns", None),
}
_CALL = ("rank", "pid", "correlation_id")  # columns that a call and its work share
_DEEPEST = 1000  # only damaged files nest captured ops deeper
FOREVER, _EARLIEST = 2**63 - 1, -(2**63)
Steps = tuple[int, int] | str  # numbers of the first and the last step, or a name or pattern of steps


@dataclass(frozen=True)
class Window:
    """The part of a trace that a user requests: either a time span or steps."""

    between: tuple[int, int] | None = None  # the time span, in ns since the begin of the trace
    steps: Steps | None = None

    def __post_init__(self) -> None:
        if self.between is not None and self.steps is not None:
            raise UsageError("both a time span (between) and steps (step) were given; expected one of them")
        if self.between is not None and self.between[0] >= self.between[1]:
            raise UsageError(f"between={self.between} is an empty time span; expected START < END, in nanoseconds")
        if isinstance(self.steps, tuple) and self.steps[0] > self.steps[1]:
            raise UsageError(
                f"steps {self.steps[0]}-{self.steps[1]} are in the wrong order; expected the lower number first"
            )

    def __str__(self) -> str:
        if self.between is not None:
            return f"between {self.between[0] / 1e9:g} s and {self.between[1] / 1e9:g} s"
        return _text_of(self.steps or (0, 0))


class Stretch(NamedTuple):
    """A time span on the trace's clock. It includes start_ns and excludes end_ns."""

    start_ns: int
    end_ns: int

    def overlaps(self, start: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Returns, for each row, whether it overlaps the stretch. A row without duration overlaps the stretch if the
        row begins in it."""
        return (start < self.end_ns) & ((start >= self.start_ns) | (end > self.start_ns))

    def overlap(self, start: pl.Expr, end: pl.Expr) -> pl.Expr:
        """Returns an expression for the result of `overlaps`. If the end is null, the row counts as endless. If the
        start is null, the result is False."""
        known = end.fill_null(FOREVER)
        return ((start < self.end_ns) & ((start >= self.start_ns) | (known > self.start_ns))).fill_null(value=False)


def options_of(window: Window | None, stretch: Stretch | None) -> dict[str, Any]:
    """Returns the entries of a trace's options that say which part of the trace was read."""
    if window is None or stretch is None:
        return {}
    return {"window": str(window), STRETCH: [stretch.start_ns, stretch.end_ns]}


def stretches(trace: Tables) -> dict[int, Stretch]:
    """Returns the time span that was read, for each rank of which only a part was read."""
    parts = {rank.rank: rank.options.get(STRETCH) for rank in trace.ranks}
    return {number: Stretch(*ends) for number, ends in parts.items() if ends is not None}


def _text_of(steps: Steps) -> str:
    if isinstance(steps, str):
        return f"steps {steps!r}"
    first, last = steps
    return f"step {first}" if first == last else f"steps {first} to {last}"


def numbers_of(names: pl.Series, steps: Steps) -> pl.Series:
    """Returns the number in each name of a numbered step. If the steps are chosen by name, returns 0 for the names that
    match. All other names give null."""
    texts = names.cast(pl.String)
    if isinstance(steps, tuple):
        return texts.str.extract(STEP).cast(pl.Int64)
    named = matching(texts.unique().to_list(), steps)
    is_step = texts.is_in(pl.Series(named, dtype=pl.String).implode()).fill_null(value=False)
    return pl.Series([0], dtype=pl.Int64).new_from_index(0, len(texts)).set(~is_step, None)


def of_steps(steps: Steps, numbers: pl.Series, starts: pl.Series, ends: pl.Series) -> Stretch:
    """Returns the stretch from the begin of the first step to the end of the last, over all processes. `numbers`,
    `starts` and `ends` have a row for each step of the trace; an unknown end is null."""
    is_wanted = numbers.is_between(*steps) if isinstance(steps, tuple) else numbers.is_not_null()
    if not is_wanted.any():
        if isinstance(steps, str):
            raise NoSuchStep(
                f"no range is called {steps!r}, and no name matches it as a pattern; `opspan table FILE` lists them. "
                "Or choose steps ProfilerStep#N by number (--step 7), or a time span (--between)"
            )
        if not len(numbers):
            raise NoNumberedSteps(
                f"there is no {_text_of(steps)}: the trace has no ranges ProfilerStep#N, and neither its ranges nor an "
                "optimizer tell what its steps are; if your steps have names, give one: --step 'train step*', or "
                "choose a time span (--between)"
            )
        raise NoSuchStep(
            f"there is no {_text_of(steps)}: the trace has steps {min(numbers.to_list())} to {max(numbers.to_list())}; "
            "choose other steps, or a time span (--between)"
        )
    begins, closes = starts.filter(is_wanted).to_list(), ends.filter(is_wanted).fill_null(FOREVER).to_list()
    return Stretch(min(begins), max(closes))


def cut(trace: Tables, window: Window, stretch: Stretch | None = None) -> Tables:
    """Returns the rows of a trace that overlap the window. If the window is given in steps, also returns the work that
    these steps launched. References to rows that were cut become null. `stretch` is the time span of the window, if the
    caller knows it."""
    if stretch is None:
        stretch = _stretch(trace, window)
    frames: dict[str, pl.DataFrame] = {}
    for name, (start, end) in _TIMES.items():
        frame = getattr(trace, name)
        until = pl.lit(None, dtype=pl.Int64) if end is None else pl.col(end)
        if end is None or name == "memory":
            until = pl.coalesce(until, pl.col(start))
        elif name == "ranges":
            until = pl.when(pl.col("is_mark")).then(pl.col(start)).otherwise(until)
        is_kept = frame.select(stretch.overlap(pl.col(start), until)).to_series()
        if name == "work" and window.steps is not None:
            is_kept |= _launched(trace, frames["ranges"], frames["calls"], stretch)
        frames[name] = frame.filter(is_kept)
    frames["ranges"] = _with_replayed(trace.ranges, frames["ranges"], frames["work"])
    for name in ("ranges", "functions"):
        frames[name] = without_lost_parents(frames[name])
    issues = Issues(listed(trace.metadata.paths, longest=LONGEST_LINE))
    issues.add("outside_window", sum(trace.frames[name].height - kept.height for name, kept in frames.items()))
    ranks = [replace(rank, options={**rank.options, **options_of(window, stretch)}) for rank in trace.ranks]
    return Tables(tuple(ranks), **{**trace.frames, **frames, "issues": pl.concat([trace.issues, issues.frame()])})


def _with_replayed(ranges: pl.DataFrame, timed: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """Adds the captured ops that the work of replayed graphs repeats, and the ops around them. These ops have no
    times."""
    level = work.select(id="replayed_range_id").drop_nulls().unique()
    if not level.height:
        return timed
    timeless = ranges.filter(pl.col("start_ns").is_null())
    levels: list[pl.DataFrame] = []
    while level.height and len(levels) < _DEEPEST:
        rows = timeless.join(level, on="id", how="semi")
        levels.append(rows)
        level = rows.select(id="parent_id").drop_nulls().unique()
    replayed = pl.concat(levels).unique("id").join(timed, on="id", how="anti")
    return pl.concat([timed, replayed.sort("id")])


def _launched(trace: Tables, ranges: pl.DataFrame, calls: pl.DataFrame, stretch: Stretch) -> pl.Series:
    """Returns, for each row of work, whether one of these calls launched it. For work that names a range
    instead of a call, returns whether that range is in `ranges` and began in the stretch."""
    work = trace.work.select(*_CALL, "start_ns", row=pl.int_range(pl.len(), dtype=ROW_NUMBER))
    # Several calls may have the work's correlation id. Then the launch is the last of these calls that began before the
    # work or, if all of them began later, the first one.
    maybe = work.join(calls, on=_CALL, how="semi", nulls_equal=True).drop_nulls("correlation_id")
    of_calls = trace.calls.select(*_CALL, "id", called_ns="start_ns")
    pairs = maybe.join(of_calls, on=_CALL, nulls_equal=True)
    pairs = pairs.with_columns(pl.col("called_ns", "start_ns").fill_null(_EARLIEST)).sort("called_ns", "id")
    is_before = pl.col("called_ns") <= pl.col("start_ns")
    launch = pl.coalesce(pl.col("id").filter(is_before).last(), pl.col("id").first())
    launched = pairs.group_by("row").agg(launch).filter(pl.col("id").is_in(calls["id"].implode()))
    begun = ranges["id"].filter(ranges["start_ns"].is_between(stretch.start_ns, stretch.end_ns, closed="left"))
    is_named = trace.work["named_range_id"].is_in(begun.implode()).fill_null(value=False)
    return is_named.scatter(launched["row"], True) if launched.height else is_named


def _stretch(trace: Tables, window: Window) -> Stretch:
    if window.between is not None:
        begin = trace.begin_ns("ranges", "calls", "work") or 0
        return Stretch(begin + window.between[0], begin + window.between[1])
    wanted = window.steps or (0, 0)
    ranges = trace.ranges.filter(~pl.col("is_mark").fill_null(value=False))
    steps = ranges.select(numbers_of(ranges["name"], wanted).alias("step"), "start_ns", "end_ns")
    steps = steps.drop_nulls(["step", "start_ns"])
    return of_steps(wanted, steps["step"], steps["start_ns"], steps["end_ns"])


def without_lost_parents(frame: pl.DataFrame) -> pl.DataFrame:
    """Sets parent_id to null if the parent is not in the frame."""
    if not frame["parent_id"].count():
        return frame
    return frame.with_columns(pl.when(pl.col("parent_id").is_in(frame["id"].implode())).then("parent_id"))


def parsed_steps(text: str) -> Steps:
    """Reads steps from "7", "7-9" or "7:9". The last number is included. Any other text is a name or a pattern."""
    match = re.fullmatch(r"([0-9]{1,18})(?:[-:]([0-9]{1,18}))?", text.strip())
    if match is not None:
        return int(match[1]), int(match[2] or match[1])
    if not text.strip():
        raise UsageError(f"{text!r} is not a step; expected a number such as 7, two numbers such as 7:9, or a name")
    return text


_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "": 10**9, "min": 60 * 10**9}


def parsed_time_ns(text: str) -> int:
    """Reads a time such as "1.5s", "200ms" or "2min". A number without a unit means seconds."""
    match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)\s*(ns|us|ms|s|min|)", text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a time; expected a number and a unit, such as 1.5s, 200ms or 2min")
    return round(float(match[1]) * _UNITS[match[2]])
