"""Sentences on steps: their number and length, the time outside of them, and patterns that repeat.

All outputs use these sentences and the figures of `analysis`, so that outputs do not contradict each other.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis import Analysis
from opspan.analysis.busy import whole_times, within_part
from opspan.analysis.outside import between, outside
from opspan.analysis.parts import Part, Parts
from opspan.analysis.spans import PROCESS
from opspan.analysis.step_lengths import Lengths
from opspan.analysis.step_lengths import parts as parts_of_lengths
from opspan.printable import plural
from opspan.views.fields import short_name, time_text

_col = pl.col
_OUTSIDE, _BETWEEN, _PATTERNS = "outside", "between steps", "patterns"
_LITTLE = 0.01  # a time below this share of the run's time is not mentioned
_MOST_NAMES = 3
_MOST_PATTERNS = 2
_NAME = 40  # maximum length of a name


def parts(analysis: Analysis, steps: pl.DataFrame | None = None) -> Parts:
    """Returns the figures for the sentences of this module, in a form that can be added up over ranks (Parts). If
    `steps` is given, it replaces the steps of the trace."""
    lengths, trace = parts_of_lengths(analysis, steps), analysis.complete
    steps = analysis.iterations if steps is None else steps
    times = outside(within_part(whole_times(trace), trace), within_part(steps, trace))
    return lengths | {
        _OUTSIDE: Part(times.drop(PROCESS).sum(), ()),
        _BETWEEN: Part(between(steps, trace.ranges), ("name",)),
        _PATTERNS: Part(analysis.patterns),
    }


def columns(parts: Parts) -> dict[str, int | None]:
    """Returns columns for JSON. Times outside of steps are null if there are no steps; figures of the pattern are null
    if nothing repeats."""
    times = parts[_OUTSIDE].rows.row(0, named=True)
    repeats = _longest_first(parts)
    return {
        **{name: times[name] if times["whole_ns"] else None for name in ("startup_ns", "between_ns", "after_ns")},
        "pattern_turns": repeats["turns"][0] if repeats.height else None,
        "pattern_ns": repeats["turn_ns"][0] if repeats.height else None,
    }


def number_text(lengths: Lengths) -> str:
    """Returns a text like "16 steps in each of 2 processes"."""
    steps = plural(lengths.steps, "step")
    if lengths.processes < 2:
        return steps
    return f"{'' if lengths.are_alike else 'up to '}{steps} in each of {lengths.processes:,} processes"


def lengths_text(lengths: Lengths) -> str:
    """Returns a text like "median 1.015s, mean 678.645ms, 5 steps" or "678.645ms, 1 step", or "" without steps."""
    if lengths.median_ns is None or lengths.mean_ns is None:
        return ""
    if lengths.steps == lengths.processes == 1:
        return f"{time_text(lengths.median_ns)}, 1 step"
    return f"median {time_text(lengths.median_ns)}, mean {time_text(lengths.mean_ns)}, {number_text(lengths)}"


def outside_texts(parts: Parts) -> list[str]:
    """Returns texts with the times before, between and after steps, each with its share of the run's time. Small shares
    are left out."""
    times = parts[_OUTSIDE].rows.row(0, named=True)
    run_ns = times["whole_ns"] or 0
    times_outside = {
        "start-up before the first step": times["startup_ns"] or 0,
        "between steps": times["between_ns"] or 0,
        "after the last step": times["after_ns"] or 0,
    }
    texts: list[str] = []
    for where, ns in times_outside.items():
        if run_ns and ns >= _LITTLE * run_ns:
            names = _names(parts, run_ns) if where == "between steps" else ""
            of_run = "" if texts else " of the run"
            texts.append(f"{where} {time_text(ns)} ({ns / run_ns:.1%}{of_run}{names})")
    return texts


def _names(parts: Parts, run_ns: int) -> str:
    rows = parts[_BETWEEN].rows.filter(_col("ns") >= _LITTLE * run_ns).sort("ns", descending=True, maintain_order=True)
    return "".join(f"; {short_name(name, _NAME)} {time_text(ns)}" for name, ns in rows.head(_MOST_NAMES).iter_rows())


def pattern_text(parts: Parts) -> str:
    """Returns a text like "a repeating pattern (23 x 6.498ms)", or "" if nothing repeats."""
    rows = _longest_first(parts)
    if not rows.height:
        return ""
    turns = [f"{turns:,} x {time_text(ns)}" for turns, ns in rows.head(_MOST_PATTERNS).iter_rows()]
    more = [f"{rows.height - _MOST_PATTERNS:,} more"] if rows.height > _MOST_PATTERNS else []
    return f"{'a repeating pattern' if rows.height == 1 else 'repeating patterns'} ({', '.join([*turns, *more])})"


def _longest_first(parts: Parts) -> pl.DataFrame:
    rows = parts[_PATTERNS].rows.select("turns", "turn_ns")
    return rows.sort(_col("turns") * _col("turn_ns"), descending=True, maintain_order=True)
