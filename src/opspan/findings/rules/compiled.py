"""Rules about programs under torch.compile: repeated compiling, graph breaks, and the time of compiling.

The trace says when torch compiled. A log of the compiler says what was compiled and why. The times of a log are known
if it comes from a recording with compiled=True. A log that `--compiled` names may even be of another run of the
program. So a finding that only a log shows has no time at stake.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import polars as pl

from opspan.analysis.busy import whole_times, within_whole
from opspan.analysis.compilations import break_lines, compilations_of, compiled_again, phases
from opspan.analysis.spans import PROCESS, length, union
from opspan.findings.marks import after_first_step
from opspan.findings.odd_steps import rows_in_steps
from opspan.findings.rule import Evidence, Rule, place_of, ranges_of
from opspan.findings.run import Run, ranks_of
from opspan.findings.saved import leave_out, saved_ns, work_launched_in

_col = pl.col
_REGION = r"^Torch-Compiled Region: ([0-9]+)/([0-9]+)"
_MUCH = 0.1  # the least share of the recorded time at which compiling is reported
_UNKNOWN = "for an unknown reason"


def _again(run: Run, threshold: float) -> Iterator[Evidence]:
    logged = _logged_again(run)
    yield from list(_again_in_trace(run, threshold, logged)) or ([] if logged is None else [logged])


def _again_in_trace(run: Run, threshold: float, logged: Evidence | None) -> Iterator[Evidence]:
    if not run.compilations.height:
        return
    rows = after_first_step(run.compilations, run.steps).with_columns(ns=length())
    change = leave_out(run, stretches=rows, work=work_launched_in(run, rows))
    at_stake = saved_ns(run, change, threshold)
    if not run.matters(at_stake, threshold):
        return
    ns = run.longest(rows, "ns")
    evidence = Evidence(
        at_stake,
        {"ns": ns, "ns_share": run.share(ns), "times": rows.height},
        confidence="certain",
        **place_of(rows.rename({"name": "op"}), "ns"),
    )
    if logged is not None:
        sentence = (
            "torch compiled {times} times after the first step, for {ns} ({ns_share}). A log of the compiler names "
        )
        sentence += "{place}, compiled {place_times} times: {reason}"
        figures = {**evidence.figures, "place_times": logged.figures["place_times"]}
        evidence = replace(evidence, figures=figures, words=logged.words, sentence=sentence)
    yield evidence


def _logged_again(run: Run) -> Evidence | None:
    """Finds the function whose repeated compilations took longest, and returns what logs say about the function's
    process."""
    rows = compiled_again(run.trace)
    if not rows.height:
        return None
    rows = rows.filter(_col("pid").eq_missing(rows["pid"][0]))
    first = rows.row(0, named=True)
    reasons = first["reasons"]
    again = compilations_of(run.trace).filter("is_again")
    is_timed = again["end_ns"].null_count() == 0
    words = {
        "place": first["place"],
        "reason": reasons[0] if reasons else _UNKNOWN,
        "when": "in this recording" if is_timed else "perhaps not in this recording",
    }
    figures = {
        "functions": rows.height,
        "again": int(rows["again"].sum()),
        "again_ns": int(rows["ns"].sum()),
        "place_times": first["times"],
        "reasons": len(reasons),
    }
    sentence = "{place} was compiled {place_times} times; all but the first took {again_ns}, {when}: {reason}"
    if rows.height > 1:
        sentence = (
            "{functions} functions were compiled more than once, {again} times more in all, for {again_ns}, {when}; "
            "{place} was compiled {place_times} times: {reason}"
        )
    return Evidence(None, figures, words, "certain", ranks=ranks_of(again), sentence=sentence)


def _breaks(run: Run, threshold: float) -> Iterator[Evidence]:
    evidences = list(_breaks_in_trace(run, threshold))
    broken = break_lines(run.trace)
    if not broken.height:
        yield from evidences
        return
    broken = broken.filter(_col("pid").eq_missing(broken["pid"][0]))
    first = broken.row(0, named=True)
    times, lines = int(broken["times"].sum()), broken["place"].n_unique()
    words = {"place": first["place"], "reason": first["reason"] or _UNKNOWN}
    sentence = (
        "a graph broke at {place}: {reason}" if times == 1 else "graphs broke {breaks} times at {place}: {reason}"
    )
    if lines > 1:
        sentence = "graphs broke {breaks} times at {lines} lines, most often at {place}: {reason}"
    figures: dict[str, int | float] = {"breaks": times, "lines": lines}
    if evidences:
        (evidence,) = evidences
        sentence += ". {frames} frames are compiled each for itself, and were looked up for {ns} ({ns_share})"
        figures = {**figures, **evidence.figures}
    else:
        evidence = Evidence(None, ranks=ranks_of(run.trace.graph_breaks))
    yield replace(evidence, figures=figures, words=words, sentence=sentence, confidence="certain")


def _time(run: Run, threshold: float) -> Iterator[Evidence]:
    rows = compilations_of(run.trace)
    timed = rows.drop_nulls(("end_ns", "duration_ns"))
    timed = timed.select(*PROCESS, "end_ns", start_ns=_col("end_ns") - _col("duration_ns"))
    inside = union(within_whole(timed, run.trace), PROCESS).with_columns(ns=length())
    recorded = whole_times(run.trace).with_columns(ns=length())
    ns, recorded_ns = run.longest(inside, "ns"), run.longest(recorded, "ns")
    is_inside = timed.height > 0
    if not is_inside:
        sums = rows.group_by("pid").agg(_col("duration_ns").sum()).sort("duration_ns", "pid", descending=True)
        rows = rows.filter(_col("pid").eq_missing(sums["pid"][0])) if sums.height else rows
        ns = int(rows["duration_ns"].sum())
    if ns <= 0 or ns < (_MUCH * recorded_ns if is_inside else threshold * 1_000_000_000):
        return
    (phase, phase_ns), *_ = [*phases(rows), ("unknown", 0)]
    misses = rows.filter(_col("cache") == "miss").height
    figures: dict[str, int | float] = {"ns": ns, "compilations": rows.height, "misses": misses, "phase_ns": phase_ns}
    sentence = ""
    if is_inside:
        figures["recorded_share"] = ns / recorded_ns
        sentence = "torch compiled for {ns}, {recorded_share} of the recorded time; most was {phase} ({phase_ns})"
    yield Evidence(None, figures, {"phase": phase}, "certain", ranks=ranks_of(rows), sentence=sentence)


def _breaks_in_trace(run: Run, threshold: float) -> Iterator[Evidence]:
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
        title="Compiling after the first step, or again",
        looks_at="ranges in which torch compiles, after the first step of their process; at stake is how much sooner "
        "the run would have ended without them. With a log of the compiler also functions that were compiled more than "
        "once, and the guards that failed, without time at stake: the log may be of other steps",
        threshold=0.01,
        because="a hundredth of the time: programs whose sizes do not change compile in the first step; of what a log "
        "says, one function is enough",
        sentence="torch compiled {times} times after the first step, for {ns} ({ns_share})",
        remedy="TORCH_LOGS=recompiles, or TORCH_TRACE=FOLDER and --compiled, say which guard failed; mark changing "
        "sizes with torch._dynamo.mark_dynamic or compile with dynamic=True, pad inputs, do not pass changing Python "
        "numbers",
        command="opspan steps FILE",
        read=_READ,
        look=_again,
    ),
    Rule(
        id="graph-breaks",
        title="A program that is compiled in many pieces",
        looks_at="how many different frames have compiled regions; at stake is how much sooner the run would have "
        "ended if looking for their code took no time. With a log of the compiler also each break that it names",
        threshold=3,
        because="pieces, not a share: one or two are a forward and a loss; with more, something breaks graphs; of what "
        "a log says, one break is enough",
        sentence="{frames} frames are compiled each for itself, and were looked up for {ns} ({ns_share})",
        remedy="TORCH_LOGS=graph_breaks, or TORCH_TRACE=FOLDER and --compiled, say where and why; move what breaks out "
        "of the compiled function, or write it as torch can trace it; torch.compile(fullgraph=True) makes a break an "
        "error",
        command="opspan table FILE",
        read=_READ,
        look=_breaks,
    ),
    Rule(
        id="compile-time",
        title="Long compiling",
        looks_at="how long torch compiled, as its log says. If the trace says when, only what was recorded counts, as "
        "a share of the recorded time, from a tenth on",
        threshold=60,
        because="seconds in a process, not a share: with a minute for each start, keeping what was compiled is worth "
        "the trouble",
        sentence="torch compiled for {ns}, perhaps not in this recording; most was {phase} ({phase_ns}). Compilations: "
        "{compilations}, of which the cache of graphs had no code: {misses}",
        remedy="Keep torch's caches between runs (TORCHINDUCTOR_CACHE_DIR); compile blocks that repeat instead of the "
        "whole model; begin to record when compiling is done",
        command="opspan summary FILE",
        read=_READ,
        look=_time,
    ),
)
