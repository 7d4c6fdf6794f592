"""What rules look at: the analyses of a trace, cut to the steps that are like the others.

What a step took that is longer than the others (an outlier) is one finding, and no other rule counts it: without that,
one pause of the machine would be idle time, launches, data loading and waits at once.

Time at stake is how much sooner the run would have ended. Processes run side by side, so it is the time of one process,
of the one that lost most: `longest`. What is summed over the devices of a process is divided by how many there are.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis import Analysis
from opspan.analysis.averages import on_device
from opspan.analysis.busy import busy_with, whole_times, within_part
from opspan.analysis.exposed import bare_before, exposed
from opspan.analysis.kept import kept
from opspan.analysis.path_graph import Graph
from opspan.analysis.spans import DEVICE, PROCESS, distinct, length, looked_up, only, summed_by, time_in, within
from opspan.analysis.waits import DRAIN
from opspan.findings.after_waits import after_waits, given
from opspan.findings.cuts import cut_at
from opspan.findings.graph import graph_of
from opspan.findings.hidden import backward_ns, knows_waits, saves
from opspan.findings.late import late, with_held
from opspan.findings.marks import compiled_times, compiling, falling_back
from opspan.findings.once import Once
from opspan.findings.paces import paces
from opspan.tables import Tables

_col = pl.col
# Why a device had nothing to do, in the order in which a piece of time is given to one.
CAUSES = ("compile", "fallback", "data", "optimizer", "held", "wait", "host", "launch", "queued", "unknown")
_CAUSE = pl.Enum(CAUSES)
_THREAD = (*PROCESS, "tid")
HOLD = ("allocation", "free", "module loading")  # reasons of waits that hold up the host itself
_TOP = 3
_MOSTLY = 0.5


class Run:
    def __init__(self, analysis: Analysis) -> None:
        self.found = analysis

    @kept
    def trace(self) -> Tables:
        return self.found.complete

    @kept
    def ranges(self) -> pl.DataFrame:
        """Ranges, with their numbers as `row` and without marks, and of their columns those that rules need."""
        columns = ("name", "kind", "start_ns", "end_ns", "self_ns", "module", "phase", "sizes")
        rows = self.trace.ranges.select(*_THREAD, *columns, "is_mark").with_row_index("row")
        return rows.filter(~_col("is_mark").fill_null(value=False)).drop("is_mark")

    @kept
    def launches(self) -> pl.DataFrame:
        """Returns the calls that gave devices work."""
        trace = self.found.attributed
        return trace.calls.select(*_THREAD, "start_ns", "end_ns")[trace.work["call"].drop_nulls().unique()]

    @kept
    def once(self) -> Once:
        """Looks for what rules find, by their ids, and for what several of them ask for."""
        return Once()

    # -- steps

    @kept
    def steps(self) -> pl.DataFrame:
        return self.found.iterations

    @kept
    def lasted(self) -> pl.DataFrame:
        """Returns the steps, each from when the one before was done until it was done itself (`until_done`)."""
        steps = self.found.iterations_until_done
        rows = steps.with_columns(start_ns=_col("done_ns") - _col("took_ns"), end_ns="done_ns")
        return within_part(rows, self.trace).with_columns(took_ns=length())

    @kept
    def usual(self) -> pl.DataFrame:
        """The steps without outliers."""
        return self.steps.filter(~_col("is_outlier").fill_null(value=False))

    @kept
    def breakdown(self) -> pl.DataFrame:
        """The time of each step; of processes that have none, all of it."""
        return self.found.breakdown if self.steps.height else self.found.whole_breakdown

    @kept
    def total_ns(self) -> int:
        """How long the run took: the process that took longest."""
        return self.longest(self.times, "time_ns")

    @kept
    def times(self) -> pl.DataFrame:
        """Returns rank, pid and time_ns: how long the steps of each process took, each until all that it launched was
        done. A process without steps counts from the first work of a device on; without devices only if none has
        steps."""
        lasted = self.lasted.select(*PROCESS, time_ns="took_ns")
        begun = self.begins.select(*PROCESS, time_ns=_col("end_ns") - _col("begin_ns"))
        known = pl.concat([lasted, begun])
        return known if known.height else self.breakdown.select(known.columns)

    @kept
    def begins(self) -> pl.DataFrame:
        """Returns the whole time of each process that has no steps and used devices, with the first work of a device as
        `begin_ns`: nothing else tells the loop from the start of the program."""
        work = on_device(self.trace.work.select(*PROCESS, "start_ns", "kind", "is_overhead"))
        first = summed_by(work, PROCESS, begin_ns=_col("start_ns").min())
        whole = within_part(whole_times(self.trace), self.trace)
        whole = whole.join(self.steps, on=PROCESS, how="anti", nulls_equal=True)
        return whole.join(first, on=PROCESS, nulls_equal=True).filter(_col("begin_ns") >= _col("start_ns"))

    @property
    def whole(self) -> str:
        """What `total_ns` is the time of, in words."""
        return "the steps' time" if self.steps.height else "the run"

    def share(self, ns: float) -> float:
        return ns / self.total_ns if self.total_ns else 0.0

    def matters(self, ns: float, threshold: float) -> bool:
        """Whether it is at least such a share of the run's time, and more than nothing."""
        return ns > 0 and self.share(ns) >= threshold

    def in_usual(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows of usual steps, and those of processes without steps, by the column `step`."""
        odd = self.steps.filter(_col("is_outlier").fill_null(value=False)).select(*PROCESS, "step")
        return rows.join(odd, on=[*PROCESS, "step"], how="anti", nulls_equal=True, maintain_order="left")

    def begun_in_usual(
        self, rows: pl.DataFrame, time: str = "start_ns", is_late: bool = False, odd: bool = False
    ) -> pl.DataFrame:
        """The rows whose `time` is in a usual step, with its name as `step`, and those of processes without steps, with
        null, from the first work of a device on. `is_late`: not in the first step of a process, which does what is done
        once. `odd`: in outliers as well."""
        stretches = self.steps if odd else self.usual
        if is_late and stretches.height:
            first = self.steps.sort("start_ns").unique(PROCESS, keep="first", maintain_order=True)
            stretches = stretches.join(first, on=[*PROCESS, "start_ns"], how="anti", nulls_equal=True)
        none = pl.lit(None, dtype=self.steps.schema["step"]).alias("step")
        outside = rows
        if self.steps.height:
            outside = rows.join(self.steps, on=PROCESS, how="anti", nulls_equal=True, maintain_order="left")
        if self.begins.height:
            outside = looked_up(outside, self.begins.select(*PROCESS, "begin_ns"), PROCESS)
            outside = only(outside, (_col(time) >= _col("begin_ns")).fill_null(value=True)).drop("begin_ns")
        if not self.steps.height:
            return outside.with_columns(none)
        pairs = within(rows, time, stretches, PROCESS)
        inside = rows[pairs["row"]].with_columns(stretches["step"].gather(pairs["stretch"]).alias("step"))
        return pl.concat([inside, outside.with_columns(none)])

    # -- devices

    @kept
    def has_devices(self) -> bool:
        return on_device(self.trace.work.select("kind", "is_overhead")).height > 0

    @kept
    def of_process(self) -> pl.DataFrame:
        """How many devices each process used."""
        return (
            distinct(on_device(self.trace.work.select(*DEVICE, "kind", "is_overhead")), DEVICE)
            .group_by(PROCESS)
            .agg(devices=_col("device_id").n_unique())
        )

    def longest(self, rows: pl.DataFrame, column: str) -> int:
        """The sum of a column for the process that has most of it."""
        return int(summed_by(rows, PROCESS, ns=_col(column).cast(pl.Int64).sum())["ns"].max() or 0)  # type: ignore[arg-type]

    def per_process(self, rows: pl.DataFrame, column: str) -> int:
        """The same for a column that is summed over devices: the mean of the devices that the process used."""
        return int(self.of_processes(rows, column)[column].max() or 0)  # type: ignore[arg-type]  # a number

    def of_processes(self, rows: pl.DataFrame, column: str) -> pl.DataFrame:
        """Returns that for each process, and each `component` where rows have it. The host counts as a device."""
        by = [*PROCESS, "component"] if "component" in rows.columns else list(PROCESS)
        sums = summed_by(rows, by, **{column: _col(column).cast(pl.Int64).sum()})
        sums = sums.join(self.of_process, on=PROCESS, how="left", nulls_equal=True)
        return sums.with_columns(_col(column) / _col("devices").fill_null(1)).drop("devices")

    @kept
    def kernels(self) -> pl.DataFrame:
        """What usual steps launched: where the host runs ahead, it runs in later ones."""
        return self.begun_in_usual(self.busy, self._launched)

    @kept
    def computing(self) -> pl.DataFrame:
        """Returns the kernels of all steps that are no collectives."""
        return only(self.all_kernels, _col("what") == "computing")

    @kept
    def all_kernels(self) -> pl.DataFrame:
        """What steps launched, those that are outliers as well."""
        is_same = self.usual.height == self.steps.height
        return self.kernels if is_same else self.begun_in_usual(self.busy, self._launched, odd=True)

    @property
    def _launched(self) -> str:
        return "launched_ns" if self.steps.height else "start_ns"

    @kept
    def busy(self) -> pl.DataFrame:
        """What devices ran: `ns`, `what` it is (analysis/busy.py), `blocks`, `multiprocessors`, and of the range that
        it belongs to `range`, `op`, `module` and `phase`."""
        more = ("grid_x", "grid_y", "grid_z", "range", "call", "bytes", "copy_from", "copy_to")
        work = only(busy_with(self.trace.work, *more).with_columns(ns=length()), _col("ns") > 0)
        called_ns = self.trace.calls["start_ns"].gather(work["call"])
        work = work.with_columns(launched_ns=pl.coalesce(called_ns, "start_ns"))
        # What no step launched is of the step in which it ran.
        in_step = within(work, "launched_ns", self.steps, PROCESS)["row"]
        is_in_step = pl.Series([False]).new_from_index(0, work.height).scatter(in_step, True)
        work = work.with_columns(launched_ns=pl.when(is_in_step).then("launched_ns").otherwise("start_ns"))
        size = self.trace.devices.select("rank", "device_id", "multiprocessors", "capability")
        size = size.unique(["rank", "device_id"], keep="first", maintain_order=True)
        work = looked_up(work, size, ("rank", "device_id"))
        blocks = _col("grid_x").cast(pl.Int64) * _col("grid_y") * _col("grid_z")
        return self.named(work.with_columns(blocks=blocks))

    @kept
    def is_walked(self) -> bool:
        """Whether it is known when all hosts waited: only then the graph tells which process would end sooner."""
        return knows_waits(self.found, self.graph, self.devices_save, self.times)

    @kept
    def graph(self) -> Graph:
        """What waited for what: saved.py replays it."""
        return graph_of(self.found)

    def named(self, rows: pl.DataFrame) -> pl.DataFrame:
        """With the names of the range whose number is in the column `range`."""
        ranges = self.trace.ranges
        names = {"op": "name", "module": "module", "phase": "phase"}
        return rows.with_columns(ranges[column].gather(rows["range"]).alias(name) for name, column in names.items())

    # -- the host

    @kept
    def _names(self) -> pl.Series:
        return self.ranges["name"].unique().drop_nulls()

    def called(self, pattern: str) -> pl.DataFrame:
        """The ranges in whose names the pattern is found: looked for once in each name."""
        chosen = self._names.filter(self._names.cast(pl.String).str.contains(pattern))
        return self.ranges.filter(_col("name").is_in(chosen.implode())) if len(chosen) else self.ranges.clear()

    @kept
    def has_loop_in_optimizer(self) -> bool:
        """Whether the optimizer steps one parameter after the other: ops of its step are known, and none takes many."""
        ops = self.ranges.filter(_col("phase") == "optimizer", _col("kind") == "op")["name"].unique().cast(pl.String)
        many = ops.str.contains("_foreach_|fused|multi_tensor")
        return len(ops) > 0 and not many.any()

    @kept
    def _is_compiling(self) -> pl.Series:
        return compiling(self.trace.ranges)

    @kept
    def is_falling_back(self) -> pl.Series:
        """For each range whether the host runs it, or what it lies in, for a device that has no kernel for it."""
        return falling_back(self.trace.ranges)

    @kept
    def compiling(self) -> pl.DataFrame:
        """The outermost ranges in which torch compiled, and the times of which only marks say so."""
        return compiled_times(self.trace.ranges, self._is_compiling)

    @kept
    def paces(self) -> pl.DataFrame:
        return paces(self.found)

    # -- collectives

    @kept
    def collectives(self) -> pl.DataFrame:
        """Returns the collectives of all steps, with the time in which nothing else ran (exposed_ns), the step, and the
        names of the range that started each."""
        return self.exposed(self.found.collectives)

    def exposed(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Returns the same for these collectives. Each is of the step that launched it: the host runs ahead."""
        # Where there are devices, collectives of the host are another rule's.
        is_timed = _col("work").is_not_null() | (_col("time_ns").is_not_null() & ~pl.lit(self.has_devices))
        rows = rows.drop_nulls(("start_ns", "end_ns")).filter(is_timed)
        trace = self.found.attributed
        calls = trace.work["call"].gather(rows["work"])
        at_ns = pl.coalesce(trace.calls["start_ns"].gather(calls), "start_ns")
        rows = rows.with_columns(exposed(rows, trace), before_ns=bare_before(rows, trace), at_ns=at_ns)
        computed = only(self.busy, _col("what") == "computing")
        rows = self.named(rows.with_columns(backward_ns(rows, computed).alias("backward_ns")))
        rows = self.begun_in_usual(rows, "at_ns" if self.steps.height else "start_ns", odd=True).drop("at_ns")
        return with_held(rows, self.begun_in_usual(self.held, odd=True))

    @kept
    def late(self) -> pl.DataFrame:
        """Returns what each place lost to others in each step."""
        return late(self.collectives)

    @kept
    def devices_save(self) -> pl.DataFrame:
        """Returns rank, pid, saves_ns: how much sooner a process would be done, at most, if its devices took no time;
        only of processes of which that is known."""
        return saves(self.found)

    # -- idle time

    @kept
    def idle(self) -> pl.DataFrame:
        """The pieces of the gaps that lie in usual steps, each with its `cause`: gap, range, ns, rank, pid, device_id,
        wait (the reason), start_ns, end_ns and launched_ns of the gap, op, module, phase, step."""
        gaps = self._gaps
        pieces = cut_at(self.steps, self.found.attributed, self.found.gaps, self.found.idle)
        pieces = only(pieces, ~gaps["is_start"].gather(pieces["gap"])).with_row_index("piece")
        whose = (gaps[name].gather(pieces["gap"]) for name in PROCESS)
        usual = self.begun_in_usual(pieces.select("piece", "at_ns").with_columns(whose), "at_ns")
        pieces = pieces.drop("piece")[usual["piece"]].with_columns(usual["step"].cast(pl.Categorical))
        columns = (*DEVICE, "start_ns", "end_ns", "launched_ns", "held_ns")
        pieces = pieces.hstack(gaps.select(columns)[pieces["gap"]])
        pieces = self.named(pieces.with_columns(wait=pl.lit(None, dtype=pl.String)))
        is_compiling, is_falling_back = (
            pl.lit(inside.gather(pieces["range"]).fill_null(value=False)) if inside.any() else pl.lit(value=False)
            for inside in (self._is_compiling, self.is_falling_back)
        )
        compile_, fallback, data, optimizer = (pl.lit(name, dtype=_CAUSE) for name in CAUSES[:4])
        why = _col("why").cast(_CAUSE)
        cause = (
            pl.when(is_compiling)
            .then(compile_)
            .when(is_falling_back)
            .then(fallback)
            .when(_col("phase") == "data")
            .then(data)
            .when((_col("phase") == "optimizer") & self.has_loop_in_optimizer)
            .then(optimizer)
            .otherwise(why)
        )
        hosts = _col("why").is_in(["host", "launch"])
        pieces = pieces.with_columns(cause=pl.when(hosts).then(cause).otherwise(why))
        pieces = given(pieces, "held_ns", ("gap",), ("host", "launch"), "held")
        # After a wait even the loading of the next batch, say, is bare: the device has nothing left that would hide it.
        pieces = after_waits(pieces, self.drains, self.steps, ("host", "launch", "data", "optimizer"))
        return pieces.drop("held_ns", "at_ns")

    @kept
    def _gaps(self) -> pl.DataFrame:
        """The gaps, with `is_start` (of a program without steps), with when what came next was launched, where it came
        late, and with `held_ns`: for how long, until then, the host was in calls that take memory or load code."""
        held = self.held.select(*_THREAD, "start_ns", "end_ns")
        gaps = self.found.gaps.with_row_index("gap")
        launched = _col("start_ns") + _col("host_ns")
        asked = gaps.select(*_THREAD, "start_ns", end_ns=launched)
        held_ns = time_in(held, asked, _THREAD) if held.height else pl.lit(0, dtype=pl.Int64)
        is_late = _col("host_ns") + _col("launch_ns") > 0
        gaps = gaps.with_columns(held_ns.alias("held_ns"), launched_ns=pl.when(is_late).then(launched))
        begins = self.begins.select(*PROCESS, "start_ns", is_start=True)
        if not begins.height:
            return gaps.with_columns(is_start=pl.lit(value=False))
        gaps = gaps.join(begins, on=[*PROCESS, "start_ns"], how="left", nulls_equal=True, maintain_order="left")
        return gaps.with_columns(_col("is_start").fill_null(value=False))

    @kept
    def held(self) -> pl.DataFrame:
        """Returns the calls in which hosts took memory from the driver, gave it back, or loaded code."""
        return self.found.waits.filter(_col("why").is_in(HOLD))

    @kept
    def drains(self) -> pl.DataFrame:
        """The waits of threads that launch, after which a device may have nothing to do: with `wait`, the reason, and
        in wait_ns for how long they held up the host. Those of an op that the host runs for a device are that op's.
        Before the first work of a process without steps no device had anything to run out of."""
        waits = self.found.waits.with_columns(wait=_col("why").cast(pl.String))
        waits = waits.filter(~self.is_falling_back.gather(waits["range"]).fill_null(value=False))
        waits = waits.filter(_col("wait").is_in(DRAIN)).drop_nulls(("start_ns", "end_ns"))
        launching = distinct(self.found.gaps, _THREAD)
        waits = waits.join(launching, on=_THREAD, how="semi", nulls_equal=True, maintain_order="left")
        begins = self.begins.select(*PROCESS, "begin_ns")
        waits = waits.join(begins, on=PROCESS, how="left", nulls_equal=True, maintain_order="left")
        waits = waits.with_columns(start_ns=pl.max_horizontal("start_ns", "begin_ns")).drop("begin_ns")
        waits = waits.filter(length() > 0)
        # Where other threads launch during most of the waits of one, they do not depend on it.
        pairs = within(self.launches, "start_ns", waits, PROCESS)
        is_other = self.launches["tid"].gather(pairs["row"]).ne_missing(waits["tid"].gather(pairs["stretch"]))
        is_beside = pl.int_range(pl.len()).is_in(pairs["stretch"].filter(is_other).implode())
        holds_up = is_beside.mean().over(_THREAD) <= _MOSTLY
        return waits.with_columns(wait_ns=pl.when(holds_up).then(length()).otherwise(0))


def top(rows: pl.DataFrame, column: str, by: str) -> tuple[str, ...]:
    """The names that have most of a column, the most first."""
    sums = rows.filter(_col(column) > 0).group_by(by).agg(_col(column).sum()).drop_nulls(by)
    return tuple(sums.sort(column, by, descending=[True, False]).head(_TOP)[by].cast(pl.String).to_list())


def ranks_of(rows: pl.DataFrame) -> tuple[int, ...]:
    return tuple(rows["rank"].unique().drop_nulls().sort().to_list())
