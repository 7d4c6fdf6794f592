"""Rules about programs under torch.compile: repeated compiling, and graph breaks."""

from __future__ import annotations

import re
from collections.abc import Iterator

import polars as pl

from opspan.analysis.spans import length
from opspan.findings.marks import after_first_step
from opspan.findings.odd_steps import rows_in_steps
from opspan.findings.rule import Evidence, Rule, place_of, ranges_of
from opspan.findings.run import Run, ranks_of
from opspan.findings.saved import leave_out, saved_ns, work_launched_in

_col = pl.col
_REGION = r"^Torch-Compiled Region: ([0-9]+)/([0-9]+)"


def _again(run: Run, threshold: float) -> Iterator[Evidence]:
    if not run.compilations.height:
        return
    rows = after_first_step(run.compilations, run.steps).with_columns(ns=length())
    change = leave_out(run, stretches=rows, work=work_launched_in(run, rows))
    at_stake = saved_ns(run, change, threshold)
    if not run.matters(at_stake, threshold):
        return
    ns = run.longest(rows, "ns")
    yield Evidence(
        at_stake,
        {"ns": ns, "ns_share": run.share(ns), "times": rows.height},
        confidence="certain",
        **place_of(rows.rename({"name": "op"}), "ns"),
    )


def _breaks(run: Run, threshold: float) -> Iterator[Evidence]:
    rows = rows_in_steps(run, run.ranges_named(_REGION))
    if not rows.height:
        return
    lookups = rows_in_steps(run, run.ranges_named("^TorchDynamo Cache Lookup$")).with_columns(ns=length())
    frames = {match[1] for name in rows["name"].unique() if (match := re.match(_REGION, str(name)))}
    if len(frames) < threshold:
        return
    at_stake = saved_ns(run, leave_out(run, stretches=lookups))
    if not at_stake:
        return
    ns = run.longest(lookups, "ns")
    yield Evidence(
        at_stake,
        {"frames": len(frames), "ns": ns, "ns_share": run.share(ns), "calls": rows.height},
        confidence="possible",  # parts that are compiled separately on purpose look the same
        ops=tuple(rows["name"].cast(pl.String).unique().sort().head(3)),
        ranks=ranks_of(rows),
        ranges=ranges_of(lookups),
    )


_READ = "https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html"

RULES = (
    Rule(
        id="recompilation",
        title="Compiling after the first step",
        looks_at="ranges in which torch compiles, after the first step of their process; at stake is how much sooner "
        "the run would have ended without them",
        threshold=0.01,
        because="a hundredth of the time: programs whose sizes do not change compile in the first step",
        sentence="torch compiled {times} times after the first step, for {ns} ({ns_share})",
        remedy="TORCH_LOGS=recompiles says which guard failed; mark changing sizes with torch._dynamo.mark_dynamic, "
        "pad inputs, do not pass changing Python numbers",
        command="opspan steps FILE",
        read=_READ,
        look=_again,
    ),
    Rule(
        id="graph-breaks",
        title="A program that is compiled in many pieces",
        looks_at="how many different frames have compiled regions; at stake is how much sooner the run would have "
        "ended if looking for their code took no time",
        threshold=3,
        because="pieces, not a share: one or two are a forward and a loss; with more, something breaks graphs",
        sentence="{frames} frames are compiled each for itself, and were looked up for {ns} ({ns_share})",
        remedy="TORCH_LOGS=graph_breaks says where and why; torch.compile(fullgraph=True) makes a break an error",
        command="opspan table FILE",
        read=_READ,
        look=_breaks,
    ),
)
