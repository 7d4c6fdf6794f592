"""What a trace means: pure functions that add columns to its frames. docs/analysis.md has the rules.

`analyse(trace)` does all of them in the order they need each other. Each is a module of its own: nest, ops, launches,
autograd, functions, modules, steps, phases, memory, averages, calls, coverage. No vendor here: every source's trace
goes the same way.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import polars as pl

from opspan.analysis.autograd import autograd
from opspan.analysis.averages import averages, device_time
from opspan.analysis.calls import calls_of
from opspan.analysis.coverage import Coverage, coverage
from opspan.analysis.functions import functions
from opspan.analysis.launches import Launches, launches
from opspan.analysis.memory import memory
from opspan.analysis.modules import modules
from opspan.analysis.nest import ADDED, nest, trace_end_ns
from opspan.analysis.ops import ops
from opspan.analysis.phases import phases
from opspan.analysis.steps import steps, steps_named, torch_steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opspan.trace import Trace

__all__ = [
    "Coverage",
    "Launches",
    "analyse",
    "analyse_like",
    "attribute",
    "autograd",
    "averages",
    "calls_of",
    "coverage",
    "device_time",
    "functions",
    "launches",
    "memory",
    "modules",
    "nest",
    "ops",
    "phases",
    "steps",
    "steps_named",
]


def attribute(trace: Trace) -> Trace:
    """What a table needs: ranges nested and read, launches attributed, backward linked, device time summed."""
    with ThreadPoolExecutor(2) as pool:
        end_ns = trace_end_ns(trace.ranges, trace.calls, trace.work)
        nested = pool.submit(nest, trace.ranges, end_ns)
        named = ops(trace.ranges)
        ranges = named.with_columns(nested.result().select(ADDED))
        launched = pool.submit(launches, ranges, trace.calls, trace.work)
        ranges = functions(autograd(ranges), trace.functions)
        ranges = device_time(ranges, launched.result().work)
    return trace.replace(ranges=ranges, calls=launched.result().calls, work=launched.result().work)


def analyse(trace: Trace, step_pattern: str | None = None) -> Trace:
    """`attribute`, and modules, steps and phases."""
    attributed = attribute(trace)
    return attributed.replace(ranges=phases(steps(modules(attributed.ranges, attributed.functions), step_pattern)))


def analyse_like(trace: Trace, others: Sequence[Trace]) -> Trace:
    """A trace that was put together from others, with what was found of any of those, found of the whole."""
    attributed = attribute(trace)
    ranges = attributed.ranges
    if any("module" in other.ranges.columns for other in others):
        ranges = modules(ranges, attributed.functions)
    if stepped := [other.ranges for other in others if "step" in other.ranges.columns]:
        # What pattern found the steps is not known; what it found is.
        found = {name for frame in stepped for name in frame["step"].unique()} - {None}
        torchs = {name for frame in stepped for name in torch_steps(frame)}
        ranges = steps(ranges) if found == torchs else steps_named(ranges, pl.Series(sorted(found), dtype=pl.String))
    if any("phase" in other.ranges.columns for other in others):
        ranges = phases(ranges)
    return attributed.replace(ranges=ranges)
