"""Analysis: the tables of a trace and the results of their analysis. Each result is computed once, on its first use.

Code that needs analysed tables, such as the views, takes an Analysis, and need not check which columns they have.

A process may be recorded in several cycles (files that it wrote one after another). Each cycle is analysed as if it
were a separate rank. Such a rank is called a lane. So nothing is looked up, attributed or summed across cycles, and the
time between two cycles is left out. Results have the rank of the process instead of the lane.

Python modules that a table of ops does not need are imported on first use. Some of them import numpy, which takes long.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from typing import TYPE_CHECKING, TypeVar

from opspan.analysis.autograd import autograd
from opspan.analysis.averages import device_time
from opspan.analysis.coverage import Coverage, coverage
from opspan.analysis.functions import functions
from opspan.analysis.launches import launches, matches
from opspan.analysis.nest import ADDED, nest, trace_end_ns
from opspan.analysis.ops import ops
from opspan.forked import shared_property
from opspan.tables import cycles, schema

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl
    from typing_extensions import ParamSpec

    from opspan.analysis.meetings import Meetings
    from opspan.analysis.path_graph import Graph
    from opspan.tables import Tables

    P = ParamSpec("P")

T = TypeVar("T", bound="Tables")
R = TypeVar("R")

FEW_ROWS = 50_000  # with fewer rows, starting a second thread takes more time than it saves


def by_cycle(compute: Callable[[Analysis], pl.DataFrame]) -> Callable[[Analysis], pl.DataFrame]:
    """Makes a method of Analysis compute its result separately for each cycle of a process."""

    @wraps(compute)
    def rows(analysis: Analysis) -> pl.DataFrame:
        if analysis.lanes is None:
            return compute(analysis)
        return analysis.lanes.back(getattr(analysis.by_lane, compute.__name__))

    return rows


class Analysis:
    def __init__(
        self, tables: Tables, attributed: Tables | None = None, iterations: pl.DataFrame | None = None
    ) -> None:
        """Takes tables, and results that the caller may have already. `attributed` is the result of `attribute`. If the
        tables are only a part of a trace, `iterations` has the steps of the whole trace. If the tables have cycles,
        `iterations` has a column `cycle`."""
        self.tables = tables.without_analysis()
        self.lanes = cycles.lanes(tables.ranks)
        if iterations is not None and self.lanes is None:
            self.iterations = iterations
        self._known_iterations = iterations
        if attributed is not None:
            self.attributed = attributed

    @shared_property
    def by_lane(self) -> Analysis:
        """An analysis of the same rows, with a lane for each cycle of a process; `self` if each has one cycle."""
        if self.lanes is None:
            return self
        frames, steps = self.lanes.frames(self.tables.frames), self._known_iterations
        if steps is not None:
            steps = self.lanes.frames({"iterations": steps})["iterations"]
        return Analysis(type(self.tables)(self.lanes.ranks, **frames), iterations=steps)

    @shared_property
    def attributed(self) -> Tables:
        """The tables with the columns that a table of ops needs."""
        return attribute(self.tables) if self.lanes is None else self._back(self.by_lane.attributed)

    @shared_property
    def complete(self) -> Tables:
        """The tables with the columns of `attributed`, and with modules, steps and phases."""
        return _in_context(self.attributed) if self.lanes is None else self._back(self.by_lane.complete)

    def _back(self, by_lane: Tables) -> Tables:
        """Returns the tables with the columns that the analysis added to `by_lane`, but with ranks of processes instead
        of lanes."""
        own = self.tables
        places = {name: own.frames[name].select("rank", cycles.COLUMN) for name in schema.ADDED}
        frames = {name: by_lane.frames[name].with_columns(rows) for name, rows in places.items()}
        return type(own)(own.ranks, **{**own.frames, **frames})

    @shared_property
    def coverage(self) -> Coverage:
        trace = self.attributed
        return coverage(trace.ranges, trace.calls, trace.work)

    @shared_property
    @by_cycle
    def iterations(self) -> pl.DataFrame:
        """The steps of the run, as the program marks them."""
        return self._own_until_done.drop("took_ns", "done_ns")

    @shared_property
    def _own_until_done(self) -> pl.DataFrame:
        """The steps that these tables show, even if `_known_iterations` has others. The columns are those of
        `iterations_until_done`."""
        from opspan.analysis.iterations import iterations
        from opspan.analysis.until_done import until_done, with_outliers

        trace = self.attributed
        return with_outliers(until_done(iterations(trace.ranges), trace.calls, trace.work))

    @shared_property
    @by_cycle
    def patterns(self) -> pl.DataFrame:
        """For each process without steps: how often a series of kernels repeats, and how long one repetition takes."""
        from opspan.analysis.repeating import patterns
        from opspan.analysis.spans import PROCESS

        work, steps = self.attributed.work, self.iterations
        if steps.height:
            work = work.join(steps, on=PROCESS, how="anti", nulls_equal=True, maintain_order="left")
        return patterns(work)

    @shared_property
    @by_cycle
    def iterations_until_done(self) -> pl.DataFrame:
        """The steps, and how long each step took until all work that it launched was done."""
        from opspan.analysis.until_done import until_done

        if self._known_iterations is None:
            return self._own_until_done
        return until_done(self.iterations, self.attributed.calls, self.attributed.work)

    @shared_property
    @by_cycle
    def breakdown(self) -> pl.DataFrame:
        """The time of each step, divided among the kinds of work."""
        return self._without_wholes(self._breakdowns)

    @shared_property
    def whole_breakdown(self) -> pl.DataFrame:
        """The breakdown of the whole time of each process. If a process has several cycles, their times are added
        up."""
        return self._wholes(self._breakdowns, ("rank", "pid", "step"))

    @shared_property
    @by_cycle
    def devices(self) -> pl.DataFrame:
        """How long each device did each kind of work in each step."""
        return self._without_wholes(self._devices)

    @shared_property
    def whole_devices(self) -> pl.DataFrame:
        """How long each device did each kind of work in the whole time of each process, summed over its cycles."""
        return self._wholes(self._devices, ("rank", "pid", "device_id", "step"))

    def _wholes(self, rows: pl.DataFrame, key: tuple[str, ...]) -> pl.DataFrame:
        rows = rows.filter(rows["step"].is_null())
        if self.lanes is None:
            return rows
        from opspan.analysis.parts import Part, together

        return together([Part(rows, key)], again=True).rows

    # Rows for steps and rows for whole processes are computed together, because they share most of the computation.

    @shared_property
    @by_cycle
    def _breakdowns(self) -> pl.DataFrame:
        from opspan.analysis.busy import breakdown

        return breakdown(self.complete, self.iterations, with_wholes=True)

    @shared_property
    @by_cycle
    def _devices(self) -> pl.DataFrame:
        from opspan.analysis.busy import devices

        return devices(self.complete, self.iterations, with_wholes=True)

    def _without_wholes(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Removes the rows for the whole time of processes that have steps."""
        from opspan.analysis.spans import PROCESS, distinct

        wholes = distinct(self.iterations, PROCESS).join(rows.select("step").clear(1), how="cross")
        return rows.join(wholes, on=[*PROCESS, "step"], how="anti", nulls_equal=True, maintain_order="left")

    @shared_property
    @by_cycle
    def allocations(self) -> pl.DataFrame:
        """The blocks of memory, each from its allocation to its free."""
        from opspan.analysis.allocations import allocations

        return allocations(self.tables.memory)

    @shared_property
    def memory_categories(self) -> pl.Series:
        """A category (categories.py) for each row of the table memory; null if it is unknown."""
        from opspan.analysis.categories import categories

        if self.lanes is not None:
            return self.by_lane.memory_categories
        return categories(self.attributed.ranges, self.tables.memory)

    @shared_property
    @by_cycle
    def memory_curve(self) -> pl.DataFrame:
        """How much memory was in use after each allocation and free."""
        from opspan.analysis.memory_use import curve

        return curve(self.tables.memory, self.tables.counters, self.allocations)

    @shared_property
    def memory_peaks(self) -> pl.DataFrame:
        """The peak of memory of each process on each device: its time, and how much memory was in use."""
        from opspan.analysis.memory_use import highest

        return highest(self.memory_curve)

    @shared_property
    def memory_by_op(self) -> pl.DataFrame:
        """For each name of ranges: how much memory was allocated and freed inside ranges of this name."""
        from opspan.analysis.memory_use import operators

        return operators(self.attributed.ranges, self.tables.memory)

    @shared_property
    def memory_at_peak(self) -> pl.DataFrame:
        """The blocks that existed at the peaks, with the ranges, modules and phases in which they were allocated."""
        from opspan.analysis.memory_use import at_peak, of_peaks

        if self.lanes is None:
            return at_peak(self.complete.ranges, self.tables.memory, self.allocations)
        return of_peaks(self.lanes.back(self.by_lane.memory_at_peak))

    @shared_property
    @by_cycle
    def gaps(self) -> pl.DataFrame:
        """A row for each stretch in which a device had nothing to do."""
        from opspan.analysis.idle import gaps

        return gaps(self.attributed)

    @shared_property
    @by_cycle
    def stream_gaps(self) -> pl.DataFrame:
        """A row for each stretch in which a stream had nothing to do."""
        from opspan.analysis.idle import gaps_of_streams

        return gaps_of_streams(self.attributed)

    @shared_property
    @by_cycle
    def idle(self) -> pl.DataFrame:
        """The time of each gap, divided among the ranges that caused it (`idle.parts`)."""
        from opspan.analysis.idle import parts

        return parts(self.attributed, self.gaps)

    @shared_property
    @by_cycle
    def sample_places(self) -> pl.DataFrame:
        """The range and the call that each sample was taken in, and whether a device was idle (`samples.places`)."""
        from opspan.analysis.samples import places

        return places(self.attributed, self.gaps)

    @shared_property
    @by_cycle
    def waits(self) -> pl.DataFrame:
        """A row for each call that made the host wait."""
        from opspan.analysis.waits import waits

        trace = self.attributed
        return waits(trace.ranges, trace.calls, trace.work)

    @shared_property
    def path_graph(self) -> Graph:
        """The graph that shows which work, calls and threads waited for which others."""
        from opspan.analysis.path_graph import graph

        if self.lanes is not None:
            return self.by_lane.path_graph
        return graph(self.attributed, self.iterations, self.waits)

    @shared_property
    def meetings(self) -> Meetings:
        """The collectives in which ranks wait for each other, with their kernels (rows of `path_graph.work`)."""
        from opspan.analysis.meetings import meetings

        return meetings(self.collectives, self.path_graph.work)

    @shared_property
    @by_cycle
    def path(self) -> pl.DataFrame:
        """The critical path of each step, as pieces that follow each other."""
        from opspan.analysis.busy import step_times
        from opspan.analysis.path import path

        trace = self.attributed
        return path(trace, step_times(trace, self.iterations), self.waits, self.path_graph)

    @shared_property
    @by_cycle
    def delays(self) -> pl.DataFrame:
        """The time from each launch call to the start of each kernel or copy that it launched."""
        from opspan.analysis.launched import delays

        return delays(self.attributed.calls, self.attributed.work)

    @shared_property
    @by_cycle
    def queues(self) -> pl.DataFrame:
        """The length of each stream's launch queue over time: the number of launch calls whose work had not begun."""
        from opspan.analysis.launched import queues

        return queues(self.attributed.calls, self.attributed.work)

    @shared_property
    def copies(self) -> pl.DataFrame:
        """How many bytes were copied in each direction, and how fast."""
        from opspan.analysis.copies import copies

        return copies(self.tables.work)

    @shared_property
    def own_collectives(self) -> pl.DataFrame:
        """A row for each collective of each rank, with the column `cycle` if there are several cycles."""
        from opspan.analysis.collectives import collectives

        if self.lanes is not None:
            return self.lanes.back(cycles.with_cycles(self.by_lane.own_collectives, self.lanes.cycle_of))
        return collectives(self.attributed)

    @shared_property
    def collectives(self) -> pl.DataFrame:
        """The rows of `own_collectives`, with columns that show which rows of other ranks are the same collective."""
        from opspan.analysis.over_ranks import matched

        return self.own_collectives.hstack(matched(self.own_collectives))

    def with_memory(self) -> Analysis:
        """Returns an analysis whose ranges have the columns of memory.py."""
        from opspan.analysis.memory import memory

        trace = self.attributed
        return Analysis(self.tables, trace.replace(ranges=memory(trace.ranges, trace.memory)))


