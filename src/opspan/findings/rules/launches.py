"""Rules about idle devices: slow or late launches, ops with many small kernels, and launched work that does not
begin."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from opspan.analysis.spans import DEVICE, PROCESS, look_up, number_groups
from opspan.findings.host_place import main_place
from opspan.findings.pauses import faster, without_pauses
from opspan.findings.rule import Evidence, Rule, median, place_of
from opspan.findings.run import Run, top
from opspan.findings.saved import merge, saved_ns

_col = pl.col
# The longest gap that slow launching explains, as a multiple of the usual time between launches. In a longer gap the
# host did something else.
_PACES = 10
_PART = 0.3  # share of the threshold: with less idle time the rule does not look for pauses
_SEVERAL = 3  # least number of kernels of an op; two are usual, because the second may sum up the first's products
# Matches names of library ops, such as aten::add. Ranges of compiled code are left out: they have many kernels only
# because they contain many ops.
_OF_LIBRARY = r"^[A-Za-z_]\w*::"


def _pieces(run: Run, is_bound: bool) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns the idle time before and during launches, and the paces (findings/paces.py) of the processes that have
    such time. With `is_bound`, returns only idle time in short gaps (at most _PACES times the usual time between
    launches) of processes that launch more slowly than their devices work. Without `is_bound`, returns the rest."""
    rows = run.idle.filter(_col("cause").is_in(["host", "launch"]))
    paces = run.paces.with_columns(is_bound=_col("apart_ns") > _col("work_ns"))
    rows = look_up(rows, paces.select(*PROCESS, "is_bound", "apart_ns"), PROCESS)
    is_pace = _col("end_ns") - _col("start_ns") <= _PACES * _col("apart_ns")
    chosen = (_col("is_bound") & is_pace).fill_null(value=False)
    rows = rows.filter(chosen if is_bound else ~chosen)
    return rows, paces.join(rows, on=PROCESS, how="semi", nulls_equal=True)


def _bound(run: Run, threshold: float) -> Iterator[Evidence]:
    rows, paces = _pieces(run, is_bound=True)
    ns = run.per_process(rows, "ns")
    if not run.matters(ns, threshold):
        return
    at_stake = saved_ns(run, faster(run, paces.with_columns(most_ns=_PACES * _col("apart_ns"))))
    if not run.matters(at_stake, threshold):
        return
    figures = {
        "idle_ns": ns,
        "idle_share": run.share(ns),
        "apart_ns": median(paces, "apart_ns"),
        "work_ns": median(paces, "work_ns"),
        "short_share": int(paces["short"].sum()) / int(paces["launches"].sum()),
    }
    yield Evidence(at_stake, figures, **place_of(rows, "ns", once="gap"))


def _late(run: Run, threshold: float) -> Iterator[Evidence]:
    rows, _ = _pieces(run, is_bound=False)
    ns = run.per_process(rows, "ns")
    # A pause may cost more than the idle time right after it, because it also uses up the host's lead over the device.
    if not run.matters(ns, _PART * threshold):
        return
    at_stake = saved_ns(run, without_pauses(run, rows), threshold)
    if run.matters(at_stake, threshold):
        figures = {"idle_ns": ns, "idle_share": run.share(ns)}
        yield Evidence(at_stake, figures, {"where": main_place(run, rows)}, **place_of(rows, "ns", once="gap"))


def _queued(run: Run, threshold: float) -> Iterator[Evidence]:
    rows = run.idle.filter(_col("cause") == "queued")
    at_stake = run.per_process(rows, "ns")
    if run.matters(at_stake, threshold):
        figures = {"idle_ns": at_stake, "idle_share": run.share(at_stake)}
        yield Evidence(at_stake, figures, **place_of(rows, "ns", once="gap"))


