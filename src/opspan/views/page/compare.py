"""The differences between this run and an earlier run: the rows of `opspan diff`, in each of its groupings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from opspan.addresses import File
from opspan.analysis import Analysis
from opspan.analysis.compare import BY, StepChange, compared
from opspan.analysis.compare_steps import compare_steps
from opspan.analysis.figures import Figures
from opspan.analysis.spans import PROCESS
from opspan.printable import listed, printable
from opspan.views.diff import FIELDS, KEYS, place_notes, several_of, shown_keys, times_of, total
from opspan.views.fields import CHANGE, CHANGE_SHARE, NUMBER, Field, pick
from opspan.views.page.columns import table, text, values
from opspan.views.page.section import Section, Subject

_BY = {"op": "op", "module": "module", "kernel": "kernel", "shape": "op and sizes", "phase": "phase", "place": "place"}
_ORDER = ("op", "module", "kernel", "step", "shape", "phase", "place")
_MOST_BARS = 15
_LABEL = 120  # maximum length of a label
_col = pl.col
_NAMES = [replace(field, unit="text") if field.name == "sizes" else field for field in KEYS]
_NUMBERS = (
    *FIELDS,
    Field("real", "Is it real", "text", "Real: more than the noise of the steps"),
    Field("state", "New or gone", "text", "New: only after. Gone: only before"),
    Field("count_before", "Count before", "count", "In the whole run"),
    Field("count_after", "Count after", "count", "In the whole run"),
)
_STEPS = (
    NUMBER,
    Field("step_before", "Step before", "name"),
    Field("step_after", "Step after", "name"),
    Field("before_ns", "Before", "ns", "Until all that it launched was done"),
    Field("after_ns", "After", "ns", "Until all that it launched was done"),
    CHANGE,
    CHANGE_SHARE,
    Field("accumulated_ns", "Changes so far", "signed ns", "Of all steps up to this one together"),
)


def section(subject: Subject) -> Section:
    if subject.other is None:
        why = "This page is about one run: no other was named that it is compared with"
        return Section("Compare", None, why, f"opspan report {subject.typed} --against BEFORE -o compared.html")
    before, after = subject.other, subject.analysis
    of_before, of_after = several_of(before, list(_BY)), several_of(after, list(_BY))
    sides = {by: (of_before[by], of_after[by]) for by in _BY}
    rows = {by: compared(*both) for by, both in sides.items()}
    taken, sentence = total(*sides["op"], rows["op"])
    tables = {by: _table(by, *both, rows[by]) for by, both in sides.items()}
    steps, why = _steps(before, after)
    if steps:
        tables["step"] = steps
    name_before, name_after = _names(subject.other_files, subject.files)
    return Section(
        "Compare",
        {
            "before": name_before,
            "after": name_after,
            "verdict": _verdict(taken) if rows["op"].height else "",
            "said": sentence,
            "tables": [tables[by] for by in _ORDER if by in tables],
            "no_steps": why,
        },
    )


def _verdict(taken: StepChange) -> str:
    change = taken.after_ns - taken.before_ns
    if taken.is_real is False:
        return "Neither slower nor faster, as far as the noise of the steps lets tell."
    word = "Slower" if change > 0 else "Faster" if change else "Neither slower nor faster"
    return f"{word}." if taken.is_real or not change else f"{word}, unless it is noise."


def _table(by: str, before: Figures, after: Figures, rows: pl.DataFrame) -> dict[str, Any]:
    was, now = times_of(before, after)
    keys = shown_keys(rows, by)
    shown = rows.with_columns(
        *(_col(key).fill_null("(in none)") for key in keys if key in ("name", "module", "phase")),
        real=pl.when(_col("is_real")).then(pl.lit("real")).when(~_col("is_real")).then(pl.lit("noise")),
        state=pl.when(_col("state") != "same").then("state"),
    )
    shown = shown.drop(name for name in ("real", "state") if not shown[name].count())
    times = (Field(was, "Before", "ns"), Field(now, "After", "ns"))
    largest = shown.filter(_col("change_ns") != 0).head(_MOST_BARS)
    return {
        "by": by,
        "title": _BY[by],
        "time": f"{_time(by, before, after)} {'of a step' if was == 'step_before_ns' else 'of the whole run'}",
        "rows": table(shown, (*pick(_NAMES, keys), *times, *_NUMBERS), place_notes(before, after)),
        "largest": {
            "label": [text(label[:_LABEL]) for label in _labels(largest, by)],
            "change_ns": values(largest["change_ns"]),
            "is_noise": values(largest["is_real"].fill_null(value=True).not_()),
        },
    }


def _time(by: str, before: Figures, after: Figures) -> str:
    if by == "kernel":
        return "Time of kernels and copies"
    return "Self time of devices" if "device" in (before.time, after.time) else "Self time on the host"


def _labels(rows: pl.DataFrame, by: str) -> list[str]:
    parts = {"shape": ("name", "sizes"), "place": ("name", "number", "module"), "kernel": ("name",)}.get(by, BY[by])
    number = pl.format("#{}", pl.coalesce("place_after", "place_before")) if by == "place" else pl.lit("")
    rows = rows.with_columns(number=number)
    return rows.select(pl.concat_str(parts, separator=" ", ignore_nulls=True)).to_series().to_list()


def _steps(before: Analysis, after: Analysis) -> tuple[dict[str, Any], str]:
    """Returns the table by step and "". If there is no table, returns an empty dict and the reason."""
    runs = [analysis.iterations_until_done for analysis in (before, after)]
    without = [when for when, steps in zip(("before", "after"), runs, strict=True) if not steps.height]
    if without:
        return {}, f"No steps were found in the run {' and in the run '.join(without)}, so there are none to compare"
    rows = compare_steps(*runs)
    most_steps = [int(steps.group_by(PROCESS).len()["len"].max() or 0) for steps in runs]  # type: ignore[arg-type]
    notes = ["The n-th step before is compared with the n-th after; of several processes it is their mean"]
    if most_steps[0] != most_steps[1]:
        notes.append(
            f"There are {most_steps[0]:,} steps before and {most_steps[1]:,} after: those that both have are compared"
        )
    largest = rows.filter(_col("change_ns") != 0).sort(_col("change_ns").abs(), descending=True).head(_MOST_BARS)
    return {
        "by": "step",
        "title": "step",
        "time": "Time of a step, until all that it launched was done",
        "rows": table(rows, _STEPS, notes),
        "largest": {
            "label": values(largest.select(pl.format("#{} {}", "number", "step_after")).to_series()),
            "change_ns": values(largest["change_ns"]),
            "is_noise": [False] * largest.height,
        },
    }, ""


def _names(before: Sequence[File], after: Sequence[File]) -> tuple[str, str]:
    """Returns a name for each of the two runs: the ends of the paths of its files. Each end has the file's name and as
    many folders (at most 7) as are needed to tell the runs apart."""
    depth = 1
    while depth < 8 and {_end(path, depth) for path in before} & {_end(path, depth) for path in after}:
        depth += 1
    sides = [printable(listed([_end(path, depth) for path in files], 3)) or "a trace" for files in (before, after)]
    return sides[0], sides[1]


def _end(path: File, depth: int) -> str:
    return "/".join(str(path).split("/")[-depth:])
