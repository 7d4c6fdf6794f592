"""Waiting for the next batch."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from opspan.analysis.spans import PROCESS
from opspan.findings.rule import Evidence, Rule, ranges_of
from opspan.findings.run import Run, ranks_of, top

_col = pl.col


def _look(run: Run, threshold: float) -> Iterator[Evidence]:
    rows = run.in_usual(run.breakdown)
    # Loading that a wait for a device left bare is that wait's: without it the device would have been busy meanwhile.
    of_waits = run.idle.filter(_col("cause") == "wait", _col("phase") == "data")
    bare = run.of_processes(of_waits, "ns").select(*PROCESS, loading_ns=-_col("ns").cast(pl.Int64))
    loading_ns = run.longest(pl.concat([rows.select(*PROCESS, "loading_ns"), bare]), "loading_ns")
    if not run.matters(loading_ns, threshold):
        return
    loads = run.ranges.filter(_col("phase") == "data").with_columns(ns=_col("end_ns") - _col("start_ns"))
    loads = run.begun_in_usual(loads)
    yield Evidence(
        loading_ns,
        {"loading_ns": loading_ns, "loading_share": run.share(loading_ns), "steps": rows.height},
        confidence="certain",
        ops=top(loads, "self_ns", "name"),
        steps=tuple(rows.sort("loading_ns", descending=True)["step"].drop_nulls().head(3)),
        ranks=ranks_of(rows.filter(_col("loading_ns") > 0)),
        ranges=ranges_of(loads),
    )


RULES = (
    Rule(
        id="data-loading",
        title="Waiting for data",
        looks_at="time of steps in which data was loaded and neither a device nor the driver was at work, less what a "
        "wait for a device had left bare",
        threshold=0.05,
        because="the share at which the profiler's view in TensorBoard spoke of it",
        sentence="{loading_share} of the steps' time went into waiting for data, while nothing ran on a device",
        remedy="Load in the background: DataLoader(num_workers=..., pin_memory=True, persistent_workers=True), a "
        "larger prefetch_factor, or less work per sample",
        command="opspan steps FILE",
        read="https://docs.pytorch.org/docs/stable/data.html",
        look=_look,
    ),
)
