"""A rule about the time before the first op of a process whose ops were recorded from the begin on."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from opspan.analysis.samples import of_time
from opspan.analysis.spans import PROCESS, sum_by
from opspan.findings.process_facts import ProcessFacts, facts_of
from opspan.findings.rule import Evidence, Rule, ranges_of
from opspan.findings.run import Run
from opspan.findings.sampled import most_executed

_col = pl.col
_LEAST_NS = 5 * 10**9  # a bare `import torch` takes a few seconds, which no program can avoid


def _look(run: Run, threshold: float) -> Iterator[Evidence]:
    ops = run.ranges.filter(_col("kind") == "op")
    spans = sum_by(ops, PROCESS, first_ns=_col("start_ns").min(), last_ns=_col("end_ns").max())
    times = {(rank, pid): (first, last) for rank, pid, first, last in spans.iter_rows()}
    late = []
    for facts in facts_of(run):
        first, last = times.get((facts.rank, facts.pid), (None, None))
        if facts.began_ns is None or first is None or last is None:
            continue
        before_ns, all_ns = first - facts.began_ns, last - facts.began_ns
        if before_ns >= _LEAST_NS and before_ns >= threshold * all_ns:
            late.append((before_ns, before_ns / all_ns, facts))
    if not late:
        return
    before_ns, share, facts = max(late, key=lambda case: case[0])
    figures = {"before_ns": before_ns, "before_share": share}
    if facts.import_ns is not None:
        figures["import_ns"] = facts.import_ns
    function = _function(run, facts, before_ns)
    began_ns = facts.began_ns or 0
    row = {"rank": [facts.rank], "pid": [facts.pid], "start_ns": [began_ns], "end_ns": [began_ns + before_ns]}
    yield Evidence(
        None,  # how fast the program could begin is unknown
        figures,
        {"process": str(facts.pid)} | ({"function": function} if function else {}),
        confidence="certain",
        sentence=_BEFORE + _IMPORT * (facts.import_ns is not None) + _EXECUTED * bool(function),
        ranks=(facts.rank,),
        ranges=ranges_of(pl.DataFrame(row)),
    )


def _function(run: Run, facts: ProcessFacts, before_ns: int) -> str:
    """Returns the function that the process executed most before its first op; an empty text without samples."""
    began_ns = facts.began_ns or 0
    samples = of_time(run.analysis.tables.samples)
    is_own = (_col("rank") == facts.rank) & (_col("pid") == facts.pid)
    samples = samples.filter(is_own, _col("time_ns").is_between(began_ns, began_ns + before_ns))
    return next(iter(most_executed(samples)), "") if samples.height else ""


_BEFORE = (
    "process {process} had lived for {before_ns} when its first op began, which is {before_share} of its time up to "
    "the end of its last op"
)
_IMPORT = "; for {import_ns} of it, torch was imported, with all that this import waited for"
_EXECUTED = "; the function with most samples of processors before the first op: {function}"

RULES = (
    Rule(
        id="start-up",
        title="A long time before the first op",
        looks_at="captures of `opspan run --emit`, which label ops from the import of torch on and state when the "
        "process began: the time from there to the first op, of at least 5 s",
        threshold=0.2,
        because="a fifth of the process's time up to its last op: of a program that runs for long, less is start-up",
        sentence=_BEFORE,
        remedy="python -X importtime says which imports take long; import later what only some runs need, keep data "
        "and compiled code in caches, and let one process do the work of several short ones",
        command="opspan functions FILE --by library",
        read="https://docs.python.org/3/using/cmdline.html#cmdoption-X",
        look=_look,
        needs_time=False,
    ),
)
