"""The steps of a run, and the kinds of time that each step consists of: `opspan steps`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import polars as pl

from opspan.analysis import Analysis
from opspan.analysis.busy import KINDS, breakdown, devices, use
from opspan.analysis.iterations import iterations
from opspan.analysis.lanes import in_lanes
from opspan.analysis.parts import Part, Parts
from opspan.analysis.step_lengths import lengths_of
from opspan.analysis.until_done import until_done, with_outliers
from opspan.questions import Options, Question
from opspan.tables.window import Steps, numbers_of
from opspan.views import step_phases, step_words
from opspan.views.answer import Answer
from opspan.views.fields import PLACES, STEP, TIME, Field, shares_of_kinds, varying_fields, with_values

_TITLES = {
    "computing": "Computing",
    "copying": "Copies",
    "filling": "Fills",
    "communicating": "Comm",
    "calling": "API calls",
    "loading": "Data",
    "ops": "Ops",
    "other": "Other",
}
_OUTLIER = Field("is_outlier", "Outlier", "flag")
_HOW = {
    "repeats": "Steps are the ranges {} of the program; say --step NAME for others",
    "engine": "Steps are those of a serving engine, told by their names; say --step NAME for others",
    "optimizer": "Steps are what lies between two calls of Optimizer.step",
}
_NONE = (
    "No steps were found, so each process is one row: name them with `prof.step()` or a range around each, and say "
    "--step NAME"
)
_PATTERN = "Kernels come again in the same order: {}. Nothing tells whether that is a step, a layer or something else"


def rows(parts: Parts, options: Options) -> pl.DataFrame:
    return parts["rows"].rows


@in_lanes
def parts(analysis: Analysis, options: Options) -> Parts:
    step = options.step
    trace, steps = analysis.complete, steps_of(analysis, step)
    key = ["rank", "pid", "step"]
    done = _until_done(analysis, steps, step)
    more = steps.select(*key, "start_ns", "end_ns", "how", "is_outlier")
    more = more.with_columns(done["took_ns"], *step_phases.says(done))
    is_own = isinstance(step, str)
    with ThreadPoolExecutor(1) as pool:
        using = pool.submit(lambda: use(devices(trace, steps) if is_own else analysis.devices))
        rows = breakdown(trace, steps) if is_own else analysis.breakdown
        used = using.result()
    for frame in (more, used):
        rows = rows.join(frame, on=key, how="left", nulls_equal=True, maintain_order="left")
    kinds = (f"{kind}_ns" for kind in KINDS)
    times = ("start_ns", "end_ns", "time_ns", "took_ns")
    said = more.columns[more.columns.index("phase") :]
    rows = rows.select(*key, *times, *kinds, *used.columns[3:], *said, "how", "is_outlier")
    return {
        "rows": Part(rows, times=("start_ns", "end_ns")),
        **step_words.parts(analysis, steps if is_own else None),
        **step_phases.parts(done),
    }


def _until_done(analysis: Analysis, steps: pl.DataFrame, step: Steps | None) -> pl.DataFrame:
    if not isinstance(step, str):
        return analysis.iterations_until_done
    return until_done(steps, analysis.complete.calls, analysis.complete.work)


def steps_of(analysis: Analysis, step: Steps | None = None) -> pl.DataFrame:
    """Returns the steps of the trace or, if `step` is a pattern, the ranges whose names match it."""
    if not isinstance(step, str):
        return analysis.iterations
    ranges = analysis.complete.ranges
    names = ranges["name"].unique()
    steps = iterations(ranges, names.filter(numbers_of(names, step).is_not_null()).cast(pl.String))
    return with_outliers(until_done(steps, analysis.complete.calls, analysis.complete.work)).select(steps.columns)


def answer(parts: Parts, options: Options) -> Answer:
    table = rows(parts, options)
    fields = [*varying_fields(PLACES[:2], table), STEP, TIME]
    if table.select(step_phases.SAYS).null_count().row(0) != (table.height,) * len(step_phases.SAYS):
        fields += with_values(step_phases.FIELDS, table)
    if table["is_outlier"].any():
        fields.append(_OUTLIER)
    fields += shares_of_kinds(_TITLES, table, "time_ns", "Time")
    return Answer("steps", table, fields, (*_step_notes(parts), *_notes(table)))


def _step_notes(parts: Parts) -> list[str]:
    lengths = lengths_of(parts)
    if not lengths.steps:
        pattern = step_words.pattern_text(parts)
        return [_PATTERN.format(pattern)] if pattern else []
    notes = [f"Steps: {step_words.lengths_text(lengths)}"]
    if phases := step_phases.phases_texts(parts):
        notes.append(f"Phases: {', '.join(f'{phase} {text}' for phase, text in phases.items())}")
    others = step_words.outside_texts(parts)
    return [*notes, f"In no step: {', '.join(others)}"] if others else notes


def _notes(rows: pl.DataFrame) -> list[str]:
    if not rows.height:
        return ["There is nothing in this trace: no ranges, no calls, no work"]
    notes = [_NONE] if rows["how"].null_count() else []
    for how in rows["how"].drop_nulls().unique(maintain_order=True):
        if how in _HOW:
            notes.append(_HOW[how].format(_patterns_of(rows.filter(pl.col("how") == how)["step"])))
    return notes


def _patterns_of(names: pl.Series) -> str:
    """Returns up to three different names of steps, with * in place of numbers."""
    called = names.str.replace(" #[0-9]+$", "").str.replace_all("[0-9]+", "*")
    return ", ".join(called.unique(maintain_order=True).head(3))


QUESTION = Question("steps", parts, rows, answer)
