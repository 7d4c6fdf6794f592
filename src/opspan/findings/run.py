"""Presents a run to rules: the analyses of a trace, mostly limited to usual steps.

An outlier is a step that took longer than the others. One rule reports outliers. The other rules mostly leave out what
happened in outliers. Otherwise a pause of the machine would be reported as idle time, launches, data loading and waits.

Time at stake is how much sooner the run would have ended without a problem. Processes run side by side, so only the
process that lost most time counts (`longest`). A sum over the devices of a process is divided by their number.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis import Analysis
from opspan.analysis.averages import on_device
from opspan.analysis.busy import busy_with, whole_times, within_part
from opspan.analysis.engine_labels import alike
from opspan.analysis.exposed import bare_before, exposed_ns
from opspan.analysis.path_graph import Graph
from opspan.analysis.spans import DEVICE, PROCESS, THREAD, distinct, length, look_up, only, sum_by, time_in, within
from opspan.analysis.waits import DRAIN
from opspan.findings.after_waits import after_waits, assign
from opspan.findings.cuts import cut_at
from opspan.findings.graph import graph_of
from opspan.findings.hidden import backward_ns, knows_waits, savings_of
from opspan.findings.lateness import add_held, lateness
from opspan.findings.marks import compiled_times, is_compiling, is_in_fallback
from opspan.findings.memo import Memo
from opspan.findings.names import Lines, lines_of, with_names
from opspan.findings.paces import paces
from opspan.forked import shared_property
from opspan.tables import Tables

_col = pl.col
# The causes of idle devices. If a piece of time has several causes, the first in this order counts.
CAUSES = ("compile", "fallback", "data", "optimizer", "held", "wait", "host", "launch", "queued", "unknown")
_CAUSE = pl.Enum(CAUSES)
HOLD = ("allocation", "free", "module loading")  # kinds of calls that hold up the host itself
_TOP = 3
_MOSTLY = 0.5


class Run:
    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis

    @shared_property
    def trace(self) -> Tables:
        return self.analysis.complete

    @shared_property
    def ranges(self) -> pl.DataFrame:
        """Returns the ranges, except points in time, with row numbers (`row`) and only the columns that rules need."""
        columns = ("name", "kind", "start_ns", "end_ns", "self_ns", "module", "phase", "sizes")
        rows = self.trace.ranges.select(*THREAD, *columns, "is_mark").with_row_index("row")
        rows = rows if self._lines is None else rows.with_columns(self._lines[0])
        return rows.filter(~_col("is_mark").fill_null(value=False)).drop("is_mark")

    @shared_property
    def launches(self) -> pl.DataFrame:
        trace = self.analysis.attributed
        return trace.calls.select(*THREAD, "start_ns", "end_ns")[trace.work["call"].drop_nulls().unique()]

    @shared_property
    def memo(self) -> Memo:
        return Memo()

    # -- steps

    @shared_property
    def steps(self) -> pl.DataFrame:
        return self.analysis.iterations

    @shared_property
    def step_times(self) -> pl.DataFrame:
        """Returns the steps with other times (analysis/until_done.py). `end_ns` is when all work that the step launched
        was done. `start_ns` is when the step before was done, or the step's own start if that is later. `alike` is
        equal for steps with the same work."""
        steps = self.analysis.iterations_until_done
        rows = steps.with_columns(start_ns=_col("done_ns") - _col("took_ns"), end_ns="done_ns")
        rows = within_part(rows, self.trace)
        return rows.with_columns(alike(rows["step"]), took_ns=length())

    @shared_property
    def usual_steps(self) -> pl.DataFrame:
        return self.steps.filter(~_col("is_outlier").fill_null(value=False))

    @shared_property
    def breakdown(self) -> pl.DataFrame:
        """Returns the time of each step. If the trace has no steps, returns the time of each process."""
        return self.analysis.breakdown if self.steps.height else self.analysis.whole_breakdown

    @shared_property
    def total_ns(self) -> int:
        """Returns how long the run took: the time of the process that took longest."""
        return self.longest(self.times, "time_ns")

    @shared_property
    def times(self) -> pl.DataFrame:
        """Returns rank, pid and time_ns: the length of each step until all its launched work was done. For a process
        without steps, the time begins with the first work of its devices. If no process has steps or devices, the whole
        time of each process counts."""
        lasted = self.step_times.select(*PROCESS, time_ns="took_ns")
        begun = self.begins.select(*PROCESS, time_ns=_col("end_ns") - _col("begin_ns"))
        known = pl.concat([lasted, begun])
        return known if known.height else self.breakdown.select(known.columns)

    @shared_property
    def begins(self) -> pl.DataFrame:
        """Returns the time of each process that used devices but has no steps. `begin_ns` is when the first work of a
        device begins. The time before `begin_ns` counts as the start of the program."""
        work = on_device(self.trace.work.select(*PROCESS, "start_ns", "kind", "is_overhead"))
        first = sum_by(work, PROCESS, begin_ns=_col("start_ns").min())
        times = within_part(whole_times(self.trace), self.trace)
        times = times.join(self.steps, on=PROCESS, how="anti", nulls_equal=True)
        return times.join(first, on=PROCESS, nulls_equal=True).filter(_col("begin_ns") >= _col("start_ns"))

    @property
    def total_name(self) -> str:
        """The name of the time that `total_ns` measures."""
        return "the steps' time" if self.steps.height else "the run"

    def share(self, ns: float) -> float:
        return ns / self.total_ns if self.total_ns else 0.0

    def matters(self, ns: float, threshold: float) -> bool:
        """Returns whether a time is above zero and at least the share `threshold` of the run's time."""
        return ns > 0 and self.share(ns) >= threshold

    def drop_outliers(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Returns the rows whose `step` is not an outlier, and the rows of processes without steps."""
        odd = self.steps.filter(_col("is_outlier").fill_null(value=False)).select(*PROCESS, "step")
        return rows.join(odd, on=[*PROCESS, "step"], how="anti", nulls_equal=True, maintain_order="left")

    def rows_in_usual_steps(
        self, rows: pl.DataFrame, time: str = "start_ns", is_late: bool = False, odd: bool = False
    ) -> pl.DataFrame:
        """Returns the rows whose `time` is in a usual step, with the step's name as `step`. For a process without
        steps, returns the rows from the first work of a device on, with a null `step`. `is_late` leaves out the first
        step of each process, which does one-time work. `odd` includes outliers."""
        stretches = self.steps if odd else self.usual_steps
        if is_late and stretches.height:
            first = self.steps.sort("start_ns").unique(PROCESS, keep="first", maintain_order=True)
            stretches = stretches.join(first, on=[*PROCESS, "start_ns"], how="anti", nulls_equal=True)
        none = pl.lit(None, dtype=self.steps.schema["step"]).alias("step")
        outside = rows
        if self.steps.height:
            outside = rows.join(self.steps, on=PROCESS, how="anti", nulls_equal=True, maintain_order="left")
        if self.begins.height:
            outside = look_up(outside, self.begins.select(*PROCESS, "begin_ns"), PROCESS)
            outside = only(outside, (_col(time) >= _col("begin_ns")).fill_null(value=True)).drop("begin_ns")
        if not self.steps.height:
            return outside.with_columns(none)
        pairs = within(rows, time, stretches, PROCESS)
        inside = rows[pairs["row"]].with_columns(stretches["step"].gather(pairs["stretch"]).alias("step"))
        return pl.concat([inside, outside.with_columns(none)])

    # -- devices

    @shared_property
    def has_devices(self) -> bool:
        return on_device(self.trace.work.select("kind", "is_overhead")).height > 0

    @shared_property
    def devices_used(self) -> pl.DataFrame:
        used = distinct(on_device(self.trace.work.select(*DEVICE, "kind", "is_overhead")), DEVICE)
        return used.group_by(PROCESS).agg(devices=_col("device_id").n_unique())

    def longest(self, rows: pl.DataFrame, column: str) -> int:
        """Sums a column for each process, and returns the largest sum."""
        return int(sum_by(rows, PROCESS, ns=_col(column).cast(pl.Int64).sum())["ns"].max() or 0)  # type: ignore[arg-type]

    def per_process(self, rows: pl.DataFrame, column: str) -> int:
        """Divides each process's sum of a column by the number of devices that the process used. Returns the largest
        result."""
        return int(self.means_per_process(rows, column)[column].max() or 0)  # type: ignore[arg-type]  # a number

    def means_per_process(self, rows: pl.DataFrame, column: str) -> pl.DataFrame:
        """Returns the sum of a column, divided by the number of devices, for each process (and each `component` if rows
        have it). If a process used no devices, it counts as one device."""
        by = [*PROCESS, "component"] if "component" in rows.columns else list(PROCESS)
        sums = sum_by(rows, by, **{column: _col(column).cast(pl.Int64).sum()})
        sums = sums.join(self.devices_used, on=PROCESS, how="left", nulls_equal=True)
        return sums.with_columns(_col(column) / _col("devices").fill_null(1)).drop("devices")

    @shared_property
    def kernels(self) -> pl.DataFrame:
        """Returns the work that usual steps launched, and all work of processes without steps. Work may run during a
        later step, because the host does not wait for it."""
        return self.rows_in_usual_steps(self.busy, self._launched)

    @shared_property
    def computing(self) -> pl.DataFrame:
        """Returns the kernels of all steps, but no collectives."""
        return only(self.all_kernels, _col("what") == "computing")

    @shared_property
    def all_kernels(self) -> pl.DataFrame:
        """Returns the work that steps launched, outliers included, and all work of processes without steps."""
        is_same = self.usual_steps.height == self.steps.height
        return self.kernels if is_same else self.rows_in_usual_steps(self.busy, self._launched, odd=True)

    @property
    def _launched(self) -> str:
        return "launched_ns" if self.steps.height else "start_ns"

    @shared_property
    def busy(self) -> pl.DataFrame:
        """Returns the work of devices. Columns: `ns`, `what` (analysis/busy.py names the kinds), `blocks`,
        `multiprocessors`, and the range that the work belongs to (`range`, `op`, `module` and `phase`)."""
        more = ("grid_x", "grid_y", "grid_z", "range", "call", "bytes", "copy_from", "copy_to")
        work = only(busy_with(self.trace.work, *more).with_columns(ns=length()), _col("ns") > 0)
        called_ns = self.trace.calls["start_ns"].gather(work["call"])
        work = work.with_columns(launched_ns=pl.coalesce(called_ns, "start_ns"))
        # Work that was not launched in a step counts for the step in which it ran.
        in_step = within(work, "launched_ns", self.steps, PROCESS)["row"]
        is_in_step = pl.Series([False]).new_from_index(0, work.height).scatter(in_step, True)
        work = work.with_columns(launched_ns=pl.when(is_in_step).then("launched_ns").otherwise("start_ns"))
        size = self.trace.devices.select("rank", "device_id", "multiprocessors", "capability")
        size = size.unique(["rank", "device_id"], keep="first", maintain_order=True)
        work = look_up(work, size, ("rank", "device_id"))
        blocks = _col("grid_x").cast(pl.Int64) * _col("grid_y") * _col("grid_z")
        return self.add_names(work.with_columns(blocks=blocks))

    @shared_property
    def knows_waits(self) -> bool:
        """Returns whether all waits of hosts for devices are known. If they are not, the graph does not show which
        process would end sooner."""
        return knows_waits(self.analysis, self.graph, self.savings, self.times)

    @shared_property
    def graph(self) -> Graph:
        return graph_of(self.analysis)

    def add_names(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Adds `op`, `module` and `phase` of the range whose row number is in `range`, and `lines` if the trace has
        lines."""
        return with_names(self.trace, self._lines, rows)

    @shared_property
    def _lines(self) -> Lines | None:
        return lines_of(self.trace)

    # -- the host

    @shared_property
    def _names(self) -> pl.Series:
        return self.ranges["name"].unique().drop_nulls()

    def ranges_named(self, pattern: str) -> pl.DataFrame:
        """Returns the ranges whose names match the pattern. To save time, tests each distinct name only once."""
        chosen = self._names.filter(self._names.cast(pl.String).str.contains(pattern))
        return self.ranges.filter(_col("name").is_in(chosen.implode())) if len(chosen) else self.ranges.clear()

    @shared_property
    def has_loop_in_optimizer(self) -> bool:
        """Returns whether the optimizer's ops are known, and each of these ops takes only one parameter."""
        ops = self.ranges.filter(_col("phase") == "optimizer", _col("kind") == "op")["name"].unique().cast(pl.String)
        many = ops.str.contains("_foreach_|fused|multi_tensor")
        return len(ops) > 0 and not many.any()

    @shared_property
    def _is_compiling(self) -> pl.Series:
        return is_compiling(self.trace.ranges)

    @shared_property
    def is_falling_back(self) -> pl.Series:
        """Returns for each range whether it is, or is inside, an op that the host ran because a device lacks a
        kernel."""
        return is_in_fallback(self.trace.ranges)

    @shared_property
    def compilations(self) -> pl.DataFrame:
        """Returns the outermost ranges in which torch compiled, and compilations that only marks show (marks.py)."""
        return compiled_times(self.trace.ranges, self._is_compiling)

    @shared_property
    def paces(self) -> pl.DataFrame:
        return paces(self.analysis)

    # -- collectives

    @shared_property
    def collectives(self) -> pl.DataFrame:
        """Returns the collectives of all steps. Each has `exposed_ns` (the time in which nothing else ran), its step,
        and the names of the range that started it."""
        return self.add_exposed(self.analysis.collectives)

    def add_exposed(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Adds the columns that `collectives` has. A collective counts for the step that launched it, even if it runs
        during a later step."""
        # Leaves out collectives of the host in a run with devices, because the rule for Gloo reports them.
        is_timed = _col("work").is_not_null() | (_col("time_ns").is_not_null() & ~pl.lit(self.has_devices))
        rows = rows.drop_nulls(("start_ns", "end_ns")).filter(is_timed)
        trace = self.analysis.attributed
        calls = trace.work["call"].gather(rows["work"])
        at_ns = pl.coalesce(trace.calls["start_ns"].gather(calls), "start_ns")
        rows = rows.with_columns(exposed_ns(rows, trace), before_ns=bare_before(rows, trace), at_ns=at_ns)
        computed = only(self.busy, _col("what") == "computing")
        rows = self.add_names(rows.with_columns(backward_ns(rows, computed).alias("backward_ns")))
        rows = self.rows_in_usual_steps(rows, "at_ns" if self.steps.height else "start_ns", odd=True).drop("at_ns")
        return add_held(rows, self.rows_in_usual_steps(self.holds, odd=True))

    @shared_property
    def lateness(self) -> pl.DataFrame:
        """Returns how long each device, or process without devices, waited for others in each step."""
        return lateness(self.collectives)

    @shared_property
    def savings(self) -> pl.DataFrame:
        """Returns rank, pid, saves_ns: an upper bound of how much sooner a process would be done if its devices took no
        time. Processes for which that is unknown are left out."""
        return savings_of(self.analysis)

    # -- idle time

    @shared_property
    def idle(self) -> pl.DataFrame:
        """Returns the idle time in usual steps: each row is a part of a gap, with one range and one cause. Columns:
        gap, range, ns, rank, pid, device_id, `cause`, `wait` (why the host waited), op, module, phase, step, and the
        gap's start_ns, end_ns and launched_ns."""
        gaps = self._gaps
        pieces = cut_at(self.steps, self.analysis.attributed, self.analysis.gaps, self.analysis.idle)
        pieces = only(pieces, ~gaps["is_start"].gather(pieces["gap"])).with_row_index("piece")
        whose = (gaps[name].gather(pieces["gap"]) for name in PROCESS)
        usual = self.rows_in_usual_steps(pieces.select("piece", "at_ns").with_columns(whose), "at_ns")
        pieces = pieces.drop("piece")[usual["piece"]].with_columns(usual["step"].cast(pl.Categorical))
        columns = (*DEVICE, "start_ns", "end_ns", "launched_ns", "held_ns")
        pieces = pieces.hstack(gaps.select(columns)[pieces["gap"]])
        pieces = self.add_names(pieces.with_columns(wait=pl.lit(None, dtype=pl.String)))
        is_compiling, is_falling_back = (
            pl.lit(inside.gather(pieces["range"]).fill_null(value=False)) if inside.any() else pl.lit(value=False)
            for inside in (self._is_compiling, self.is_falling_back)
        )
        in_optimizer = (_col("phase") == "optimizer") & self.has_loop_in_optimizer
        is_cause = zip(CAUSES, (is_compiling, is_falling_back, _col("phase") == "data", in_optimizer), strict=False)
        why = _col("why").cast(_CAUSE)
        cause = pl.coalesce(*(pl.when(is_so).then(pl.lit(name, dtype=_CAUSE)) for name, is_so in is_cause), why)
        hosts = _col("why").is_in(["host", "launch"])
        pieces = pieces.with_columns(cause=pl.when(hosts).then(cause).otherwise(why))
        pieces = assign(pieces, "held_ns", ("gap",), ("host", "launch"), "held")
        # After a wait the device has no work. So the device also stays idle while the host loads the next batch, and
        # the wait is the cause.
        pieces = after_waits(pieces, self.drains, self.steps, ("host", "launch", "data", "optimizer"))
        return pieces.drop("held_ns", "at_ns")

    @shared_property
    def _gaps(self) -> pl.DataFrame:
        """Returns the gaps (times in which a device was idle). `is_start`: whether a process without steps begins with
        this gap. `launched_ns`: when the work after the gap was launched; null if it was launched at another
        time. `held_ns`: how long calls (`holds`) held up the launching thread in the gap until that launch."""
        held = self.holds.select(*THREAD, "start_ns", "end_ns")
        gaps = self.analysis.gaps.with_row_index("gap")
        launched = _col("start_ns") + _col("host_ns")
        spans = gaps.select(*THREAD, "start_ns", end_ns=launched)
        held_ns = time_in(held, spans, THREAD) if held.height else pl.lit(0, dtype=pl.Int64)
        is_late = _col("host_ns") + _col("launch_ns") > 0
        gaps = gaps.with_columns(held_ns.alias("held_ns"), launched_ns=pl.when(is_late).then(launched))
        begins = self.begins.select(*PROCESS, "start_ns", is_start=True)
        if not begins.height:
            return gaps.with_columns(is_start=pl.lit(value=False))
        gaps = gaps.join(begins, on=[*PROCESS, "start_ns"], how="left", nulls_equal=True, maintain_order="left")
        return gaps.with_columns(_col("is_start").fill_null(value=False))

    @shared_property
    def holds(self) -> pl.DataFrame:
        """Returns the calls in which hosts took memory from the driver, gave memory back, or loaded code."""
        return self.analysis.waits.filter(_col("why").is_in(HOLD))

    @shared_property
    def drains(self) -> pl.DataFrame:
        """Returns the waits after which a device may be idle, on threads that launch work. `wait` is the reason of a
        wait, and `wait_ns` is how long the wait held up the host. Leaves out waits in an op that the host runs because
        a device lacks a kernel, because these waits count for that op. In a process without steps, also leaves out
        waits before the first work of a device."""
        waits = self.analysis.waits.with_columns(wait=_col("why").cast(pl.String))
        waits = waits.filter(~self.is_falling_back.gather(waits["range"]).fill_null(value=False))
        waits = waits.filter(_col("wait").is_in(DRAIN)).drop_nulls(("start_ns", "end_ns"))
        launching = distinct(self.analysis.gaps, THREAD)
        waits = waits.join(launching, on=THREAD, how="semi", nulls_equal=True, maintain_order="left")
        begins = self.begins.select(*PROCESS, "begin_ns")
        waits = waits.join(begins, on=PROCESS, how="left", nulls_equal=True, maintain_order="left")
        waits = waits.with_columns(start_ns=pl.max_horizontal("start_ns", "begin_ns")).drop("begin_ns")
        waits = waits.filter(length() > 0)
        # If other threads launch during most of a thread's waits, these waits do not hold up the launches.
        pairs = within(self.launches, "start_ns", waits, PROCESS)
        is_other = self.launches["tid"].gather(pairs["row"]).ne_missing(waits["tid"].gather(pairs["stretch"]))
        is_beside = pl.int_range(pl.len()).is_in(pairs["stretch"].filter(is_other).implode())
        holds_up = is_beside.mean().over(THREAD) <= _MOSTLY
        return waits.with_columns(wait_ns=pl.when(holds_up).then(length()).otherwise(0))


def top(rows: pl.DataFrame, column: str, by: str) -> tuple[str, ...]:
    """Returns the names in the column `by` with the largest sums of `column`, the largest first."""
    sums = rows.filter(_col(column) > 0).group_by(by).agg(_col(column).sum()).drop_nulls(by)
    return tuple(sums.sort(column, by, descending=[True, False]).head(_TOP)[by].cast(pl.String).to_list())


def ranks_of(rows: pl.DataFrame) -> tuple[int, ...]:
    return tuple(rows["rank"].unique().drop_nulls().sort().to_list())