def attribute(trace: T) -> T:
    """Adds the columns that a table of ops needs: nesting, facts parsed from labels, the range of each call and work,
    the forward op of each backward op, functions and device time."""
    if cycles.lanes(trace.ranks) is not None:
        tables = Analysis(trace).attributed
        return trace.replace(ranges=tables.ranges, calls=tables.calls, work=tables.work)
    with ThreadPoolExecutor(1) as pool:
        beside = pool if trace.ranges.height + trace.calls.height + trace.work.height > FEW_ROWS else None
        end_ns = trace_end_ns(trace.ranges, trace.calls, trace.work)
        nested = _begin(beside, nest, trace.ranges, end_ns)
        named, call_of_work = ops(trace.ranges), matches(trace.calls, trace.work)
        ranges = named.with_columns(nested().select(ADDED))
        launching = _begin(beside, launches, ranges, trace.calls, trace.work, call_of_work=call_of_work)
        ranges = functions(autograd(ranges), trace.functions)
        launched = launching()
        ranges = device_time(ranges, launched.work)
    return trace.replace(ranges=ranges, calls=launched.calls, work=launched.work)


def _begin(pool: ThreadPoolExecutor | None, task: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Callable[[], R]:
    """Starts the task in the pool, and returns a function that waits for the result. Without a pool, calling the
    returned function runs the task."""
    return partial(task, *args, **kwargs) if pool is None else pool.submit(task, *args, **kwargs).result


def analyse(trace: T, step_pattern: str | None = None) -> T:
    """Adds the columns that `attribute` adds, and the columns module, step and phase."""
    return _in_context(attribute(trace), step_pattern)


def _in_context(attributed: T, step_pattern: str | None = None) -> T:
    from opspan.analysis.modules import modules_of
    from opspan.analysis.phases import phases
    from opspan.analysis.steps import steps

    complete = attributed.replace(ranges=phases(steps(modules_of(attributed), step_pattern)))
    if attributed.provenance.is_empty():
        return complete
    from opspan.analysis.provenance import share

    return share(attributed, complete)
