"""Rules about kernels that are too small for the device, and about a kernel that takes most of the time."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from opspan.analysis.busy import busy_with
from opspan.analysis.spans import length
from opspan.findings.rule import Evidence, Rule, median, place_of
from opspan.findings.run import Run, top
from opspan.findings.saved import reduce, saved_ns

_col = pl.col


def _few_blocks(run: Run, threshold: float) -> Iterator[Evidence]:
    rows = run.computing.filter(_col("blocks") > 0, _col("blocks") < _col("multiprocessors"))
    rows = rows.with_columns(lost_ns=_col("ns") * (1 - _col("blocks") / _col("multiprocessors")))
    at_stake = saved_ns(run, reduce(run, rows, "lost_ns"), threshold)
    if not run.matters(at_stake, threshold):
        return
    yield Evidence(
        at_stake,
        {
            "lost_ns": run.per_process(rows, "lost_ns"),
            "kernels": rows.height,
            "ns": int(rows["ns"].sum()),
            **{name: median(rows, name) for name in ("blocks", "multiprocessors")},
        },
        {"kernel": next(iter(top(rows, "lost_ns", "name")), "one without a name")},
        confidence="possible",  # other kernels may use the rest of the device at the same time
        **place_of(rows, "lost_ns"),
    )


def _dominates(run: Run, threshold: float) -> Iterator[Evidence]:
    # Work outside of steps counts, too: the main kernel of a few steps may be a small part of the run.
    rows = run.add_names(busy_with(run.trace.work, "range").filter(_col("what") == "computing"))
    # Template arguments are part of the name. Without them, all elementwise kernels would have one name.
    rows = rows.with_columns(kernel=pl.coalesce("full_name", "name"), ns=length())
    names = rows.group_by("kernel").agg(_col("ns").sum(), count=pl.len()).sort("ns", "kernel", descending=[True, False])
    total = int(names["ns"].sum())
    if names.height < 2 or not total or names["kernel"][0] is None or int(names["ns"][0]) < threshold * total:
        return
    chosen = rows.filter(_col("kernel") == names["kernel"][0])
    yield Evidence(
        None,  # the kernel's work may be the purpose of the program
        {"ns": int(names["ns"][0]), "kernel_share": int(names["ns"][0]) / total, "count": int(names["count"][0])},
        {"kernel": str(names["kernel"][0])},
        confidence="certain",
        **place_of(chosen, "ns"),
    )


RULES = (
    Rule(
        id="few-blocks",
        title="Kernels with fewer blocks than the device has multiprocessors",
        looks_at="time of kernels, by the share of the device's multiprocessors that they have no block for; "
        "at stake is how much sooner the run would have ended",
        threshold=0.03,
        because="three hundredths of the time: fewer kernels of that kind are in every program",
        sentence="{kernels} kernels leave part of the device empty: {lost_ns} of the whole device's time, most in "
        "{kernel}; they have {blocks} blocks for {multiprocessors} multiprocessors",
        remedy="Larger batches, fewer and larger ops (torch.compile, grouped GEMMs), or streams that run them at once",
        command="opspan table FILE --by kernel",
        read="https://docs.nvidia.com/deeplearning/performance/dl-performance-gpu-background/",
        look=_few_blocks,
        condition="if the whole device did their work",
    ),
    Rule(
        id="dominating-kernel",
        title="One kernel takes most of the time",
        looks_at="the share that the kernel with the most time has of the time of all kernels that are no collectives, "
        "in steps or not",
        threshold=0.5,
        because="half of the time of kernels: nothing else is worth looking at before it",
        sentence="{kernel} takes {kernel_share} of the time of all computing kernels ({ns}, {count} times)",
        remedy="Look at its ops and sizes first: another algorithm, type or layout for them counts for more than "
        "anything else",
        command="opspan table FILE --by shape",
        read="docs/analysis.md#sums",
        look=_dominates,
    ),
)
