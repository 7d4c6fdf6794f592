"""Rules about calls in which the host waits: for a device, which then runs out of work, or for the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import polars as pl

from opspan.analysis.spans import PROCESS
from opspan.findings.odd_steps import rows_in_steps
from opspan.findings.rule import Evidence, Rule, place_of, ranges_of
from opspan.findings.run import Run
from opspan.findings.saved import leave_out, rows_that_gain, saved_ns

_col = pl.col


def _drained(*reasons: str) -> Callable[[Run, float], Iterator[Evidence]]:
    """Returns a function that finds how much sooner the run would have ended if the host had not waited for devices for
    these reasons. Without the waits, the host would be ahead of the devices by the length of the waits."""

    def look(run: Run, threshold: float) -> Iterator[Evidence]:
        waits = run.drains.filter(_col("wait").is_in(reasons), _col("wait_ns") > 0)
        waits = run.add_names(rows_in_steps(run, waits))
        is_step = _col("op").cast(pl.String).is_in(run.steps["step"].implode())
        waits = waits.with_columns(op=pl.when(~is_step).then("op"))
        # Waits of outliers count if usual steps wait in the same op.
        waits = waits.join(
            run.drop_outliers(waits), on=[*PROCESS, "op"], how="semi", nulls_equal=True, maintain_order="left"
        )
        if not run.matters(run.longest(waits, "wait_ns"), threshold):
            return
        change = leave_out(run, stretches=_fetching(run, waits), waits=_add_same_ops(run, waits))
        at_stake = saved_ns(run, change)
        if not run.matters(at_stake, threshold):
            return
        waits = rows_that_gain(run, waits, change, threshold * run.total_ns)
        idle = run.idle.filter(_col("cause") == "wait", _col("wait").is_in(reasons))
        figures = {"saved_ns": at_stake, "saved_share": run.share(at_stake), "waits": waits.height}
        figures |= {"wait_ns": int(waits["wait_ns"].sum()), "idle_ns": run.per_process(idle, "ns")}
        yield Evidence(at_stake, figures, **place_of(waits, "wait_ns"))

    return look


def _add_same_ops(run: Run, waits: pl.DataFrame) -> pl.DataFrame:
    """Adds all other waits in the same ops. An op may wait in several calls, for example in a copy and in a
    synchronising call after it."""
    is_op = (run.trace.ranges["kind"] == "op").fill_null(value=False)
    ops = waits["range"].drop_nulls().unique()
    ops = ops.filter(is_op.gather(ops))
    others = run.drains.filter(_col("range").is_in(ops.implode()))
    columns = ("call", *PROCESS, "tid", "start_ns", "end_ns")
    return pl.concat([waits.select(columns), others.select(columns)]).unique("call").drop_nulls("end_ns")


def _fetching(run: Run, waits: pl.DataFrame) -> pl.DataFrame:
    """Returns the ops that waited to fetch a value. Without the waits, the program would not need these ops."""
    ops = run.trace.ranges.select(*PROCESS, "tid", "start_ns", "end_ns", "name", "parent")
    mine = ops[waits["range"].drop_nulls().unique()]
    both = pl.concat([mine, ops[mine["parent"].drop_nulls().unique()]])
    return both.filter(_col("name").cast(pl.String).is_in(_FETCH))


def _held_up(*reasons: str) -> Callable[[Run, float], Iterator[Evidence]]:
    """Returns a function that finds how much sooner the run would have ended if calls that waited for these reasons
    took no time. Calls in the first step do not count, because they are one-time work."""

    def look(run: Run, threshold: float) -> Iterator[Evidence]:
        if not run.steps.height:
            return  # a run without steps includes its start, where these calls are usual
        waits = run.analysis.waits.filter(_col("why").is_in(reasons))
        waits = run.add_names(rows_in_steps(run, waits, is_late=True))
        at_stake = saved_ns(run, leave_out(run, stretches=waits), threshold)
        if not run.matters(at_stake, threshold):
            return
        wait_ns = run.longest(waits, "wait_ns")
        names = run.trace.calls["name"].cast(pl.String).gather(waits["call"])
        yield Evidence(
            at_stake,
            {"wait_ns": wait_ns, "wait_share": run.share(wait_ns), "calls": waits.height},
            {"names": ", ".join(names.value_counts(sort=True).head(2)["name"].to_list())},
            confidence="certain",
            **(place_of(waits, "wait_ns") | {"ranges": ranges_of(waits.drop_nulls("end_ns"))}),
        )

    return look


_FETCH = ("aten::item", "aten::_local_scalar_dense")
_SOONER = "at stake is how much sooner the run would have been done, had they not waited"
_SMALL = "a fiftieth: less is lost among the steps' own differences"
_MEMORY = "https://docs.pytorch.org/docs/stable/notes/cuda.html"
_READ = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"

RULES = (
    Rule(
        id="item",
        title="Values fetched inside a step",
        looks_at=f"calls that `.item()` waited in; {_SOONER}",
        threshold=0.02,
        because=_SMALL,
        sentence="the host waited {wait_ns} for {waits} values that it fetched, and devices were idle for {idle_ns} "
        "after that; without it the run would be up to {saved_ns} ({saved_share}) shorter",
        remedy="Keep losses and counts on the device and fetch them every so many steps; no `if tensor:`, "
        "float(tensor) or print(tensor) in the loop",
        command="opspan waits FILE --by op",
        read=_READ,
        look=_drained("item"),
    ),
    Rule(
        id="blocking-copies",
        title="Copies that the host waits for",
        looks_at=f"copies that the host waited for; {_SOONER}",
        threshold=0.02,
        because=_SMALL,
        sentence="the host waited {wait_ns} for {waits} copies, and devices were idle for {idle_ns} after "
        "that; without it the run would be up to {saved_ns} ({saved_share}) shorter",
        remedy="Copy from pinned memory and do not wait: DataLoader(pin_memory=True), tensor.to(device, "
        "non_blocking=True)",
        command="opspan waits FILE --by op",
        read="https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html",
        look=_drained("blocking copy"),
    ),
    Rule(
        id="synchronise",
        title="Synchronising inside a step",
        looks_at=f"calls that waited for a device to finish; {_SOONER}",
        threshold=0.02,
        because=_SMALL,
        sentence="the host waited {wait_ns} for devices, {waits} times, and these were idle for {idle_ns} after that; "
        "without it the run would be up to {saved_ns} ({saved_share}) shorter",
        remedy="Take torch.cuda.synchronize() out of the loop; time with events; look for ops whose result's size "
        "depends on values (nonzero, boolean masks), which wait as well",
        command="opspan waits FILE --by op",
        read=_READ,
        look=_drained("synchronise"),
    ),
    Rule(
        id="allocation",
        title="Memory taken from the driver in the loop",
        looks_at="calls that take memory from the driver or give it back, after the first step; at stake is how much "
        "sooner the run would have ended if they took no time",
        threshold=0.02,
        because=_SMALL,
        sentence="{calls} calls ({names}) held up the host for {wait_ns} ({wait_share}) after the first step",
        remedy="Keep sizes the same from step to step, do not call torch.cuda.empty_cache() in the loop, or set "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        command="opspan waits FILE --by why",
        read=_MEMORY,
        look=_held_up("allocation", "free"),
    ),
    Rule(
        id="module-loading",
        title="Kernels loaded in the loop",
        looks_at="calls that load or compile kernels, after the first step; at stake is how much sooner the run would "
        "have ended if they took no time",
        threshold=0.02,
        because=_SMALL,
        sentence="{calls} calls ({names}) loaded kernels for {wait_ns} ({wait_share}) after the first step",
        remedy="Warm up with every size that will come, or set CUDA_MODULE_LOADING=EAGER; record after the warm-up",
        command="opspan waits FILE --by why",
        read="https://docs.nvidia.com/cuda/cuda-c-programming-guide/#lazy-loading",
        look=_held_up("module loading"),
    ),
)
