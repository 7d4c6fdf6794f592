"""The steps of each process, with the kinds of time that a step consists of, and the average step."""

from __future__ import annotations

from typing import Any

import polars as pl

from opspan.analysis import Analysis
from opspan.analysis.busy import KINDS
from opspan.analysis.spans import PROCESS
from opspan.analysis.step_lengths import median_and_mean
from opspan.questions import Options
from opspan.views import step_phases
from opspan.views.page.columns import table, text, values
from opspan.views.steps import QUESTION

MOST_BARS = 200  # maximum number of bars for each process: on a small screen, more bars would be thinner than a pixel
MOST_OF_ALL = 4_000
MOST_PROCESSES = 64
_col = pl.col
TITLES = {
    "computing": "Computing",
    "copying": "Copies",
    "filling": "Fills",
    "communicating": "Collectives",
    "calling": "API calls",
    "loading": "Data loading",
    "ops": "Ops on the host",
    "other": "Other",
}


def steps(analysis: Analysis) -> dict[str, Any]:
    steps_answer = QUESTION.answer_of(analysis, Options())
    rows = steps_answer.rows
    kinds = [kind for kind in KINDS if rows[f"{kind}_ns"].sum()]
    processes = rows.partition_by(PROCESS, as_dict=True, maintain_order=True)
    shown = list(processes.items())[:MOST_PROCESSES]
    most = max(min(MOST_BARS, MOST_OF_ALL // max(len(shown), 1)), 1)
    several = [name for name in PROCESS if rows[name].n_unique() > 1]
    if rows["rank"].n_unique() == len(processes):  # each process has a rank of its own, so its pid is not shown
        several = several[:1]
    notes = [text(note) for note in steps_answer.notes]
    if len(processes) > len(shown):
        notes.append(f"{len(processes) - len(shown):,} more processes are not in this page: `opspan steps` has all")
    return {
        "kinds": [{"name": kind, "title": TITLES[kind]} for kind in kinds],
        "processes": [_process(of_process, kinds, most, several) for _, of_process in shown],
        "notes": notes,
    }


def _process(rows: pl.DataFrame, kinds: list[str], most: int, several: list[str]) -> dict[str, Any]:
    of_bar = -(-rows.height // most)
    names = [f"{kind}_ns" for kind in kinds]
    median_ns, mean_ns = median_and_mean(rows["time_ns"])
    bars = rows.group_by(number=pl.int_range(pl.len()) // of_bar, maintain_order=True).agg(
        _col("step").first(),
        _col(names).mean(),
        last=_col("step").last(),
        is_outlier=_col("is_outlier").any(),
        phase=pl.when(_col("phase").n_unique() == 1).then(_col("phase").first()),
    )
    phases = step_phases.phases(step_phases.parts(rows))
    whose = {"rank": "rank", "pid": "process"}
    return {
        "title": ", ".join(f"{whose[name]} {rows[name][0]}" for name in several) or "the process",
        "steps": rows["step"].count(),
        "of_bar": of_bar,
        "time_ns": mean_ns,
        "median_ns": median_ns,
        "mean_ns": [rows[name].mean() for name in names],
        "step": values(bars["step"]),
        "last": values(bars["last"]),
        "is_outlier": values(bars["is_outlier"].fill_null(value=False)),
        "phase": values(bars["phase"]),
        "phases": table(phases, step_phases.OF_PHASE) if phases.height else None,
        "ns": [values(bars[name]) for name in names],
    }