def _small(run: Run, threshold: float) -> Iterator[Evidence]:
    rows = run.computing.filter(_col("kind") == "kernel", _col("call").is_not_null(), _col("op").is_not_null())
    is_op = (run.trace.ranges["kind"] == "op").gather(rows["range"])
    rows = rows.filter(is_op & _many_in_range(rows["range"]))
    rows = rows.filter(_col("op").cast(pl.String).str.contains(_OF_LIBRARY))
    (rows,) = number_groups((*DEVICE, "range"), rows)
    rows = rows.filter((pl.len() >= _SEVERAL).over("of"))
    # Merging the kernels of an op saves at most the time from the op's first launch to the end of its last kernel,
    # minus the time that the kernels take.
    spans = rows.group_by(*DEVICE, "of").agg(ns=_col("end_ns").max() - _col("launched_ns").min() - _col("ns").sum())
    if not run.matters(run.per_process(spans, "ns"), threshold):
        return
    at_stake = saved_ns(run, merge(run, rows))
    if not run.matters(at_stake, threshold):
        return
    ops = rows["of"].n_unique()
    yield Evidence(
        at_stake,
        {"kernels": rows.height, "ops": ops, "each": round(rows.height / ops), "work_ns": median(rows, "ns")},
        {"op": next(iter(top(rows, "ns", "op")))},
        **place_of(rows, "ns"),
    )


def _many_in_range(range_: pl.Series) -> pl.Series:
    """Returns for each row whether its range has at least _SEVERAL rows, on any devices. This quick check leaves only a
    few rows to group."""
    numbers = range_.to_numpy()
    return pl.Series(np.bincount(numbers)[numbers] >= _SEVERAL) if numbers.size else pl.Series(dtype=pl.Boolean)


_IDLE = "a tenth of the time: what is idle below that is what every eager program has between its steps"
_READ = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"

RULES = (
    Rule(
        id="launch-bound",
        title="The host launches more slowly than the device works",
        looks_at="idle time of devices until and in launches, in gaps of up to ten times the median time between two "
        "launches, of processes of which that is longer than the median work; at stake is how much sooner the run "
        "would have ended if such launching took no time",
        threshold=0.1,
        because=_IDLE,
        sentence="devices were idle for {idle_ns} ({idle_share}): a launch came every {apart_ns}, and what it launched "
        "took {work_ns}",
        remedy='Launch less: torch.compile(mode="reduce-overhead"), CUDA graphs, larger batches, fused ops and '
        "optimizers",
        command="opspan idle FILE --by op",
        read="https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs",
        look=_bound,
    ),
    Rule(
        id="late-host",
        title="The host launches late",
        looks_at="idle time of devices until and in launches that is not of the rule launch-bound: gaps that are "
        "longer, or of processes that launch quickly enough; at stake is how much sooner the run would have ended if "
        "these pauses, and others in the same op, were as long as is usual between two launches. Idle time of less "
        f"than {_PART:.0%} of the threshold says nothing of pauses",
        threshold=0.1,
        because="a tenth of the time: every eager program loses some of it between its steps",
        sentence="devices were idle for {idle_ns} ({idle_share}) until the host launched what came next; it was mostly "
        "in {where}",
        remedy="See what the host does there: Python between ops, logging, checkpoints, work of other threads that "
        "hold the interpreter",
        command="opspan idle FILE --by op",
        read=_READ,
        look=_late,
    ),
    Rule(
        id="small-kernels",
        title="Ops that launch many small kernels",
        looks_at="how much sooner the run would have ended if each op that launched three kernels or more itself had "
        "launched one that took as long as they did together: time between launches and between kernels",
        threshold=0.03,
        because="three hundredths of the time: few ops can be had as one kernel",
        sentence="{ops} ops launched {kernels} kernels, about {each} each, of {work_ns} (median), most in {op}; "
        "one for each op would let the run end sooner",
        remedy="A fused op (torch.nn.functional.scaled_dot_product_attention, fused optimizers), torch.compile, or a "
        "CUDA graph around them",
        command="opspan table FILE --by kernel",
        read="https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs",
        look=_small,
    ),
    Rule(
        id="queued",
        title="Launched, but not begun",
        looks_at="idle time of devices before work that had been launched already",
        threshold=0.1,
        because=_IDLE,
        sentence="devices were idle for {idle_ns} ({idle_share}) though work had been launched: it waited for another "
        "stream, another rank, or the device itself",
        remedy="Look for events and waits between streams, for ranks that arrive late, and for copies that are in the "
        "way",
        command="opspan idle FILE --by gap",
        read=_READ,
        look=_queued,
    ),
)
