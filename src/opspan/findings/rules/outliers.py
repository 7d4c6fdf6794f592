"""A rule about steps that took longer than the others, grouped by the work that took longer."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from opspan.findings.odd_steps import THRESHOLD, outlier_kinds
from opspan.findings.rule import Evidence, Rule, ranges_of
from opspan.findings.run import Run, ranks_of
from opspan.findings.saved import rows_that_gain

_col = pl.col
_NAMES = 3
_SENTENCE = (
    "{steps} of {all_steps} steps took {more_ns} longer than usual ones ({usual_ns}): {which}; without that the run "
    "would be up to {saved_ns} ({saved_share}) shorter; most of it is {most}"
)
_SAYS = {
    "computing": "kernels",
    "copying": "copies",
    "filling": "fills",
    "calling": "calls of the driver",
    "loading": "loading of data",
    "ops": "ops on the host",
    "other": "time outside of ops",
}


def _look(run: Run, _threshold: float) -> Iterator[Evidence]:
    for kind in outlier_kinds(run):
        # Leave out processes that only waited for others.
        steps, excess = (
            rows_that_gain(run, rows, kind.change, kind.at_stake_ns / 2) for rows in (kind.steps, kind.excess)
        )
        yield _evidence(run, steps, excess, kind.at_stake_ns)


def _evidence(run: Run, odd: pl.DataFrame, excess: pl.DataFrame, at_stake: int) -> Evidence:
    odd = odd.sort("more_ns", descending=True, maintain_order=True)
    kinds = excess.group_by("what").agg(_col("more_ns").sum()).sort("more_ns", "what", descending=[True, False])
    names = excess.group_by("what", "name").agg(_col("ns", "usual_ns", "more_ns").sum())
    names = names.sort("more_ns", "what", "name", descending=[True, False, False])
    figures = {
        "more_ns": run.longest(odd, "more_ns"),
        "saved_ns": at_stake,
        "saved_share": run.share(at_stake),
        "steps": odd["step"].n_unique(),
        "all_steps": run.steps["step"].n_unique(),
        "usual_ns": int(odd["usual_ns"][0]),
    }
    words = {
        "which": ", ".join(map(str, odd["step"].unique(maintain_order=True).head(3))),
        "most": _SAYS[str(kinds["what"][0])],
    }
    first = names.row(0, named=True)
    is_named = first["name"] is not None and first["what"] == kinds["what"][0]
    if is_named:
        words["name"] = str(first["name"])
        figures |= {f"name_{column}": round(first[column] / odd.height) for column in ("ns", "usual_ns")}
    # Growth of less than a tenth of the largest growth is left out, because usual steps also differ by that much.
    named = names.filter(_col("more_ns") >= _col("more_ns").max() / 10).drop_nulls("name")
    named = named.unique("name", keep="first", maintain_order=True)
    return Evidence(
        at_stake,
        figures,
        words,
        confidence="certain",
        ops=tuple(named["name"].head(_NAMES)),
        steps=tuple(odd["step"].unique(maintain_order=True).head(10)),
        ranks=ranks_of(odd),
        ranges=ranges_of(odd),
        sentence=f"{_SENTENCE}: {{name}} took {{name_ns}} a step instead of {{name_usual_ns}}" if is_named else "",
    )


RULES = (
    Rule(
        id="step-outliers",
        title="Steps that took longer than the others",
        looks_at="steps that `opspan steps` marks, apart by what grew most in them; at stake is how much sooner the "
        "run would have been done, had all that took longer there taken as long as in a usual step",
        threshold=THRESHOLD,
        because="a hundredth of the run; which steps are outliers says docs/analysis.md",
        sentence=_SENTENCE,
        remedy="See what those steps do that others do not: checkpoints, logging, validation, new sizes that compile "
        "or allocate, pauses of the machine",
        command="opspan steps FILE",
        read="docs/analysis.md#iterations",
        look=_look,
        has_several=True,
    ),
)
