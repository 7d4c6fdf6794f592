"""Two runs compared, and whether the second is slower: `opspan diff`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from opspan.analysis import Analysis
from opspan.analysis.compare import BY, StepChange, compared, have_places, step_change
from opspan.analysis.figures import LEAST, Figures, parts_of, several
from opspan.analysis.lanes import in_lanes
from opspan.analysis.parts import Parts
from opspan.analysis.places import is_too_long
from opspan.analysis.until_done import until_done
from opspan.printable import printable
from opspan.questions import Options, Question, needs_two_runs
from opspan.tables.window import Steps, numbers_of, of_steps
from opspan.views.answer import Answer
from opspan.views.fields import (
    CHANGE,
    CHANGE_SHARE,
    KIND,
    MODULE,
    NAME,
    NO_AFTER,
    NO_BEFORE,
    PHASE,
    SHARE_AFTER,
    SHARE_BEFORE,
    SIZES,
    Field,
    pick,
    short_name,
    time_text,
)
from opspan.views.steps import steps_of

_ALL_ROWS = "the time of all rows"
KEYS = (
    replace(NAME, none="(in none)"),
    KIND,
    SIZES,
    replace(MODULE, none="(in none)"),
    replace(PHASE, none="(in none)"),
    NO_BEFORE,
    NO_AFTER,
)
FIELDS = (
    CHANGE,
    replace(CHANGE_SHARE, whole="Before"),
    replace(SHARE_BEFORE, rank=6, whole=_ALL_ROWS),
    replace(SHARE_AFTER, rank=5, whole=_ALL_ROWS),
)
_REAL = Field("is_real", "Real", "flag", rank=1)
_STATE = Field("state", "State", "state", rank=4)
_NO_NAMES = ("kind", "place_before", "place_after")
_TIMES = {"device": "self time of devices", "cpu": "self time of CPUs"}
_MOST = 3  # names in a sentence
_NAME = 40  # characters
_col = pl.col


def figures_of(analysis: Analysis, by: str = "op", step: Steps | None = None, process: int | None = None) -> Figures:
    """What of a run is compared. `step`: the numbers, or the name, of the steps that count; `process`: the one that
    does. The run is there as a whole: what a step launched may run after its end."""
    return several_of(analysis, [by], step, process)[by]


@in_lanes
def parts(analysis: Analysis, options: Options) -> Parts:
    """Returns what is compared of a run of many ranks."""
    step = options.step
    return parts_of(analysis.complete, options.by, _steps_asked(analysis, step), is_part=step is not None)


def several_of(
    analysis: Analysis, ways: Sequence[str], step: Steps | None = None, process: int | None = None
) -> dict[str, Figures]:
    """The same by several, at less than the cost of each."""
    each = analysis.by_lane  # each cycle counts as a process does, as it does where it is read by itself
    return several(each.complete, ways, _steps_asked(each, step), process, is_part=step is not None)


def _steps_asked(analysis: Analysis, step: Steps | None) -> pl.DataFrame:
    if isinstance(step, str):
        steps = until_done(steps_of(analysis, step), analysis.complete.calls, analysis.complete.work)
    else:
        steps = analysis.iterations_until_done
    if step is not None:
        one = pl.lit(0, dtype=pl.Int64) if isinstance(step, str) else numbers_of(steps["step"], step)
        steps = steps.with_columns(number=one).drop_nulls("number")
        of_steps(step, steps["number"], steps["start_ns"], steps["end_ns"])  # an error where there are none
        steps = steps.filter(_col("number").is_between(*step)) if isinstance(step, tuple) else steps
    return steps


def answer(before: Figures, after: Figures, fail_over: float | None = None) -> Answer:
    """`fail_over`: by which share a step, or the whole, may take longer before the exit code is 1."""
    by = before.by
    rows = compared(before, after)
    taken, said = total(before, after, rows)
    was, now = times_of(before, after)
    fields = pick(KEYS, shown_keys(rows, by))
    if by == "shape":
        fields = [replace(field, none="") for field in fields]
    fields += [Field(was, "Before", "ns", rank=3), Field(now, "After", "ns", rank=2), *FIELDS]
    fields += [_REAL] if rows["is_real"].any() else []
    fields += [_STATE] if (rows["state"] != "same").any() else []
    notes = [
        said,
        *_names_said(rows, by),
        *of_places(before, after),
    ]
    code = 0
    if fail_over is not None:
        allowed = taken.before_ns * (1 + fail_over)
        code = int(taken.after_ns > allowed and taken.is_real is not False)
        notes.append(f"{'Failed' if code else 'Passed'}: B may take {100 * fail_over:.6g}% longer")
    return Answer("diff", rows, fields, tuple(notes), code)


def saved(path: Path, left_out: list[str]) -> Answer:
    """What is said of a baseline that was written."""
    return Answer("diff", pl.DataFrame(), (), (f"Wrote {printable(str(path))}", *left_out))


def shown_keys(rows: pl.DataFrame, by: str) -> list[str]:
    """A module is no column for people where nothing has one."""
    return [key for key in BY[by] if not (by == "place" and key == "module" and not rows["module"].count())]


def times_of(before: Figures, after: Figures) -> tuple[str, str]:
    """The columns that are compared: of a step where there are steps in both, else of the whole run."""
    is_step = before.steps.number and after.steps.number
    return ("step_before_ns", "step_after_ns") if is_step else ("before_ns", "after_ns")


def of_places(before: Figures, after: Figures) -> list[str]:
    """What is to be said where the rows are by place."""
    if before.by != "place":
        return []
    if not have_places(before, after):
        return ["Only one of the runs has steps, so nothing in it is at the same place as in the other"]
    if is_too_long(before.rows, after.rows):
        return [
            "Steps are too long, and differ in too much, to find what is new in between: the n-th of a name and module "
            "is compared with the n-th"
        ]
    return []


def total(before: Figures, after: Figures, rows: pl.DataFrame) -> tuple[StepChange, str]:
    """How long a step took, or where there are none in both all that is compared; and a sentence on it. `rows`: what
    `compared` gives."""
    of_step = step_change(before.steps, after.steps)
    taken = of_step or StepChange(int(rows["before_ns"].sum()), int(rows["after_ns"].sum()), None)
    if not rows.height and not of_step:
        return taken, "There is nothing to compare in these traces"
    if not of_step:
        what = f"There are no steps in both, so it is the whole {_TIMES[rows['time_of'][0]]}"
    elif "device" in (before.time, after.time):
        what = "Time of a step, until all that it launched was done"
    else:
        what = "Time of a step"
    change = taken.after_ns - taken.before_ns
    share = f", {100 * change / taken.before_ns:+.1f}% of before" if taken.before_ns else ""
    said = {
        True: "more than the noise of the steps",
        False: "no more than the noise of the steps",
        None: f"whether that is noise is not known: it takes {LEAST} steps in each run",
    }[taken.is_real]
    return taken, f"{what}: {time_text(taken.before_ns)} before, {time_text(taken.after_ns)} after{share}; {said}"


def _names_said(rows: pl.DataFrame, by: str) -> list[str]:
    names = [_col(key) for key in BY[by] if key not in _NO_NAMES]
    if by == "place":
        names.append(pl.format("#{}", pl.coalesce("place_before", "place_after")).alias("place"))
    there = rows.filter(_col("state") == "same", _col("is_real").fill_null(value=True))
    found = (
        ("Grew most", there.filter(_col("change_ns") > 0), True),
        ("Shrank most", there.filter(_col("change_ns") < 0), True),
        ("Only in B", rows.filter(_col("state") == "new"), False),
        ("Only in A", rows.filter(_col("state") == "gone"), False),
    )
    lines = []
    for title, some, is_timed in found:
        said = [
            _said(names) + (f" by {time_text(abs(ns))}" if is_timed else "")
            for *names, ns in some.select(*names, "change_ns").head(_MOST).iter_rows()
        ]
        more = f" and {some.height - _MOST:,} more" if some.height > _MOST and not is_timed else ""
        lines += [f"{title}: {', '.join(said)}{more}"] if said else []
    return lines


def _said(names: list[str | None]) -> str:
    return " ".join(short_name(name, _NAME) for name in names if name) or "(in none)"


QUESTION = Question("diff", parts, needs_two_runs, needs_two_runs)
