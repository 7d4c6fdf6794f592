"""Compares the times of two runs: what takes more time in the second run, and is the change more than noise?

    compare(one, other, by="op", steps=None) -> a row for each name, the largest change first:
        The columns that identify the row (String). By op: name. By shape: name, sizes. By module: module. By phase:
            phase. By kernel: kind, name. By place (places.py): name, module, and also:
        place_before, place_after (Int64): n for the n-th range of this name and module in the step; null if the run
            does not have this range.
        state (String): same, new (only in the second run), gone (only in the first).
        time_of (String): device or cpu: the kind of all times in the row.
        count_before, count_after (Int64): number of ranges or kernels in the run.
        before_ns, after_ns (Int64): self time in the run, or the whole time of kernels.
        step_before_ns, step_after_ns (Int64): the time of ranges that began in a step, or of kernels that were launched
            in a step, divided by the number of steps; null if a run has no steps.
        share_before, share_after (Float64): share of the time of all rows, in a step if there are steps, else in the
            run; null if no row took any time.
        change_ns (Int64): time after minus time before, for a step if there are steps, else for the run.
        change (Float64): change_ns as a share of the time before; null if that time is 0.
        is_real (Boolean): whether the change is more than noise; null if there are too few steps to know.
    compared(figures(one), figures(other)) -> the same rows, from the figures of two runs (figures.py).
    step_change(step_figures(steps), step_figures(other_steps)) -> StepChange: how the time of a step changed.

`one` and `other` must be complete (`Analysis.complete`); `steps` come from `iterations`. The time is that of devices if
ranges of either run have device time, else that of CPUs. By kernel, it is always that of devices.

A change is real if three things are true. First, the usual times of steps (noise.py) differ by more than a hundredth of
the larger time. Second, the difference is so large that only one in a hundred comparisons of equal runs shows it in the
step or in any row. Third, the shown times change in the same direction as the usual times. If there are several
processes, the mean of their usual times counts. Each process must have at least three steps; otherwise is_real is null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from opspan.analysis.figures import KEYS, Figures, StepFigures, figures
from opspan.analysis.noise import is_real
from opspan.analysis.places import partners
from opspan.analysis.spans import difference

if TYPE_CHECKING:
    from opspan.tables import Tables

_col = pl.col
# The ways to compare, with the columns that identify a row.
BY = KEYS | {"place": ("name", "module", "place_before", "place_after")}
_NUMBERS = ("count", "ns", "step", "usual", "error", "freedom")


class StepChange(NamedTuple):
    """The median time of a step in each run, and whether the change is more than noise."""

    before_ns: int
    after_ns: int
    is_real: bool | None  # None if there are too few steps to know


def compare(
    one: Tables, other: Tables, by: str = "op", steps: tuple[pl.DataFrame, pl.DataFrame] | None = None
) -> pl.DataFrame:
    steps_of_one, steps_of_other = steps or (None, None)
    return compared(figures(one, by, steps_of_one), figures(other, by, steps_of_other))


def compared(one: Figures, other: Figures) -> pl.DataFrame:
    by, keys = one.by, BY[one.by]
    time = "device" if "device" in (one.time, other.time) else "cpu"
    before, after = (_of_time(side, time, suffix) for side, suffix in ((one, "before"), (other, "after")))
    joined = list(KEYS[by])
    if by == "place":
        joined = ["name", "module", "slot"]
        before, after = _slots(one, other, before, after)
    rows = before.join(after, on=joined, how="full", coalesce=True, nulls_equal=True)
    is_new, is_gone = _col("count_before").is_null(), _col("count_after").is_null()
    state = pl.when(is_new).then(pl.lit("new")).when(is_gone).then(pl.lit("gone")).otherwise(pl.lit("same"))
    rows = rows.with_columns(state=state, time_of=pl.lit(time))
    rows = rows.with_columns(pl.exclude(*joined, *keys, "state", "time_of").fill_null(0))
    has_steps = one.steps.number > 0 and other.steps.number > 0
    is_known = one.steps.tell_noise and other.steps.tell_noise
    nothing = pl.lit(None, dtype=pl.Int64)
    rows = rows.select(
        *keys,
        "state",
        "time_of",
        "count_before",
        "count_after",
        before_ns="ns_before",
        after_ns="ns_after",
        step_before_ns=_col("step_before") if has_steps else nothing,
        step_after_ns=_col("step_after") if has_steps else nothing,
        grown=_col("usual_after") - _col("usual_before"),
        is_real=is_real(rows.height),
    )
    was, now = ("step_before_ns", "step_after_ns") if has_steps else ("before_ns", "after_ns")
    rows = rows.with_columns(share_before=_share(was), share_after=_share(now))
    rows = rows.with_columns(change_ns=difference(_col(was), _col(now)))
    rows = rows.with_columns(change=pl.when(_col(was) != 0).then(_col("change_ns") / _col(was)))
    is_so = _col("is_real") & (_col("grown").sign() == _col("change_ns").sign())
    unknown = pl.lit(None, dtype=pl.Boolean)
    rows = rows.select(pl.exclude("grown", "is_real"), is_real=is_so if is_known else unknown)
    return rows.sort(_col("change_ns").abs(), "change_ns", *keys, descending=[True, True, *(False for _ in keys)])


def step_change(one: StepFigures, other: StepFigures) -> StepChange | None:
    """Compares how long a step took in two runs. Returns None if a run has no steps."""
    if not (one.number and other.number):
        return None
    pair = {"before": one, "after": other}
    names = StepFigures._fields
    row = pl.DataFrame({f"{name}_{when}": [getattr(side, name)] for when, side in pair.items() for name in names})
    grown = (_col(f"{what}_after") - _col(f"{what}_before") for what in ("usual", "median"))
    is_so = is_real() & (next(grown).sign() == next(grown).sign())
    real = row.select(is_so).item() if one.tell_noise and other.tell_noise else None
    return StepChange(round(one.median), round(other.median), real)


def have_places(one: Figures, other: Figures) -> bool:
    """Returns whether places (places.py) of the two runs can be matched: both runs have steps, or both have none."""
    return (one.steps.number > 0) == (other.steps.number > 0)


def _of_time(side: Figures, time: str, suffix: str) -> pl.DataFrame:
    """Returns the rows of a run, with the suffix added to the names of its figures. `time` is the kind of time to
    compare, device or cpu. If the times of the run are of the other kind, they become 0."""
    rows = side.rows
    if side.time != time:
        rows = rows.with_columns(_col(name) * 0 for name in ("ns", "step", "usual", "error"))
    return rows.rename({name: f"{name}_{suffix}" for name in _NUMBERS})


def _slots(
    one: Figures, other: Figures, before: pl.DataFrame, after: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Adds `slot`, the number by which rows of the two runs are joined. Rows of matching places get equal slots. A
    place of only one run gets a slot that the other run does not have. Rows outside of steps get slot 0 if the places
    of the runs can be matched."""
    place = _col("place")
    if have_places(one, other):
        slot_before, slot_after = place.fill_null(0), pl.coalesce(partners(one.rows, other.rows), -place, 0)
    else:
        slot_before, slot_after = 2 * place.fill_null(0), -2 * place.fill_null(0) - 1
    sides = (before.with_columns(slot=slot_before), after.with_columns(slot=slot_after))
    one_side, other_side = (side.drop("position") for side in sides)
    return one_side.rename({"place": "place_before"}), other_side.rename({"place": "place_after"})


def _share(column: str) -> pl.Expr:
    total = _col(column).cast(pl.Float64).sum()
    return pl.when(total > 0).then(_col(column) / total)
