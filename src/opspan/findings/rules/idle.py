"""A rule that reports the main cause of idle devices if no other rule reports this cause."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from opspan.analysis.busy import whole_times, within_part
from opspan.analysis.spans import DEVICE, PROCESS
from opspan.findings.host_place import main_place
from opspan.findings.pauses import without_pauses
from opspan.findings.rule import Evidence, Rule, place_of
from opspan.findings.rules import compiled, copies, data_loading, launches, training, waits
from opspan.findings.run import Run
from opspan.findings.saved import saved_ns

_col = pl.col
_REPORTERS: dict[str, tuple[Rule, ...]] = {
    "compile": tuple(rule for rule in compiled.RULES if rule.id == "recompilation"),
    "fallback": tuple(rule for rule in copies.RULES if rule.id == "cpu-fallback"),
    "data": data_loading.RULES,
    "optimizer": tuple(rule for rule in training.RULES if rule.id == "optimizer-loop"),
    "held": tuple(rule for rule in waits.RULES if rule.id in ("allocation", "module-loading")),
    "wait": tuple(rule for rule in waits.RULES if rule.id in ("item", "blocking-copies", "synchronise")),
    "host": tuple(rule for rule in launches.RULES if rule.id in ("launch-bound", "late-host")),
    "queued": tuple(rule for rule in launches.RULES if rule.id == "queued"),
}
_CAUSES = {
    "start": "before the first work of a device",
    "end": "after the last work of a device",
    "compile": "while torch compiled",
    "fallback": "while the host ran ops that the device has no kernel for",
    "data": "while the host loaded data",
    "optimizer": "while the optimizer went through its parameters",
    "held": "while calls took memory from the driver or loaded kernels",
    "wait": "after the host had waited for it",
    "host": "until the host had launched what came next",
    "queued": "though work had been launched",
    "unknown": "before work whose launch the trace does not have",
}
# Causes that are outside of the loop or unknown. It is unknown what a change would save, so no time is at stake.
_OUTSIDE = ("start", "end", "unknown")


def _look(run: Run, threshold: float) -> Iterator[Evidence]:
    devices = run.analysis.whole_devices
    time_ns, idle_ns = (run.per_process(devices, name) for name in ("time_ns", "idle_ns"))
    if idle_ns <= 0 or time_ns <= 0:  # absurd times in a damaged file may overflow
        return
    outside = _outside(run)
    inside = run.idle.join(outside, on="gap", how="anti")
    # Idle time in outliers is left out, because the rule for outliers reports it.
    sums = pl.concat(
        rows.group_by(*PROCESS, "cause").agg(_col("ns").sum()).with_columns(_col("cause").cast(pl.String))
        for rows in (inside, outside)
    )
    if run.per_process(sums, "ns") < threshold * time_ns:
        return
    sums = sums.with_columns(_col("cause").replace("launch", "host"))
    sums = sums.group_by("cause").agg(_col("ns").sum()).sort("ns", "cause", descending=[True, False])
    cause = str(sums["cause"][0])
    # A finding that only a log of the compiler shows has no time, so it does not explain idle time.
    if any(one.at_stake_ns is not None for rule in _REPORTERS.get(cause, ()) for one in rule.evidence(run)):
        return
    causes = ["host", "launch"] if cause == "host" else [cause]
    rows = (outside if cause in ("start", "end") else inside).filter(_col("cause").is_in(causes))
    ns = run.per_process(rows, "ns")
    figures = {"idle_ns": idle_ns, "idle_share": idle_ns / time_ns, "cause_ns": ns, "cause_share": ns / idle_ns}
    words = {"cause": _CAUSES[cause], "where": main_place(run, rows)}
    yield Evidence(_at_stake(run, cause, rows, ns), figures, words, "possible", **place_of(rows, "ns", once="gap"))


def _at_stake(run: Run, cause: str, rows: pl.DataFrame, ns: int) -> int | None:
    if cause in _OUTSIDE:
        return None
    return (saved_ns(run, without_pauses(run, rows)) or None) if cause == "host" else ns


def _outside(run: Run) -> pl.DataFrame:
    """Returns the idle time before the first and after the last work of each device, in the form of Run.idle."""
    begins = within_part(whole_times(run.trace), run.trace).select(*PROCESS, "start_ns", is_first=pl.lit(value=True))
    gaps = run.analysis.gaps.with_row_index("gap").join(begins, on=[*PROCESS, "start_ns"], how="left", nulls_equal=True)
    cause = pl.when(_col("next").is_null()).then(pl.lit("end")).when("is_first").then(pl.lit("start"))
    gaps = gaps.with_columns(cause=cause).drop_nulls("cause").select("gap", *DEVICE, "start_ns", "end_ns", "cause")
    rows = run.analysis.idle.join(gaps, on="gap").with_columns(step=pl.lit(None, dtype=pl.Categorical))
    return run.add_names(rows)


RULES = (
    Rule(
        id="idle",
        title="Devices without work, for a cause that has no rule of its own",
        looks_at="idle time of devices, that of start and end of the program with it, but not of outliers: where no "
        "other rule speaks of what most of it is for",
        threshold=0.1,
        because="a tenth of the time: what is idle below that is what every eager program has between its steps",
        sentence="devices were idle for {idle_ns} ({idle_share} of the recording), and for {cause_share} of that "
        "{cause}; the host was mostly in {where}",
        remedy="Shorten what the host does there, or do it while devices work; where it is the start or the end of a "
        "program, record later, or for longer, and these figures say more of the loop",
        command="opspan idle FILE --by gap",
        read="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
        look=_look,
    ),
)
