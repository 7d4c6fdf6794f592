"""The critical path of a run, and how long the run would take if an op or a kind of time were faster or slower:
`opspan path`."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import replace

import polars as pl

from opspan.analysis import Analysis
from opspan.analysis.busy import step_times
from opspan.analysis.lanes import in_lanes
from opspan.analysis.meetings import Meetings
from opspan.analysis.parts import Part, Parts
from opspan.analysis.path_cuts import KINDS
from opspan.analysis.spans import MOST, PROCESS
from opspan.analysis.what_if import what_if
from opspan.errors import UsageError
from opspan.printable import printable
from opspan.questions import Options, Question
from opspan.views import of_ranges
from opspan.views.answer import Answer
from opspan.views.fields import PLACES, SHARE, STEP, TIME, Field, share, shares_of_kinds, time_text, varying_fields

_STEP = ("rank", "pid", "step")
_TITLES = {
    "computing": "Computing",
    "communicating": "Comm",
    "copying": "Copies",
    "filling": "Fills",
    "launch": "Launch",
    "queued": "Queued",
    "host": "Host",
    "call": "API calls",
    "wait": "Waits",
    "unknown": "Unknown",
}
_AFTER = Field("after_ns", "Would take", "ns")
_OF_IT = share("after_ns", "Of it", "time_ns", "Time")
_SHARE = replace(SHARE, total_title="the whole path")
_PIECES = Field("pieces", "Pieces", "count", rank=5)
_col = pl.col


def parts(analysis: Analysis, options: Options) -> Parts:
    """Returns sums over the pieces of the critical path. If factors are given, returns the steps instead, and how long
    each would take with these factors."""
    factors = options.factors
    if not factors:
        return _parts(analysis, options.by)
    _check(factors)
    is_known = _col("work").is_in(analysis.meetings.parts["row"].implode()).fill_null(value=False)
    alone = analysis.collectives.filter(~is_known, _col("group_size").ne_missing(1))
    alone = alone.group_by(PROCESS, maintain_order=True).agg(collectives=pl.len().cast(pl.Int64))
    return {**_what_if_parts(analysis, factors, analysis.meetings), "alone": Part(alone, PROCESS)}


@in_lanes
def _what_if_parts(analysis: Analysis, factors: Mapping[str, float], meetings: Meetings) -> Parts:
    steps = step_times(analysis.complete, analysis.iterations)
    times = what_if(analysis.attributed, steps, analysis.waits, analysis.path_graph, factors, meetings)
    names = analysis.complete.ranges.select(_col("name").unique().cast(pl.String)).drop_nulls()
    rows = steps.select(_STEP).hstack(times.steps.select(time_ns="before_ns", after_ns="after_ns"))
    return {
        "rows": Part(rows.with_columns(change_ns=_col("after_ns") - _col("time_ns"))),
        "names": Part(names, ("name",)),
        "processes": Part(times.processes, PROCESS),
    }


@in_lanes
def _parts(analysis: Analysis, by: str) -> Parts:
    steps = step_times(analysis.complete, analysis.iterations)
    pieces = analysis.path
    if by == "step":
        sums = _sums(pieces, pieces["number"], "number").sort("number")
        numbered = steps.select(_STEP).with_row_index("number").join(sums, on="number", how="left")
        return {"rows": Part(numbered.sort("number").drop("number").with_columns(pl.exclude(_STEP).fill_null(0)))}
    names = pieces["kind"] if by == "kind" else of_ranges.names(analysis, by, pieces["range"])
    return {"rows": Part(_sums(pieces, names, by).with_columns(_col(by).cast(pl.String)), (by,))}


def rows(parts: Parts, options: Options) -> pl.DataFrame:
    rows, by, factors = parts["rows"].rows, options.by, options.factors
    if factors:
        _check_known(factors, [*KINDS, *parts["names"].rows["name"]])
    if factors or by == "step":
        return rows
    path_ns = rows["time_ns"].sum()
    share_of_path = pl.when(pl.lit(path_ns) > 0).then(_col("time_ns") / path_ns)
    rows = rows.with_columns(share=share_of_path).select(by, "time_ns", "share", pl.exclude(by, "time_ns", "share"))
    return rows.sort("time_ns", descending=True, maintain_order=True)


def _sums(pieces: pl.DataFrame, key: pl.Series, by: str) -> pl.DataFrame:
    """Sums the time of pieces by `key`, which has a value for each piece. The sums are in the order in which the values
    of `key` first occur."""
    ns = _col("end_ns") - _col("start_ns")  # negative only if the difference overflowed
    # Combine the name and the kind in one number: grouping by one column is twice as fast as by two.
    name = (pl.lit(key.to_physical()).cast(pl.UInt32) + 1).fill_null(0)
    number = name * len(KINDS) + _col("kind").to_physical()
    numbered = pieces.select(key.alias("key"), "kind", number=number, time_ns=pl.when(ns < 0).then(MOST).otherwise(ns))
    sums = numbered.group_by("number", maintain_order=True).agg(
        _col("key", "kind").first(), _col("time_ns").sum(), pieces=pl.len().cast(pl.Int64)
    )
    kinds = () if by == "kind" else KINDS
    of_kinds = [_col("time_ns").filter(_col("kind") == kind).sum().alias(f"{kind}_ns") for kind in kinds]
    return sums.group_by(_col("key").alias(by), maintain_order=True).agg(_col("time_ns", "pieces").sum(), *of_kinds)


def _check_known(factors: Mapping[str, float], known: list[str]) -> None:
    for name in factors:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            meant = f"; did you mean {printable(close[0])!r}?" if close else ""
            raise UsageError(f"no op of this trace is called {printable(name)!r}, nor is a kind of time{meant}")


def _check(factors: Mapping[str, float]) -> None:
    for name, factor in factors.items():
        if not (math.isfinite(factor) and factor >= 0):
            raise UsageError(f"{printable(name)} cannot take {factor} times as long: expected a number, 0 or more")


def factors_of(texts: tuple[str, ...]) -> dict[str, float]:
    """Parses texts of the form NAME=FACTOR."""
    factors: dict[str, float] = {}
    for text in texts:
        name, is_there, number = text.rpartition("=")
        try:
            factor = float(number)
        except ValueError:
            factor = math.nan
        if not (name and is_there and math.isfinite(factor) and factor >= 0):
            raise UsageError(f"--what-if {printable(text)!r}: expected NAME=FACTOR, such as 'aten::mm=0.5'")
        if name in factors:
            raise UsageError(f"--what-if says twice what {printable(name)!r} would take")
        factors[name] = factor
    return factors


def answer(parts: Parts, options: Options) -> Answer:
    table, by = rows(parts, options), options.by
    places = varying_fields(PLACES[:2], table) if table.height else []
    if options.factors:
        return Answer("path", table, (*places, STEP, TIME, _AFTER, _OF_IT), tuple(_what_if_notes(table, parts)))
    names = [*places, STEP] if by == "step" else [of_ranges.field("Path", by)]
    of_path = [] if by == "step" else [_SHARE]
    shares = [] if by == "kind" else shares_of_kinds(_TITLES, table, "time_ns", "Time")
    notes = [] if table.height else ["There is nothing in this trace: no ranges, no calls, no work"]
    return Answer("path", table, (*names, TIME, *of_path, _PIECES, *shares), tuple(notes))


def run_times(parts: Parts) -> tuple[int, int] | None:
    """Returns how long the run took, and how long it would take, or None if this is unknown. Each of the two times
    is that of the process with the longest time."""
    processes = parts["processes"].rows
    before, after = processes["before_ns"].max(), processes["after_ns"].max()
    if processes["after_ns"].null_count() or not before or _wait_unknown(parts):
        return None
    return int(before), int(after)  # type: ignore[arg-type]


def _wait_unknown(parts: Parts) -> bool:
    """Returns whether processes wait for each other at unknown times, because some collectives could not be matched."""
    return parts["processes"].rows.height > 1 and parts["alone"].rows.height > 0


def _what_if_notes(rows: pl.DataFrame, parts: Parts) -> list[str]:
    notes = [*_step_notes(rows), *_run_notes(rows, parts)]
    if alone := parts["alone"].rows["collectives"].sum():
        notes.append(f"{alone:,} collectives take as long as they did: when other ranks would come to them is unknown")
    return notes


def _run_notes(rows: pl.DataFrame, parts: Parts) -> list[str]:
    if _wait_unknown(parts):
        return ["How long the whole run would take is unknown: ranks wait for each other, and where is not known"]
    times = run_times(parts)
    if times is None:
        return []  # no time at all, or an overflow
    before, after = times
    if rows.height == 1 and rows["time_ns"][0] == before:
        return []  # the only step is the whole run
    change = f"{100 * (after - before) / before:+.1f}%"
    return [f"The whole run would take {time_text(after)} instead of {time_text(before)}: {change}"]


def _step_notes(rows: pl.DataFrame) -> list[str]:
    before, after = int(rows["time_ns"].sum()), int(rows["after_ns"].sum())
    if not before or rows["after_ns"].null_count():
        return []
    change = f"{100 * (after - before) / before:+.1f}%"
    if rows.height == 1:
        return [f"It would take {time_text(after)} instead of {time_text(before)}: {change}"]
    medians = [time_text(rows.select(_col(name).median().cast(pl.Int64)).item()) for name in ("after_ns", "time_ns")]
    all_steps = f"all {rows.height} together {time_text(after)} instead of {time_text(before)}: {change}"
    return [f"A step would take {medians[0]} instead of {medians[1]} (median), {all_steps}"]


QUESTION = Question("path", parts, rows, answer)
