"""Analysis: tables, and the results of their analysis. Each is computed when it is first asked for, and kept.

Code that needs more than the tables themselves (events, views, findings) takes an Analysis: so nobody has to look at
the columns to see which part of the analysis was done already.

Of a process that was recorded in several cycles each is analysed by itself, as if it were a rank, and what comes out
has the ranks again: all that is looked up, attributed or summed is of one file, and the time between two is nobody's.

What a table needs not is imported when it is asked for: a table should come quickly, and numpy alone takes long.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from typing import TYPE_CHECKING, TypeVar

from opspan.analysis.autograd import autograd
from opspan.analysis.averages import device_time
from opspan.analysis.coverage import Coverage, coverage
from opspan.analysis.functions import functions
from opspan.analysis.kept import kept
from opspan.analysis.launches import launches, matches
from opspan.analysis.modules import modules
from opspan.analysis.nest import ADDED, nest, trace_end_ns
from opspan.analysis.ops import ops
from opspan.analysis.phases import phases
from opspan.analysis.steps import steps
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

FEW_ROWS = 50_000  # below, to hand work to a thread takes longer than to do it


def by_cycle(work_out: Callable[[Analysis], pl.DataFrame]) -> Callable[[Analysis], pl.DataFrame]:
    """Decorates what is worked out for each cycle by itself."""

    @wraps(work_out)
    def rows(analysis: Analysis) -> pl.DataFrame:
        if analysis.lanes is None:
            return work_out(analysis)
        return analysis.lanes.back(getattr(analysis.by_lane, work_out.__name__))

    return rows


class Analysis:
    def __init__(
        self, tables: Tables, attributed: Tables | None = None, iterations: pl.DataFrame | None = None
    ) -> None:
        """`attributed`: what `attribute` gives for these tables, if the caller has it already; `iterations`: those that
        were found in a trace of which the tables are a part, with their `cycle` where the tables have it."""
        self.tables = tables.without_analysis()
        self.lanes = cycles.lanes(tables.ranks)
        if iterations is not None and self.lanes is None:
            self.iterations = iterations
        self._given = iterations
        if attributed is not None:
            self.attributed = attributed

    @kept
    def by_lane(self) -> Analysis:
        """The same with a rank for each cycle; row numbers are the same, too. Without cycles it is this."""
        if self.lanes is None:
            return self
        frames = self.lanes.frames(self.tables.frames)
        steps = None if self._given is None else self.lanes.frames({"iterations": self._given})["iterations"]
        return Analysis(type(self.tables)(self.lanes.ranks, **frames), iterations=steps)

    @kept
    def attributed(self) -> Tables:
        """The tables with the columns that a table of ops needs."""
        return attribute(self.tables) if self.lanes is None else self._back(self.by_lane.attributed)

    @kept
    def complete(self) -> Tables:
        """The tables with modules, steps and phases, too."""
        return _in_context(self.attributed) if self.lanes is None else self._back(self.by_lane.complete)

    def _back(self, by_lane: Tables) -> Tables:
        """With what was found of each cycle, and the ranks that there are."""
        own = self.tables
        places = {name: own.frames[name].select("rank", cycles.COLUMN) for name in schema.FOUND}
        frames = {name: by_lane.frames[name].with_columns(rows) for name, rows in places.items()}
        return type(own)(own.ranks, **{**own.frames, **frames})

    @kept
    def coverage(self) -> Coverage:
        found = self.attributed
        return coverage(found.ranges, found.calls, found.work)

    @kept
    @by_cycle
    def iterations(self) -> pl.DataFrame:
        """The steps of the run, as the program says them."""
        return self._found_until_done.drop("took_ns", "done_ns")

    @kept
    def _found_until_done(self) -> pl.DataFrame:
        """Returns the steps that are found in this trace, where none were given, as iterations_until_done does."""
        from opspan.analysis.iterations import iterations
        from opspan.analysis.until_done import until_done, with_outliers

        found = self.attributed
        return with_outliers(until_done(iterations(found.ranges), found.calls, found.work))

    @kept
    @by_cycle
    def patterns(self) -> pl.DataFrame:
        """Returns how often kernels repeat, and how long a turn takes, of processes that have no steps."""
        from opspan.analysis.repeating import patterns
        from opspan.analysis.spans import PROCESS

        work, steps = self.attributed.work, self.iterations
        if steps.height:
            work = work.join(steps, on=PROCESS, how="anti", nulls_equal=True, maintain_order="left")
        return patterns(work)

    @kept
    @by_cycle
    def iterations_until_done(self) -> pl.DataFrame:
        """The same, with how long each took until all that it launched was done."""
        from opspan.analysis.until_done import until_done

        if self._given is None:
            return self._found_until_done
        return until_done(self.iterations, self.attributed.calls, self.attributed.work)

    @kept
    @by_cycle
    def breakdown(self) -> pl.DataFrame:
        """Where the time of each iteration went."""
        return self._without_wholes(self._breakdowns)

    @kept
    def whole_breakdown(self) -> pl.DataFrame:
        """Where the whole time of each process went; of several cycles their sum."""
        return self._wholes(self._breakdowns, ("rank", "pid", "step"))

    @kept
    @by_cycle
    def devices(self) -> pl.DataFrame:
        """Returns how long each device did what in each iteration."""
        return self._without_wholes(self._devices)

    @kept
    def whole_devices(self) -> pl.DataFrame:
        """Returns what devices did in the whole time of each process, summed over its cycles."""
        return self._wholes(self._devices, ("rank", "pid", "device_id", "step"))

    def _wholes(self, rows: pl.DataFrame, key: tuple[str, ...]) -> pl.DataFrame:
        rows = rows.filter(rows["step"].is_null())
        if self.lanes is None:
            return rows
        from opspan.analysis.parts import Part, together

        return together([Part(rows, key)], again=True).rows

    # Most who ask for the one of two ask for the other, and nearly all of the time goes to what both need.

    @kept
    @by_cycle
    def _breakdowns(self) -> pl.DataFrame:
        from opspan.analysis.busy import breakdown

        return breakdown(self.complete, self.iterations, with_wholes=True)

    @kept
    @by_cycle
    def _devices(self) -> pl.DataFrame:
        from opspan.analysis.busy import devices

        return devices(self.complete, self.iterations, with_wholes=True)

    def _without_wholes(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Without the rows of the whole time of processes that have iterations."""
        from opspan.analysis.spans import PROCESS, distinct

        whole = distinct(self.iterations, PROCESS).join(rows.select("step").clear(1), how="cross")
        return rows.join(whole, on=[*PROCESS, "step"], how="anti", nulls_equal=True, maintain_order="left")

    @kept
    @by_cycle
    def allocations(self) -> pl.DataFrame:
        """The blocks of memory, each from its allocation to its free."""
        from opspan.analysis.allocations import allocations

        return allocations(self.tables.memory)

    @kept
    def memory_categories(self) -> pl.Series:
        """What each row of the table memory is for, as far as that is known."""
        from opspan.analysis.categories import categories

        if self.lanes is not None:
            return self.by_lane.memory_categories
        return categories(self.attributed.ranges, self.tables.memory)

    @kept
    @by_cycle
    def memory_curve(self) -> pl.DataFrame:
        """How much memory was in use after each allocation and free."""
        from opspan.analysis.memory_use import curve

        return curve(self.tables.memory, self.tables.counters, self.allocations)

    @kept
    def memory_peaks(self) -> pl.DataFrame:
        """When each process used the most memory of each device, and how much."""
        from opspan.analysis.memory_use import highest

        return highest(self.memory_curve)

    @kept
    def memory_by_op(self) -> pl.DataFrame:
        """What the ranges of each name allocated and freed on their own threads."""
        from opspan.analysis.memory_use import operators

        return operators(self.attributed.ranges, self.tables.memory)

    @kept
    def memory_at_peak(self) -> pl.DataFrame:
        """The blocks that there were at the peaks, and the ranges, modules and phases that took them."""
        from opspan.analysis.memory_use import at_peak, of_peaks

        if self.lanes is None:
            return at_peak(self.complete.ranges, self.tables.memory, self.allocations)
        return of_peaks(self.lanes.back(self.by_lane.memory_at_peak))

    @kept
    @by_cycle
    def gaps(self) -> pl.DataFrame:
        """A row for each stretch in which a device had nothing to do."""
        from opspan.analysis.idle import gaps

        return gaps(self.attributed)

    @kept
    @by_cycle
    def stream_gaps(self) -> pl.DataFrame:
        """A row for each stretch in which a stream had nothing to do."""
        from opspan.analysis.idle import gaps_of_streams

        return gaps_of_streams(self.attributed)

    @kept
    @by_cycle
    def idle(self) -> pl.DataFrame:
        """The time of the gaps, by the ranges that it belongs to."""
        from opspan.analysis.idle import parts

        return parts(self.attributed, self.gaps)

    @kept
    @by_cycle
    def waits(self) -> pl.DataFrame:
        """A row for each call that made the host wait."""
        from opspan.analysis.waits import waits

        found = self.attributed
        return waits(found.ranges, found.calls, found.work)

    @kept
    def path_graph(self) -> Graph:
        """What waited for what."""

        from opspan.analysis.path_graph import graph

        if self.lanes is not None:
            return self.by_lane.path_graph
        return graph(self.attributed, self.iterations, self.waits)

    @kept
    def meetings(self) -> Meetings:
        """The collectives in which ranks wait for each other, as work of `path_graph`."""
        from opspan.analysis.meetings import meetings

        return meetings(self.collectives, self.path_graph.work)

    @kept
    @by_cycle
    def path(self) -> pl.DataFrame:
        """The critical path of each step, in pieces."""
        from opspan.analysis.busy import step_times
        from opspan.analysis.path import path

        found = self.attributed
        return path(found, step_times(found, self.iterations), self.waits, self.path_graph)

    @kept
    @by_cycle
    def delays(self) -> pl.DataFrame:
        """A row for each work that has a call: how long after the call it began."""
        from opspan.analysis.launched import delays

        return delays(self.attributed.calls, self.attributed.work)

    @kept
    @by_cycle
    def queues(self) -> pl.DataFrame:
        """How many calls had their work before them, for each stream, over time."""
        from opspan.analysis.launched import queues

        return queues(self.attributed.calls, self.attributed.work)

    @kept
    def copies(self) -> pl.DataFrame:
        """How much was copied, and how fast, by direction."""
        from opspan.analysis.copies import copies

        return copies(self.tables.work)

    @kept
    def own_collectives(self) -> pl.DataFrame:
        """A row for each collective of each rank; of several cycles with the number of its own, `cycle`."""
        from opspan.analysis.collectives import collectives

        if self.lanes is not None:
            return self.lanes.back(cycles.with_cycles(self.by_lane.own_collectives, self.lanes.cycle_of))
        return collectives(self.attributed)

    @kept
    def collectives(self) -> pl.DataFrame:
        """A row for each collective of each rank, with those of other ranks that it matched."""
        from opspan.analysis.over_ranks import matched

        return self.own_collectives.hstack(matched(self.own_collectives))

    def with_memory(self) -> Analysis:
        """The same, with the memory that each range allocated and freed."""
        from opspan.analysis.memory import memory

        found = self.attributed
        return Analysis(self.tables, found.replace(ranges=memory(found.ranges, found.memory)))


