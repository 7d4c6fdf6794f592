"""Finds the work that took longer in some steps than in usual steps, on threads of the host and on devices.

    growth_of(run, odd) -> Growth

    excess      rank, pid, step, what (the kind of work), name, ns, usual_ns, more_ns: the work of one name in a step,
                and how much longer it took than in a usual step
    stretches   rank, pid, tid, start_ns, end_ns, step, factor: times in which threads worked. Multiplied by the factor,
                a time is as long as in a usual step
    work        work (a row of the trace's work), rank, pid, step, factor: work of devices. Multiplied by the factor,
                the work takes as long as in a usual step

The work of a thread is named after the op that the program called or, outside of ops, after the innermost range. Calls
of the driver outside of ops keep their names. If only the step is around the work, the name is that of the innermost
long Python function, or null. Work of devices counts for the op and the step that launched the work.

Three things are not counted: compiling in steps after the first step; waiting of a thread for a device, for room in a
full queue of launches, or for another thread; and collectives on devices, which may wait for other ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from opspan.analysis.engine_labels import alike
from opspan.analysis.functions import spans_of
from opspan.analysis.nest import innermost, nearest
from opspan.analysis.path_threads import FOR_ROOM, FOR_THREAD, FOR_WORK, is_driving
from opspan.analysis.spans import PROCESS, THREAD, length, only, union, within
from opspan.findings.marks import after_first_step, is_step_range
from opspan.findings.run import Run
from opspan.row_numbers import ROW_NUMBER

_col = pl.col
_STEP = (*PROCESS, "step")
_ALIKE = (*PROCESS, "alike")  # a step is compared with steps of the same process that have the same work
_WHAT = (*PROCESS, "what", "name")
_LONG = 0.1  # share of the smallest more_ns of all odd steps; the time of a shorter function counts for its caller
_NO_OPS = ("module", "user", "step")  # in a range of these kinds, a call of the driver keeps its own name
DEVICES = ("computing", "copying", "filling")


@dataclass(frozen=True)
class Growth:
    excess: pl.DataFrame
    stretches: pl.DataFrame
    work: pl.DataFrame


def growth_of(run: Run, odd: pl.DataFrame) -> Growth:
    """Compares the steps `odd` (rank, pid, step, alike, more_ns) with usual steps."""
    marked = odd.select(*_STEP, is_odd=pl.lit(value=True))
    steps = run.steps.join(marked, on=_STEP, how="left", nulls_equal=True, maintain_order="left")
    steps = steps.with_columns(_col("is_odd").fill_null(value=False))
    steps = steps.with_columns(alike(steps["step"]))
    steps = steps.join(odd.select(_ALIKE).unique(), on=_ALIKE, how="semi", nulls_equal=True, maintain_order="left")
    # Outliers that are not in `odd` are left out: they are not compared, and they are not usual steps.
    outliers = run.step_times.filter("is_outlier").join(odd, on=_STEP, how="anti", nulls_equal=True)
    steps = steps.join(outliers, on=_STEP, how="anti", nulls_equal=True, maintain_order="left")
    least_ns = int(_LONG * int(odd["more_ns"].min() or 0))  # type: ignore[arg-type]  # a number
    host, work = _pieces(run, steps, least_ns), _work(run, steps)
    excess = _excess(pl.concat([rows.select(*_WHAT, "step", "is_odd", "ns") for rows in (host, work)]), steps)
    factors = excess.select(*_STEP, "what", "name", factor=1 - _col("more_ns") / _col("ns"))
    stretches, scale = (
        rows.filter("is_odd").join(factors, on=[*_STEP, "what", "name"], nulls_equal=True) for rows in (host, work)
    )
    return Growth(
        excess,
        stretches.select(*THREAD, "start_ns", "end_ns", "step", "factor"),
        scale.select("work", *_STEP, "factor"),
    )


def _excess(done: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Returns how much longer the work of each name took in each odd step than in usual steps. In each step, the
    increases on threads are scaled so that their sum is the net increase on all threads, and those on devices likewise.
    So work does not count if only its name changed, for example because its kernels ran in a graph."""
    counts = steps.group_by(_ALIKE).agg(usual=(~_col("is_odd")).sum())
    what = [*_ALIKE, "what", "name"]
    done = done.join(steps.select(*_STEP, "alike"), on=_STEP, nulls_equal=True, maintain_order="left")
    usual = done.filter(~_col("is_odd")).group_by(what).agg(usual_ns=_col("ns").sum())
    usual = usual.join(counts, on=_ALIKE, nulls_equal=True)
    usual = usual.select(*what, usual_ns=_col("usual_ns") / _col("usual"))
    rows = steps.filter("is_odd").select(*_STEP, "alike").join(usual.select(what), on=_ALIKE, nulls_equal=True)
    key = [*_STEP, "alike", "what", "name"]
    own = done.filter("is_odd").group_by(key).agg(_col("ns").sum())
    rows = pl.concat([rows.select(key), own.select(key)]).unique()
    rows = rows.join(own, on=key, how="left", nulls_equal=True)
    rows = rows.join(usual, on=what, how="left", nulls_equal=True)
    rows = rows.with_columns(_col("ns", "usual_ns").fill_null(0), is_device=_col("what").is_in(DEVICES))
    rows = rows.with_columns(more_ns=_col("ns") - _col("usual_ns"))
    all_of = [*_STEP, "is_device"]
    net, gross = _col("more_ns").sum().over(all_of).clip(0), _col("more_ns").clip(0).sum().over(all_of)
    rows = rows.with_columns(more_ns=pl.when(gross > 0).then(_col("more_ns") * (net / gross)).otherwise(0.0)).filter(
        _col("more_ns") > 0
    )
    return rows.drop("is_device", "alike").sort("more_ns", "name", descending=[True, False])


