"""Analysed: tables, and what is found of them. Each is found once, when it is first asked for, and kept.

What needs more than the tables themselves (events, views, findings) takes one of these: nobody has to look at columns
to see what was done already.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from opspan.analysis.autograd import autograd
from opspan.analysis.averages import device_time
from opspan.analysis.coverage import Coverage, coverage
from opspan.analysis.functions import functions
from opspan.analysis.launches import launches
from opspan.analysis.memory import memory
from opspan.analysis.modules import modules
from opspan.analysis.nest import ADDED, nest, trace_end_ns
from opspan.analysis.ops import ops
from opspan.analysis.phases import phases
from opspan.analysis.steps import steps

if TYPE_CHECKING:
    from opspan.tables import Tables

T = TypeVar("T", bound="Tables")


class Analysed:
    def __init__(self, tables: Tables, attributed: Tables | None = None) -> None:
        """`attributed`: where somebody has that already."""
        self.tables = tables.without_analysis()
        if attributed is not None:
            self.attributed = attributed

    @cached_property
    def attributed(self) -> Tables:
        """With what a table of ops needs."""
        return attribute(self.tables)

    @cached_property
    def complete(self) -> Tables:
        """With modules, steps and phases, too."""
        return _in_context(self.attributed)

    @cached_property
    def coverage(self) -> Coverage:
        found = self.attributed
        return coverage(found.ranges, found.calls, found.work)

    def with_memory(self) -> Analysed:
        """The same, with what each range took and gave back."""
        found = self.attributed
        return Analysed(self.tables, found.replace(ranges=memory(found.ranges, found.memory)))


def attribute(trace: T) -> T:
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


def analyse(trace: T, step_pattern: str | None = None) -> T:
    """`attribute`, and modules, steps and phases."""
    return _in_context(attribute(trace), step_pattern)


def _in_context(attributed: T, step_pattern: str | None = None) -> T:
    return attributed.replace(ranges=phases(steps(modules(attributed.ranges, attributed.functions), step_pattern)))
