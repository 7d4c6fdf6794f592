"""Compares two runs, and says whether the second is slower: `opspan diff`."""

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
from opspan.views import fields
from opspan.views.answer import Answer
from opspan.views.fields import Field, pick, short_name, time_text
from opspan.views.steps import steps_of

_ALL_ROWS = "the time of all rows"
KEYS = (
    replace(fields.NAME, none="(in none)"),
    fields.KIND,
    fields.SIZES,
    replace(fields.MODULE, none="(in none)"),
    replace(fields.PHASE, none="(in none)"),
    fields.NO_BEFORE,
    fields.NO_AFTER,
)
FIELDS = (
    fields.CHANGE,
    replace(fields.CHANGE_SHARE, total_title="Before"),
    replace(fields.SHARE_BEFORE, rank=6, total_title=_ALL_ROWS),
    replace(fields.SHARE_AFTER, rank=5, total_title=_ALL_ROWS),
)
_REAL = Field("is_real", "Real", "flag", rank=1)
_STATE = Field("state", "State", "state", rank=4)
_NO_NAMES = ("kind", "place_before", "place_after")
_TIMES = {"device": "self time of devices", "cpu": "self time of CPUs"}
_MOST = 3  # maximum number of names in a sentence
_NAME = 40  # maximum length of a name
_col = pl.col


def figures_of(analysis: Analysis, by: str = "op", step: Steps | None = None, process: int | None = None) -> Figures:
    """Returns the figures of a run for a comparison. `step` selects the steps to count, by number or by name. If
    `process` is given, only this process counts. `analysis` must cover the whole run, because a kernel may run after
    the step that launched it."""
    return several_of(analysis, [by], step, process)[by]


@in_lanes
def parts(analysis: Analysis, options: Options) -> Parts:
    """Returns the figures for a comparison in a form that can be added up over ranks."""
    step = options.step
    return parts_of(analysis.complete, options.by, _chosen_steps(analysis, step), is_part=step is not None)


def several_of(
    analysis: Analysis, ways: Sequence[str], step: Steps | None = None, process: int | None = None
) -> dict[str, Figures]:
    """Returns the figures in several groupings (`ways`). This is faster than calling `figures_of` for each of them."""
    analysis = analysis.by_lane  # each file (cycle) that a process wrote counts as a separate process
    return several(analysis.complete, ways, _chosen_steps(analysis, step), process, is_part=step is not None)


def _chosen_steps(analysis: Analysis, step: Steps | None) -> pl.DataFrame:
    if isinstance(step, str):
        steps = until_done(steps_of(analysis, step), analysis.complete.calls, analysis.complete.work)
    else:
        steps = analysis.iterations_until_done
    if step is not None:
        number = pl.lit(0, dtype=pl.Int64) if isinstance(step, str) else numbers_of(steps["step"], step)
        steps = steps.with_columns(number=number).drop_nulls("number")
        of_steps(step, steps["number"], steps["start_ns"], steps["end_ns"])  # raises an error if no step matches
        steps = steps.filter(_col("number").is_between(*step)) if isinstance(step, tuple) else steps
    return steps


def answer(before: Figures, after: Figures, fail_over: float | None = None) -> Answer:
    """Compares two runs. The exit code is 1 if the time of a step (without steps: of the run) grew by more than the
    share `fail_over`, unless the growth is known to be noise."""
    by = before.by
    rows = compared(before, after)
    taken, sentence = total(before, after, rows)
    was, now = times_of(before, after)
    shown = pick(KEYS, shown_keys(rows, by))
    if by == "shape":
        shown = [replace(field, none="") for field in shown]
    shown += [Field(was, "Before", "ns", rank=3), Field(now, "After", "ns", rank=2), *FIELDS]
    shown += [_REAL] if rows["is_real"].any() else []
    shown += [_STATE] if (rows["state"] != "same").any() else []
    notes = [sentence, *_changes_text(rows, by), *place_notes(before, after)]
    code = 0
    if fail_over is not None:
        allowed = taken.before_ns * (1 + fail_over)
        code = int(taken.after_ns > allowed and taken.is_real is not False)
        notes.append(f"{'Failed' if code else 'Passed'}: B may take {100 * fail_over:.6g}% longer")
    return Answer("diff", rows, shown, tuple(notes), code)


def saved(path: Path, left_out: list[str]) -> Answer:
    """Returns the answer that --save-baseline prints."""
    return Answer("diff", pl.DataFrame(), (), (f"Wrote {printable(str(path))}", *left_out))


def shown_keys(rows: pl.DataFrame, by: str) -> list[str]:
    """Returns the key columns that people see. With --by place, the module is left out if no row has a module."""
    return [key for key in BY[by] if not (by == "place" and key == "module" and not rows["module"].count())]


def times_of(before: Figures, after: Figures) -> tuple[str, str]:
    """Returns the names of the two columns that are compared: the times of a step if both runs have steps, and
    otherwise the times of the whole run."""
    is_step = before.steps.number and after.steps.number
    return ("step_before_ns", "step_after_ns") if is_step else ("before_ns", "after_ns")


def place_notes(before: Figures, after: Figures) -> list[str]:
    """Returns the notes that only a comparison by place needs."""
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
    """Returns the time of a step in both runs, and a sentence that compares them. If a run has no steps, the time is
    the sum over all `rows`, which are the result of `compared`."""
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
    noise = {
        True: "more than the noise of the steps",
        False: "no more than the noise of the steps",
        None: f"whether that is noise is not known: it takes {LEAST} steps in each run",
    }[taken.is_real]
    return taken, f"{what}: {time_text(taken.before_ns)} before, {time_text(taken.after_ns)} after{share}; {noise}"


def _changes_text(rows: pl.DataFrame, by: str) -> list[str]:
    names = [_col(key) for key in BY[by] if key not in _NO_NAMES]
    if by == "place":
        names.append(pl.format("#{}", pl.coalesce("place_before", "place_after")).alias("place"))
    in_both = rows.filter(_col("state") == "same", _col("is_real").fill_null(value=True))
    groups = (
        ("Grew most", in_both.filter(_col("change_ns") > 0), True),
        ("Shrank most", in_both.filter(_col("change_ns") < 0), True),
        ("Only in B", rows.filter(_col("state") == "new"), False),
        ("Only in A", rows.filter(_col("state") == "gone"), False),
    )
    lines = []
    for title, group, is_timed in groups:
        texts = [
            _name_text(names) + (f" by {time_text(abs(ns))}" if is_timed else "")
            for *names, ns in group.select(*names, "change_ns").head(_MOST).iter_rows()
        ]
        more = f" and {group.height - _MOST:,} more" if group.height > _MOST and not is_timed else ""
        lines += [f"{title}: {', '.join(texts)}{more}"] if texts else []
    return lines


def _name_text(names: list[str | None]) -> str:
    return " ".join(short_name(name, _NAME) for name in names if name) or "(in none)"


QUESTION = Question("diff", parts, needs_two_runs, needs_two_runs)
