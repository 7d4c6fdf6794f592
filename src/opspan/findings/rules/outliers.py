"""Steps that took longer than the others."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from opspan.analysis.busy import KINDS
from opspan.analysis.spans import PROCESS, time_in, within
from opspan.findings.late import unusual
from opspan.findings.rule import Evidence, Rule, ranges_of
from opspan.findings.run import Run, ranks_of, top

_col = pl.col
_MOST = 0.25  # of the steps: if more are outliers, the steps are of several kinds
_SAYS = {
    "computing": "kernels",
    "copying": "copies",
    "filling": "fills",
    "communicating": "collectives",
    "calling": "calls of the driver",
    "loading": "loading of data",
    "ops": "ops on the host",
    "other": "nothing that is labelled",
}


def _look(run: Run, threshold: float) -> Iterator[Evidence]:
    columns = [f"{kind}_ns" for kind in KINDS]
    is_outlier = run.steps.select(*PROCESS, "step", "is_outlier", "start_ns", "end_ns")
    rows = run.breakdown.join(is_outlier, on=[*PROCESS, "step"], nulls_equal=True, maintain_order="left")
    usual = rows.group_by(PROCESS).agg(_col("time_ns", *columns).median())
    odd = rows.filter(_col("is_outlier")).join(usual, on=PROCESS, suffix="_usual", nulls_equal=True)
    odd = odd.with_columns(
        *[_col(name) - _col(f"{name}_usual").cast(pl.Int64) for name in columns],
        more_ns=_col("time_ns") - _col("time_ns_usual").cast(pl.Int64),
    )
    # That a step compiled is another rule's finding.
    known = time_in(run.compiling, odd.select(*PROCESS, "start_ns", "end_ns"), PROCESS)
    odd = odd.with_columns(more_ns=(_col("more_ns") - known).clip(0)).filter(_col("more_ns") > 0)
    if odd.height > _MOST * rows.height:
        return
    # What a step waited longer for another rank than usual is that rank's.
    sums = odd.group_by(PROCESS).agg(_col("more_ns").sum())
    sums = sums.join(unusual(run.late), on=PROCESS, how="left", nulls_equal=True)
    sums = sums.with_columns(ns=_col("more_ns") - _col("waited_ns").fill_null(0))
    sums = sums.filter(_col("ns") > 0, _col("ns") >= threshold * run.total_ns)
    if not sums.height:
        return
    more_ns = run.longest(sums, "ns")
    odd = odd.join(sums.select(PROCESS), on=PROCESS, how="semi", nulls_equal=True, maintain_order="left")
    odd = odd.sort("more_ns", descending=True)
    grown = {kind: int(odd[f"{kind}_ns"].sum()) for kind in KINDS}
    most = max(grown, key=lambda kind: grown[kind])
    figures = {"more_ns": more_ns, "steps": odd.height, "usual_ns": int(odd["time_ns_usual"].cast(pl.Int64)[0])}
    yield Evidence(
        more_ns,
        figures | {f"{kind}_ns": ns for kind, ns in grown.items() if ns},
        {"which": ", ".join(map(str, odd["step"].unique(maintain_order=True).head(3))), "most": _SAYS[most]},
        confidence="certain",
        ops=_longest(run, odd),
        steps=tuple(odd["step"].unique(maintain_order=True).head(10)),
        ranks=ranks_of(odd),
        ranges=ranges_of(odd),
    )


def _longest(run: Run, odd: pl.DataFrame) -> tuple[str, ...]:
    """The ranges that took most more of their own time in these steps than in a usual one."""
    columns = ("name", "start_ns", "self_ns", "kind")
    ranges = run.ranges.filter(_col("kind") != "step").select(*PROCESS, *columns)
    in_odd = within(ranges, "start_ns", odd, PROCESS)
    in_usual = within(ranges, "start_ns", run.usual, PROCESS)
    sums = [
        ranges[pairs["row"]].group_by("name").agg((_col("self_ns").sum() / max(steps, 1)).alias("ns"))
        for pairs, steps in ((in_odd, odd.height), (in_usual, run.usual.height))
    ]
    both = sums[0].join(sums[1], on="name", how="left", suffix="_usual")
    return top(both.with_columns(ns=_col("ns") - _col("ns_usual").fill_null(0)), "ns", "name")


RULES = (
    Rule(
        id="step-outliers",
        title="Steps that took longer than the others",
        looks_at="how much longer steps took than the median step of their process, of those that `opspan steps` marks",
        threshold=0.01,
        because="a hundredth of the run; which steps are outliers says docs/analysis.md",
        sentence="{steps} took {more_ns} longer than usual steps ({usual_ns}): {which}; most of it is {most}",
        remedy="See what those steps do that others do not: checkpoints, logging, validation, new sizes that compile "
        "or allocate, pauses of the machine",
        command="opspan steps FILE",
        read="docs/analysis.md#iterations",
        look=_look,
        has_waiting=True,
    ),
)
