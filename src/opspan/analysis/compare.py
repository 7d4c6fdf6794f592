"""Two runs, name by name: what takes more time in the second than in the first, and whether that is more than noise.

    compare(one, other, by="op", steps=None) -> a row for each name, the largest change first
        name; name, sizes; module; phase; kind, name   String  by op, shape, module, phase, kernel
        name, module                  String   by place; with them
        place_before, place_after     Int64    the number among those of that name and module in a step; null: not there
        state                         String   same, new (only in the second run), gone (only in the first)
        time_of                       String   device or cpu: which time the others are
        count_before, count_after     Int64    how many there were in the whole run
        before_ns, after_ns           Int64    self time in the whole run; by kernel all of its time
        step_before_ns, step_after_ns Int64    of what began in a step, divided by the number of steps; null where a
                                               run has no steps
        share_before, share_after     Float64  that as a share of all rows, of a step where there are steps, else of the
                                               run; null where all took no time
        change_ns                     Int64    after less before: of a step where there are steps, else of the run
        change                        Float64  that as a share of before; null where there was nothing before
        is_real                       Boolean  the change is more than the noise; null: there are too few steps to know
    compared(figures(one), figures(other)) -> the same, of what was kept of two runs (figures.py)
    whole(lasted(steps), lasted(other_steps)) -> Whole, the same of the step itself: the median of how long one took

`one` and `other` are complete (`Analysis.complete`); `steps`: what `iterations` gives for each. The time is of devices
where the ranges of either run have any, else of CPUs.

A change is real if what steps usually took (noise.py) differs by more than a hundredth of the larger one, and by more
than one in a hundred comparisons of runs that are alike would show: of the step, or of any of the rows. The times that
are shown must change in the same direction. Each process has a usual time of its own, and they count as their mean.
Whether a change is real is known where each process has three steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from opspan.analysis.figures import KEYS, Figures, Lasted, figures
from opspan.analysis.noise import is_real
from opspan.analysis.places import partners
from opspan.analysis.spans import difference

if TYPE_CHECKING:
    from opspan.tables import Tables

_col = pl.col
# What the rows are by -> the columns that tell them apart.
BY = KEYS | {"place": ("name", "module", "place_before", "place_after")}
_NUMBERS = ("count", "ns", "step", "usual", "error", "freedom")


class Whole(NamedTuple):
    before_ns: int
    after_ns: int
    is_real: bool | None  # None: not known


def compare(
    one: Tables, other: Tables, by: str = "op", steps: tuple[pl.DataFrame, pl.DataFrame] | None = None
) -> pl.DataFrame:
    of_one, of_other = steps or (None, None)
    return compared(figures(one, by, of_one), figures(other, by, of_other))


def compared(one: Figures, other: Figures) -> pl.DataFrame:
    by, keys = one.by, BY[one.by]
    time = "device" if "device" in (one.time, other.time) else "cpu"
    before, after = (_suffixed(_of_time(side, time), suffix) for side, suffix in ((one, "before"), (other, "after")))
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


def whole(one: Lasted, other: Lasted) -> Whole | None:
    """How long a step took, by the steps of two runs. None where either has none."""
    if not (one.number and other.number):
        return None
    pair = {"before": one, "after": other}
    row = pl.DataFrame({f"{what}_{when}": [getattr(of, what)] for when, of in pair.items() for what in Lasted._fields})
    grown = (_col(f"{what}_after") - _col(f"{what}_before") for what in ("usual", "median"))
    is_so = is_real() & (next(grown).sign() == next(grown).sign())
    real = row.select(is_so).item() if one.tell_noise and other.tell_noise else None
    return Whole(round(one.median), round(other.median), real)


def have_places(one: Figures, other: Figures) -> bool:
    """A place in a step is none in a run without steps."""
    return (one.steps.number > 0) == (other.steps.number > 0)


def _of_time(side: Figures, time: str) -> pl.DataFrame:
    """A run that has no time of devices has none of each name."""
    if side.time == time:
        return side.rows
    return side.rows.with_columns(_col(name) * 0 for name in ("ns", "step", "usual", "error"))


def _suffixed(frame: pl.DataFrame, suffix: str) -> pl.DataFrame:
    return frame.rename({name: f"{name}_{suffix}" for name in _NUMBERS})


def _slots(
    one: Figures, other: Figures, before: pl.DataFrame, after: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """With a column that is the same for places that are the same. 0: outside of steps; below: in one run only."""
    place = _col("place")
    if have_places(one, other):
        slot, found = place.fill_null(0), pl.coalesce(partners(one.rows, other.rows), -place, 0)
    else:
        slot, found = 2 * place.fill_null(0), -2 * place.fill_null(0) - 1
    sides = (before.with_columns(slot=slot), after.with_columns(slot=found))
    one_side, other_side = (side.drop("position") for side in sides)
    return one_side.rename({"place": "place_before"}), other_side.rename({"place": "place_after"})


def _share(column: str) -> pl.Expr:
    whole = _col(column).cast(pl.Float64).sum()
    return pl.when(whole > 0).then(_col(column) / whole)