def _work(run: Run, steps: pl.DataFrame) -> pl.DataFrame:
    rows = only(run.all_kernels, _col("what").is_in(list(DEVICES)))
    rows = rows.with_columns(own=run.trace.work["name"].gather(rows["work"]))
    name = pl.coalesce(_col("op").cast(pl.String), _col("own").cast(pl.String))
    rows = rows.select("work", *_STEP, _col("what").cast(pl.String), "ns", name=name)
    return rows.join(steps.select(*_STEP, "is_odd"), on=_STEP, nulls_equal=True)


def _pieces(run: Run, steps: pl.DataFrame, least_ns: int) -> pl.DataFrame:
    """Returns the times in which threads worked in the steps, as *THREAD, start_ns, end_ns, ns, step, is_odd, what and
    name."""
    ranges = run.trace.ranges.with_columns(_called_names(run.trace.ranges))
    ranges = ranges.filter(~_col("is_mark").fill_null(value=False)).drop_nulls(("start_ns", "end_ns"))
    waits, calls, functions = _waits(run), _calls(run), _functions(run, least_ns)
    main = run.graph.processes.select(*PROCESS, thread="main")
    main = main.join(run.graph.threads.select("thread", "tid"), on="thread").select(THREAD).unique()
    bounds = steps.join(main, on=PROCESS, nulls_equal=True)
    pieces = _pieces_between((ranges, waits, calls, functions, bounds), steps)
    in_range, in_call, in_function = (innermost(spans, pieces) for spans in (ranges, calls, functions))
    kind, phase = (ranges[name].cast(pl.String).gather(in_range) for name in ("kind", "phase"))
    is_step = is_step_range(ranges, run.steps).gather(in_range)
    pieces = pieces.with_columns(
        is_waiting=innermost(waits, pieces).is_not_null(),
        is_step=is_step.fill_null(value=True),
        kind=kind,
        phase=phase,
        call=calls["name"].gather(in_call),
        function=functions["name"].gather(in_function),
        range=ranges["called"].gather(in_range),
    )
    is_call = _col("call").is_not_null() & (_col("is_step") | _col("kind").is_in(_NO_OPS).fill_null(value=False))
    what = (
        pl.when(is_call).then(pl.lit("calling"))
        .when(_col("is_step")).then(pl.lit("other"))
        .when((_col("phase") == "data").fill_null(value=False)).then(pl.lit("loading"))
        .otherwise(pl.lit("ops"))
    )  # fmt: skip
    name = pl.when(is_call).then("call").when("is_step").then("function").otherwise("range")
    pieces = pieces.with_columns(what=what, name=name, ns=length())
    # Outside of ranges and calls a thread counts as idle. The main thread counts as busy, because it may run Python
    # code that no range shows.
    pieces = pieces.join(main.with_columns(is_main=pl.lit(value=True)), on=THREAD, how="left", nulls_equal=True)
    pieces = pieces.filter(
        ~_col("is_waiting"), _col("ns") > 0, _col("is_main").is_not_null() | (_col("what") != "other")
    )
    later = after_first_step(run.compilations, run.steps)
    compiled = within(pieces, "start_ns", union(later, PROCESS), PROCESS)["row"]
    pieces = pieces.filter(~pl.int_range(pl.len(), dtype=ROW_NUMBER).is_in(compiled.implode()))
    return pieces.select(*THREAD, "start_ns", "end_ns", "ns", "step", "is_odd", "what", "name")


