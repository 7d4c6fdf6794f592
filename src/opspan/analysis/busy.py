"""Computes how the time of a step is spent, on each device and in the whole process.

    devices(trace, steps) -> rank, pid, device_id, step, and these columns in ns:
        time_ns, busy_ns, idle_ns: time of the step; time in which work ran on the device; time without work.
        kernel_ns: time in which a kernel ran.
        computing_ns: time in which a kernel other than a collective ran.
        communicating_ns, copying_ns: time in which a collective ran; time in which a copy or a fill ran.
        exposed_communicating_ns: time in which a collective ran and nothing computed.
        exposed_copying_ns: time in which a copy or a fill ran, and nothing computed or communicated.
        work_ns, tensor_core_ns, unknown_core_ns: summed durations of all kernels, of kernels on tensor cores, and of
            kernels whose names do not show which cores they use. A kernel counts in the step in which it begins.
        sm_ns: time, weighted at each moment by the share of the multiprocessors (at most 1) that the running kernels
            have blocks for.
        occupancy_ns: sum of duration * occupancy, over kernels with a known occupancy.
        with_occupancy_ns: sum of the durations of these kernels.
    use(devices) -> rank, pid, step, and for all devices of a process together (with by=DEVICE, for each device):
        utilisation: kernel_ns as a share of the time.
        sm_efficiency: sm_ns as a share of the time.
        occupancy: mean of the kernels' occupancy, weighted by their time.
        tensor_core_share: share of tensor core kernels in the kernels' time.
    breakdown(trace, steps) -> rank, pid, step, time_ns, and a column <kind>_ns for each of KINDS. Each moment of a step
        counts for one kind only: the first of KINDS that runs at that moment. So the kinds add up to time_ns.
        Collectives that the host itself runs count as communicating, but only in moments without any other kind.

`trace` must have phases; `steps` come from `iterations`. A process without steps has one row, with a null step, for its
whole time: from the first to the last of its ranges, calls and work, without the profiler's own work. With
`with_wholes`, processes with steps have such a row, too. If two processes share a device, each process has a row for
the device, with the work of that process. Work belongs to the step in which it runs, not to the step that launched it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from opspan.analysis.averages import on_device
from opspan.analysis.collective_names import collectives_done
from opspan.analysis.kernels import is_told, with_facts
from opspan.analysis.occupancy import SHAPE, blocks_per_sm, occupancy
from opspan.analysis.spans import (
    DEVICE,
    LEAST,
    MOST,
    PROCESS,
    bounded,
    distinct,
    length,
    number_groups,
    only,
    sum_by,
    time_in,
    union,
    within,
)
from opspan.tables.tables import own
from opspan.tables.window import stretches

if TYPE_CHECKING:
    from opspan.tables import Tables

_col = pl.col
# If several kinds run at the same moment, the moment counts for the first of them in this list.
KINDS = ("computing", "copying", "filling", "communicating", "calling", "loading", "ops", "other")
WHAT = pl.Enum(["copying", "filling", "communicating", "computing"])  # the kinds of work on a device
OPS = ("op", "backward", "engine", "script", "static_op", "static_model")
# Libraries whose calls drive a device.
APIS = "^(cuda|hip|hsa|level_zero|ze|sycl|opencl|musa|runtime|driver)"


def devices(trace: Tables, steps: pl.DataFrame, *, with_wholes: bool = False) -> pl.DataFrame:
    work = busy_with(trace.work, *SHAPE)
    times = step_times(trace, steps, with_wholes=with_wholes)
    used = distinct(work, DEVICE).join(times, on=PROCESS, nulls_equal=True).sort(*DEVICE, "start_ns")
    kernels = _of_kinds(work, "computing", "communicating")
    spans = work.select(*DEVICE, "start_ns", "end_ns", "what")
    sets = {
        "busy_ns": spans,
        "known_ns": _of_kinds(spans, "computing", "communicating", "copying", "filling"),
        "kernel_ns": _of_kinds(spans, "computing", "communicating"),
        "computing_ns": _of_kinds(spans, "computing"),
        "communicating_ns": _of_kinds(spans, "communicating"),
        "copying_ns": _of_kinds(spans, "copying", "filling"),
    }
    # The second, third and fourth set are each a subset of the set before. A set that has as many rows as the set
    # before is equal to it, so its time need not be computed again.
    covered: dict[str, pl.Series] = {}
    for (name, rows), before in zip(sets.items(), ("", *sets), strict=False):
        is_same = 0 < len(covered) < 4 and rows.height == sets[before].height
        covered[name] = covered[before] if is_same else time_in(rows, used, DEVICE)
    rows = used.with_columns(ns.alias(name) for name, ns in covered.items())
    rows = rows.with_columns(
        time_ns=length(),
        exposed_communicating_ns=_col("kernel_ns") - _col("computing_ns"),
        exposed_copying_ns=_col("known_ns") - _col("kernel_ns"),
    )
    kernels = _with_shape(kernels, trace)
    rows = rows.with_columns(idle_ns=_col("time_ns") - _col("busy_ns"), sm_ns=_sm_ns(kernels, used))
    sums = _kernel_sums(kernels, used)
    key = [*DEVICE, "step", "start_ns"]
    rows = rows.join(sums, on=key, how="left", nulls_equal=True, maintain_order="left")
    counted = _col("work_ns", "tensor_core_ns", "unknown_core_ns").fill_null(0)
    return rows.with_columns(counted).drop("start_ns", "end_ns", "known_ns")


def _of_kinds(work: pl.DataFrame, *kinds: str) -> pl.DataFrame:
    return only(work, _col("what").is_in(kinds))


def use(devices: pl.DataFrame, by: tuple[str, ...] = PROCESS) -> pl.DataFrame:
    """Returns the use of the devices of each process; with by=DEVICE, the use of each device. Figures are null if they
    are unknown. sm_efficiency leaves out devices for which sm_ns is unknown."""
    time, work = _col("time_ns").cast(pl.Float64), _col("work_ns")
    parts = {
        "utilisation": (_col("kernel_ns"), time),
        "sm_efficiency": (_col("sm_ns"), time.filter(_col("sm_ns").is_not_null())),
        "occupancy": (_col("occupancy_ns"), _col("with_occupancy_ns")),
        "tensor_core_share": (_col("tensor_core_ns"), work.filter(is_told(_col("unknown_core_ns").sum(), work.sum()))),
    }
    shares = (
        pl.when(total.sum() > 0).then(part.sum() / total.sum().cast(pl.Float64)).alias(name)
        for name, (part, total) in parts.items()
    )
    return devices.group_by(*by, "step", maintain_order=True).agg(*shares)


def breakdown(trace: Tables, steps: pl.DataFrame, *, with_wholes: bool = False) -> pl.DataFrame:
    work = busy_with(trace.work).select(*PROCESS, "start_ns", "end_ns", "what")
    calls = trace.calls.select(*PROCESS, "start_ns", "end_ns", "api")
    apis = calls["api"].unique().cast(pl.String)
    calls = calls.filter(_col("api").is_in(apis.filter(apis.str.contains(APIS)).cast(pl.Categorical).implode()))
    ranges = trace.ranges.select(*PROCESS, "start_ns", "end_ns", "name", "kind", "phase", "is_async", "is_mark")
    nested = ranges.filter(~_col("is_async"), ~_col("is_mark").fill_null(value=False))
    spans = {name: _of_kinds(work, name) for name in KINDS[:4]}
    spans["calling"] = calls
    spans["loading"] = nested.filter(_col("phase") == "data")
    spans["ops"] = nested.filter(_col("kind").is_in(OPS))
    rows = step_times(trace, steps, with_wholes=with_wholes).with_columns(together=pl.lit(0, dtype=pl.Int64))
    # The time of a kind is the time covered by all kinds up to this one, minus the time covered by the kinds before.
    together = work.clear().select(*PROCESS, "start_ns", "end_ns")
    for name, spans_of_kind in spans.items():
        before = rows["together"]
        if spans_of_kind.height:
            together = union(spans_of_kind, PROCESS, together)
            rows = rows.with_columns(time_in(together, rows, PROCESS).alias("together"))
        rows = rows.with_columns((_col("together") - before).alias(f"{name}_ns"))
    on_host = ranges.filter(_col("name").is_in(collectives_done(ranges["name"]).implode()))
    if on_host.height:
        together = union(on_host, PROCESS, together)
        both = time_in(together, rows, PROCESS)
        rows = rows.with_columns(
            both.alias("together"), communicating_ns=_col("communicating_ns") + both - rows["together"]
        )
    rows = rows.with_columns(time_ns=length())
    return rows.with_columns(other_ns=_col("time_ns") - _col("together")).drop("start_ns", "end_ns", "together")


BUSY_BY = (*DEVICE, "start_ns", "end_ns", "kind", "name", "full_name", "is_overhead")


def busy_with(work: pl.DataFrame, *more: str) -> pl.DataFrame:
    """Returns the work that kept devices busy, with its row number `work`, its kind `what`, and the columns BUSY_BY and
    `more`."""
    rows = with_facts(on_device(work.select(*BUSY_BY, *more).with_row_index("work")))
    is_kernel = _col("kind").is_in(["kernel", "graph"])
    is_kind = (_col("kind") == "memcpy", _col("kind") == "memset", is_kernel & _col("is_communication"), is_kernel)
    kinds = zip(is_kind, WHAT.categories, strict=True)
    return rows.with_columns(what=pl.coalesce(pl.when(is_so).then(pl.lit(kind, dtype=WHAT)) for is_so, kind in kinds))


def step_times(trace: Tables, steps: pl.DataFrame, *, with_wholes: bool = False) -> pl.DataFrame:
    """Returns rank, pid, step, start_ns, end_ns of each step. Adds a row for the whole time of each process without
    steps. If `with_wholes` is set, all processes get such a row."""
    columns = (*PROCESS, "step", "start_ns", "end_ns")
    wholes = whole_times(trace)
    if not with_wholes:
        wholes = wholes.join(steps, on=PROCESS, how="anti", nulls_equal=True)
    wholes = wholes.with_columns(step=pl.lit(None, dtype=pl.String)).select(columns)
    return within_part(pl.concat([steps.select(columns), wholes]), trace).sort(*PROCESS, "start_ns")


def within_part(rows: pl.DataFrame, trace: Tables) -> pl.DataFrame:
    """Clips the times of rows to the part of the trace that was loaded, because loaded ranges may reach beyond it."""
    parts = stretches(trace)
    if not parts:
        return rows
    bounds = [(rank, max(part.start_ns, LEAST), min(part.end_ns, MOST)) for rank, part in parts.items()]
    bounds_of = pl.DataFrame(
        bounds, {"rank": rows.schema["rank"], "from_ns": pl.Int64, "to_ns": pl.Int64}, orient="row"
    )
    rows = rows.join(bounds_of, on="rank", how="left", maintain_order="left")
    start, end = pl.max_horizontal("start_ns", "from_ns"), pl.min_horizontal("end_ns", "to_ns")
    return rows.with_columns(start_ns=start, end_ns=end).filter(start <= end).drop("from_ns", "to_ns")


def whole_times(trace: Tables) -> pl.DataFrame:
    """Returns, for each process, the first and the last time of its ranges, calls and work. The profiler's own work
    does not count. `overhead_outside_ns` returns how long the profiler worked before and after these times."""
    ends = [
        _ends(frame.select(*PROCESS, "start_ns", end_ns=pl.coalesce("end_ns", "start_ns")))
        for frame in (trace.ranges, trace.calls, own(trace.work))
    ]
    return _ends(pl.concat(ends)).drop_nulls("start_ns").sort(PROCESS)


def within_whole(rows: pl.DataFrame, trace: Tables) -> pl.DataFrame:
    """Clips rows to the time of their process (`whole_times`), and removes rows outside of it."""
    wholes = whole_times(trace).select(*PROCESS, from_ns="start_ns", to_ns="end_ns")
    rows = rows.join(wholes, on=PROCESS, nulls_equal=True, maintain_order="left")
    start, end = pl.max_horizontal("start_ns", "from_ns"), pl.min_horizontal("end_ns", "to_ns")
    return rows.with_columns(start_ns=start, end_ns=end).filter(length() > 0).drop("from_ns", "to_ns")


def overhead_outside_ns(trace: Tables) -> int:
    """Sums, over all processes, how long the profiler itself worked before and after the time of the process
    (`whole_times`)."""
    if not trace.work["is_overhead"].any():
        return 0
    overhead = union(trace.work.filter("is_overhead").select(*PROCESS, "start_ns", "end_ns"), PROCESS)
    total, inside = (
        int(rows.select(bounded(length().cast(pl.Int128).sum())).item())
        for rows in (overhead, within_whole(overhead, trace))
    )
    return total - inside


def _ends(rows: pl.DataFrame) -> pl.DataFrame:
    return sum_by(rows, PROCESS, start_ns=_col("start_ns").min(), end_ns=_col("end_ns").max())


def _with_shape(kernels: pl.DataFrame, trace: Tables) -> pl.DataFrame:
    """Adds the share of the multiprocessors that each kernel has blocks for, and the occupancy of each kernel."""
    blocks = blocks_per_sm(kernels, trace.devices).clip(upper_bound=1.0).alias("sm_share")
    columns = (*DEVICE, "start_ns", "end_ns", "on_tensor_cores")
    return only(kernels.select(*columns, blocks, occupancy(kernels, trace.devices)), length() > 0)


def _sm_ns(kernels: pl.DataFrame, used: pl.DataFrame) -> pl.Series:
    """Returns, for each device and step, the integral over time of the share of multiprocessors that are in use. This
    share is the sum of the shares of the running kernels, but at most 1. The integral is null if no share is known."""
    some = kernels.filter(_col("sm_share").is_not_null())
    some, steps = number_groups(DEVICE, some, used)
    begins = some.select("of", time_ns="start_ns", change="sm_share")
    ends = some.select("of", time_ns="end_ns", change=-_col("sm_share"))
    at = pl.concat([begins, ends]).sort("of", "time_ns", maintain_order=True)
    at = at.with_columns(share=_col("change").cum_sum().over("of"))
    at = at.unique(("of", "time_ns"), keep="last", maintain_order=True).with_columns(_col("share").clip(0.0, 1.0))
    lasted = (_col("time_ns") - _col("time_ns").shift(1)).cast(pl.Float64)
    before = (_col("share").shift(1) * lasted).fill_null(0.0).cum_sum()
    at = at.select("of", "time_ns", "share", before=before.over("of"))
    until_end, until_start = (_until(at, steps.select("of", time_ns=name)) for name in ("end_ns", "start_ns"))
    is_known = steps["of"].is_in(at["of"].unique().implode())
    return (until_end - until_start).set(~is_known, None).alias("sm_ns")


def _until(at: pl.DataFrame, times: pl.DataFrame) -> pl.Series:
    """Returns the integral (see `_sm_ns`) up to each of `times`. `at` has the moments at which the share changes, the
    share after each of these moments, and the integral up to each of them."""
    rows = times.with_row_index("row").sort("time_ns")
    since = at.rename({"time_ns": "since_ns"}).sort("since_ns")
    rows = rows.join_asof(since, left_on="time_ns", right_on="since_ns", by="of", check_sortedness=False)
    integral = _col("before") + _col("share") * (_col("time_ns") - _col("since_ns")).cast(pl.Float64)
    return rows.sort("row").select(integral.fill_null(0.0)).to_series()


def _kernel_sums(kernels: pl.DataFrame, used: pl.DataFrame) -> pl.DataFrame:
    """Returns sums over kernels. Each kernel counts fully in the step in which it begins."""
    steps = used.with_row_index("number")
    inside = within(kernels, "start_ns", steps, DEVICE)  # if steps overlap, a kernel counts in several steps
    ns, known = length(), _col("occupancy").is_not_null()
    times = kernels.select(
        work_ns=ns,
        tensor_core_ns=pl.when("on_tensor_cores").then(ns).otherwise(0),
        unknown_core_ns=pl.when(_col("on_tensor_cores").is_null()).then(ns).otherwise(0),
        occupancy_ns=_col("occupancy") * ns,
        with_occupancy_ns=pl.when(known).then(ns),
        is_known=known,
    )
    sums = times[inside["row"]].group_by(inside["stretch"].alias("number")).agg(_col(times.columns).sum())
    sums = sums.with_columns(
        pl.when(_col("is_known") > 0).then(_col("occupancy_ns", "with_occupancy_ns")),
    ).drop("is_known")
    return steps.join(sums, on="number", how="left").select(*DEVICE, "step", "start_ns", *sums.columns[1:])
