"""Calls inside a step that let the device run dry, or hold up the host each time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import polars as pl

from opspan.findings.lost import lost_ns
from opspan.findings.rule import Evidence, Rule, ranges_of
from opspan.findings.run import Run, ranks_of, top

_col = pl.col


def _drained(*reasons: str) -> Callable[[Run, float], Iterator[Evidence]]:
    """What devices did not do because the host had waited for them, and had nothing launched after."""

    def look(run: Run, threshold: float) -> Iterator[Evidence]:
        idle = run.idle.filter(_col("cause") == "wait", _col("wait").is_in(reasons))
        at_stake = run.per_process(idle, "ns")
        if not run.matters(at_stake, threshold):
            return
        # Those of outliers too: a wait explains what is late after it, in the next step as well.
        waits = run.named(
            run.begun_in_usual(run.drains.filter(_col("wait").is_in(reasons), _col("wait_ns") > 0), odd=True)
        )
        figures = {"idle_ns": at_stake, "idle_share": run.share(at_stake), "waits": waits.height}
        figures["wait_ns"] = int(waits["wait_ns"].sum())
        yield Evidence(
            at_stake,
            figures,
            ops=top(waits, "wait_ns", "op"),
            modules=top(waits, "wait_ns", "module"),
            steps=top(idle, "ns", "step"),
            ranks=ranks_of(waits),
            ranges=ranges_of(waits.drop_nulls("end_ns")),
        )

    return look


def _held_up(*reasons: str) -> Callable[[Run, float], Iterator[Evidence]]:
    """The time of the calls themselves, after the first step: what is done once is not counted."""

    def look(run: Run, threshold: float) -> Iterator[Evidence]:
        if not run.steps.height:
            return  # a run without steps has its start in it, where all this belongs
        waits = run.found.waits.filter(_col("why").cast(pl.String).is_in(reasons))
        waits = run.named(run.begun_in_usual(waits, is_late=True, odd=True))
        at_stake = lost_ns(run, waits, threshold)
        if not run.matters(at_stake, threshold):
            return
        wait_ns = run.longest(waits, "wait_ns")
        names = run.trace.calls["name"].cast(pl.String).gather(waits["call"])
        yield Evidence(
            at_stake,
            {"wait_ns": wait_ns, "wait_share": run.share(wait_ns), "calls": waits.height},
            {"names": ", ".join(names.value_counts(sort=True).head(2)["name"].to_list())},
            confidence="certain",
            ops=top(waits, "wait_ns", "op"),
            modules=top(waits, "wait_ns", "module"),
            steps=top(waits, "wait_ns", "step"),
            ranks=ranks_of(waits),
            ranges=ranges_of(waits.drop_nulls("end_ns")),
        )

    return look


_SMALL = "a fiftieth: less is lost among the steps' own differences"
_MEMORY = "https://docs.pytorch.org/docs/stable/notes/cuda.html"
_READ = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"

RULES = (
    Rule(
        id="item",
        title="Values fetched inside a step",
        looks_at="idle time of devices after `.item()` had waited for one, no more of it than the wait took",
        threshold=0.02,
        because=_SMALL,
        sentence="devices were idle for {idle_ns} ({idle_share}) because the host fetched {waits} values and waited",
        remedy="Keep losses and counts on the device and fetch them every so many steps; no `if tensor:`, "
        "float(tensor) or print(tensor) in the loop",
        command="opspan waits FILE --by op",
        read=_READ,
        look=_drained("item"),
    ),
    Rule(
        id="blocking-copies",
        title="Copies that the host waits for",
        looks_at="idle time of devices after the host had waited for a copy, no more of it than the wait took",
        threshold=0.02,
        because=_SMALL,
        sentence="devices were idle for {idle_ns} ({idle_share}) after {waits} copies that the host had to wait for",
        remedy="Copy from pinned memory and do not wait: DataLoader(pin_memory=True), tensor.to(device, "
        "non_blocking=True)",
        command="opspan waits FILE --by op",
        read="https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html",
        look=_drained("blocking copy"),
    ),
    Rule(
        id="synchronise",
        title="Synchronising inside a step",
        looks_at="idle time of devices after a call had waited for one to finish, no more of it than the wait took",
        threshold=0.02,
        because=_SMALL,
        sentence="devices were idle for {idle_ns} ({idle_share}) because the host waited for them {waits} times",
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