def _called_names(ranges: pl.DataFrame) -> pl.Series:
    """Returns for each range the name of the outermost op around it. A range that is in no op keeps its own name."""
    is_op = (ranges["kind"] == "op").fill_null(value=False)
    is_inner = nearest(ranges, is_op).gather(ranges["parent"]).is_not_null()
    op = ranges["name"].gather(nearest(ranges, is_op & ~is_inner)).cast(pl.String)
    return op.zip_with(op.is_not_null(), ranges["name"].cast(pl.String)).alias("called")


def _pieces_between(frames: tuple[pl.DataFrame, ...], steps: pl.DataFrame) -> pl.DataFrame:
    """Returns the time of each thread in the steps, cut where a row of any of the `frames` begins or ends."""
    times = [frame.select(*THREAD, time_ns=name) for frame in frames for name in ("start_ns", "end_ns")]
    moments = pl.concat(times).unique().sort(*THREAD, "time_ns")
    is_same = pl.all_horizontal(_col(name).eq_missing(_col(name).shift(-1)) for name in THREAD)
    moments = moments.with_columns(end_ns=pl.when(is_same).then(_col("time_ns").shift(-1))).drop_nulls("end_ns")
    pairs = within(moments, "time_ns", steps, PROCESS)
    of_step = steps.select("step", "is_odd", until_ns="end_ns")[pairs["stretch"]]
    pieces = pl.concat([moments[pairs["row"]], of_step], how="horizontal")
    end_ns = pl.min_horizontal("end_ns", "until_ns")
    return pieces.with_columns(start_ns="time_ns", end_ns=end_ns).drop("until_ns")


def _waits(run: Run) -> pl.DataFrame:
    joins = run.graph.joins.filter(_col("what").is_in([FOR_WORK, FOR_ROOM, FOR_THREAD]), _col("is_last"))
    rows = joins.join(run.graph.threads.drop("process"), on="thread")
    # A wait for another thread ends when that thread has done its work. After that the waiting thread counts as busy.
    until = pl.when(_col("what") == FOR_THREAD).then("target_ns").otherwise("time_ns")
    return _with_length(rows.select(*THREAD, start_ns="own_ns", end_ns=until))


def _calls(run: Run) -> pl.DataFrame:
    calls = run.trace.calls
    rows = only(calls.select(*THREAD, "start_ns", "end_ns", _col("name").cast(pl.String)), is_driving(calls["api"]))
    return _with_length(rows.drop_nulls(("start_ns", "end_ns")))


def _functions(run: Run, least_ns: int) -> pl.DataFrame:
    functions = run.trace.functions
    rows = spans_of(functions, run.trace.ranges).with_columns(name=functions["name"].cast(pl.String))
    return rows.filter(length() >= max(least_ns, 1))


def _with_length(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.filter(length() > 0).with_columns(is_async=pl.lit(value=False))