def attribute(trace: T) -> T:
    """What a table needs: ranges nested, labels read, launches attributed, backward linked, device time summed."""
    if cycles.lanes(trace.ranks) is not None:
        found = Analysis(trace).attributed
        return trace.replace(ranges=found.ranges, calls=found.calls, work=found.work)
    with ThreadPoolExecutor(1) as pool:
        beside = pool if trace.ranges.height + trace.calls.height + trace.work.height > FEW_ROWS else None
        end_ns = trace_end_ns(trace.ranges, trace.calls, trace.work)
        nested = _begun(beside, nest, trace.ranges, end_ns)
        named, matched = ops(trace.ranges), matches(trace.calls, trace.work)
        ranges = named.with_columns(nested().select(ADDED))
        launching = _begun(beside, launches, ranges, trace.calls, trace.work, matched=matched)
        ranges = functions(autograd(ranges), trace.functions)
        launched = launching()
        ranges = device_time(ranges, launched.work)
    return trace.replace(ranges=ranges, calls=launched.calls, work=launched.work)


def _begun(pool: ThreadPoolExecutor | None, what: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Callable[[], R]:
    """Returns a function that gives the result: computed in the pool meanwhile or, without a pool, when called."""
    return partial(what, *args, **kwargs) if pool is None else pool.submit(what, *args, **kwargs).result


def analyse(trace: T, step_pattern: str | None = None) -> T:
    """What `attribute` does, then modules, steps and phases."""
    return _in_context(attribute(trace), step_pattern)


def _in_context(attributed: T, step_pattern: str | None = None) -> T:
    return attributed.replace(ranges=phases(steps(modules(attributed.ranges, attributed.functions), step_pattern)))
