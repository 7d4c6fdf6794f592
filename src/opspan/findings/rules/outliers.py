"""Steps that took longer than the others."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from opspan.analysis.busy import KINDS, WHAT, breakdown, busy_with
from opspan.analysis.nest import nearest
from opspan.analysis.spans import PROCESS, length, time_in, within
from opspan.findings.late import unusual
from opspan.findings.marks import after_first_step
from opspan.findings.rule import Evidence, Rule, ranges_of
from opspan.findings.run import Run, ranks_of

_col = pl.col
_MOST = 0.25  # of the steps: if more are outliers, the steps are of several kinds
_MOSTLY = 0.5  # of what a step took longer: a name that grew by more is said
_NAMES = 3
_SENTENCE = (
    "{steps} of {all_steps} steps took {more_ns} longer than usual ones ({usual_ns}): {which}; most of it is {most}"
)
_SAYS = {
    "computing": "kernels",
    "copying": "copies",
    "filling": "fills",
    "communicating": "collectives",
    "calling": "calls of the driver",
    "loading": "loading of data",
    "ops": "ops on the host",
    "other": "time outside of ops",
}


def _look(run: Run, threshold: float) -> Iterator[Evidence]:
    steps = run.lasted
    if not steps["is_outlier"].any():
        return
    columns = [f"{kind}_ns" for kind in KINDS]
    rows = breakdown(run.trace, steps).join(
        steps.select(*PROCESS, "step", "is_outlier", "start_ns", "end_ns"), on=[*PROCESS, "step"], nulls_equal=True
    )
    usual = rows.group_by(PROCESS).agg(_col("time_ns", *columns).median())
    odd = rows.filter("is_outlier").join(usual, on=PROCESS, suffix="_usual", nulls_equal=True)
    odd = odd.with_columns(
        *[_col(name) - _col(f"{name}_usual").cast(pl.Int64) for name in columns],
        more_ns=_col("time_ns") - _col("time_ns_usual").cast(pl.Int64),
    )
    # That a step compiled is another rule's finding, but for the first one.
    known = time_in(after_first_step(run.compiling, run.steps), odd.select(*PROCESS, "start_ns", "end_ns"), PROCESS)
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
    figures = {
        "more_ns": more_ns,
        "steps": odd.height,
        "all_steps": rows.height,
        "usual_ns": int(odd["time_ns_usual"].cast(pl.Int64)[0]),
    }
    figures |= {f"{kind}_ns": ns for kind, ns in grown.items() if ns}
    words = {"which": ", ".join(map(str, odd["step"].unique(maintain_order=True).head(3))), "most": _SAYS[most]}
    # The host does its part of a step in the step's own time, which may be long before the device does it.
    lasted = steps if most in WHAT.categories else run.steps
    names = _grown(
        _done(run, most), lasted.join(odd, on=[*PROCESS, "step"], how="semi", nulls_equal=True), run.in_usual(lasted)
    )
    is_named = names.height > 0 and names["ns"][0] > _MOSTLY * more_ns / odd.height
    if is_named:
        words["name"] = str(names["name"][0])
        figures |= {"name_ns": int(names["odd_ns"][0]), "name_usual_ns": int(names["usual_ns"][0])}
    yield Evidence(
        more_ns,
        figures,
        words,
        confidence="certain",
        ops=tuple(map(str, names["name"].head(_NAMES))),
        steps=tuple(odd["step"].unique(maintain_order=True).head(10)),
        ranks=ranks_of(odd),
        ranges=ranges_of(odd),
        sentence=f"{_SENTENCE}: {{name}} took {{name_ns}} a step instead of {{name_usual_ns}}" if is_named else "",
    )


def _done(run: Run, kind: str) -> pl.DataFrame:
    """Returns who did what a step has of a kind of time: rank, pid, start_ns, name and ns. What devices did is of the
    ops that launched it, and so are calls; work and calls of none have a name of their own. What the host did is of the
    ranges that were innermost or, in an op, of the op that the program called. A host that waits for a full queue is
    not late, and its time is none of these kinds."""
    if kind in WHAT.categories:
        work = busy_with(run.trace.work, "range").filter(_col("what") == kind).with_columns(ns=length())
        return _named(run, work)
    if kind == "calling":
        return _named(run, run.trace.calls.select(*PROCESS, "start_ns", "name", "range", ns=length()))
    ranges = run.ranges.filter(_col("kind") != "step")
    rows = ranges.filter(_col("phase") == "data") if kind == "loading" else ranges
    called = _called(run).gather(rows["row"]).alias("name")
    return rows.select(*PROCESS, "start_ns", called, ns="self_ns")


def _called(run: Run) -> pl.Series:
    """For each range the name of the outermost op around it, or its own if it is in none."""
    ranges = run.trace.ranges
    is_op = (ranges["kind"] == "op").fill_null(value=False)
    is_inner = nearest(ranges, is_op).gather(ranges["parent"]).is_not_null()
    op = ranges["name"].gather(nearest(ranges, is_op & ~is_inner)).cast(pl.String)
    return op.zip_with(op.is_not_null(), ranges["name"].cast(pl.String))


def _named(run: Run, rows: pl.DataFrame) -> pl.DataFrame:
    op = run.trace.ranges["name"].gather(rows["range"]).cast(pl.String).alias("op")
    name = pl.coalesce(op, _col("name").cast(pl.String))
    return rows.select(*PROCESS, "start_ns", name.alias("name"), "ns")


def _grown(done: pl.DataFrame, odd: pl.DataFrame, usual: pl.DataFrame) -> pl.DataFrame:
    """name, odd_ns, usual_ns (of a step) and ns, how much more the first is: the largest first."""
    sums = []
    for steps, column in ((odd, "odd_ns"), (usual, "usual_ns")):
        pairs = within(done, "start_ns", steps, PROCESS)
        rows = done[pairs["row"]].group_by("name").agg((_col("ns").sum() / max(steps.height, 1)).alias(column))
        sums.append(rows)
    both = sums[0].drop_nulls("name").join(sums[1], on="name", how="left").with_columns(_col("usual_ns").fill_null(0))
    both = both.with_columns(ns=_col("odd_ns") - _col("usual_ns")).filter(_col("ns") > 0)
    return both.sort("ns", "name", descending=[True, False])


RULES = (
    Rule(
        id="step-outliers",
        title="Steps that took longer than the others",
        looks_at="how much longer steps took, until all that they launched was done, than the median step of their "
        "process, of those that `opspan steps` marks",
        threshold=0.01,
        because="a hundredth of the run; which steps are outliers says docs/analysis.md",
        sentence=_SENTENCE,
        remedy="See what those steps do that others do not: checkpoints, logging, validation, new sizes that compile "
        "or allocate, pauses of the machine",
        command="opspan steps FILE",
        read="docs/analysis.md#iterations",
        look=_look,
        has_waiting=True,
    ),
)
