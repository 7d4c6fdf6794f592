"""A rule about the time in which a program waits for its next batch."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from opspan.findings.odd_steps import rows_in_steps
from opspan.findings.rule import Evidence, Rule, ranges_of
from opspan.findings.run import Run, ranks_of, top
from opspan.findings.saved import leave_out, rows_that_gain, saved_ns

_col = pl.col


def _look(run: Run, threshold: float) -> Iterator[Evidence]:
    loads = run.ranges.filter(_col("phase") == "data").with_columns(ns=_col("end_ns") - _col("start_ns"))
    loads = rows_in_steps(run, loads.drop_nulls("ns"))
    usual = run.drop_outliers(loads)
    # In most runs loading takes so little time that no replay is needed.
    if not run.matters(run.longest(usual, "ns"), threshold):
        return
    change = leave_out(run, stretches=loads)
    at_stake = saved_ns(run, change)
    if not run.matters(at_stake, threshold):
        return
    loads = rows_that_gain(run, loads, change, threshold * run.total_ns)
    yield Evidence(
        at_stake,
        {"loading_ns": at_stake, "loading_share": run.share(at_stake), "loads": loads.height},
        confidence="certain",
        ops=top(loads, "self_ns", "name"),
        steps=top(loads, "self_ns", "step"),
        ranks=ranks_of(loads),
        ranges=ranges_of(loads),
    )


RULES = (
    Rule(
        id="data-loading",
        title="Waiting for data",
        looks_at="ranges that load data; at stake is how much sooner the run would have been done, had they taken no "
        "time: what devices had still to do meanwhile hides the rest",
        threshold=0.03,
        because="the share from which on a finding is of medium severity",
        sentence="data was loaded {loads} times; had it been there at once, the run would be up to {loading_ns} "
        "({loading_share}) shorter",
        remedy="Load in the background: DataLoader(num_workers=..., pin_memory=True, persistent_workers=True), a "
        "larger prefetch_factor, or less work per sample",
        command="opspan steps FILE",
        read="https://docs.pytorch.org/docs/stable/data.html",
        look=_look,
    ),
)
