"""What a trace means: pure functions that add columns to its frames. docs/analysis.md has the rules.

`analyse(trace)` does all of them in the order they need each other. Each is a module of its own: nest, ops, launches,
autograd, functions, modules, steps, phases, averages, coverage. No vendor here: every source's trace goes the same way.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from opspan.analysis.autograd import autograd
from opspan.analysis.averages import averages, device_time
from opspan.analysis.coverage import Coverage, coverage
from opspan.analysis.functions import functions
from opspan.analysis.launches import Launches, launches
from opspan.analysis.modules import modules
from opspan.analysis.nest import ADDED, nest, trace_end_ns
from opspan.analysis.ops import ops
from opspan.analysis.phases import phases
from opspan.analysis.steps import steps

if TYPE_CHECKING:
    from opspan.trace import Trace

__all__ = [
    "Coverage",
    "Launches",
    "analyse",
    "attribute",
    "autograd",
    "averages",
    "coverage",
    "device_time",
    "functions",
    "launches",
    "modules",
    "nest",
    "ops",
    "phases",
    "steps",
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
