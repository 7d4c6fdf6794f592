"""Finds which ranks wait for which in collectives, and how much time each rank lost to others.

    add_held(rows, held) -> adds held_ns: how long calls such as allocations held up the row's host in the row's step
    lateness(rows) -> rank, pid, device_id, component, step, turn, and in ns
        exposed_ns  time in which a collective ran and nothing else did (analysis/exposed.py)
        waited_ns   the part of exposed_ns in which the rank waited for others
        late_ns     the part of waited_ns that comes from late ranks, and not from a start at different times or from
                    filling a pipeline whose stages have the same work
    stragglers(lateness, least_ns) -> rank, pid, device_id, component of the places that others wait for
    late_by_far(lateness) -> rank, pid, device_id, component, step, turn of the places that came far later than most
    loss_to(lateness, some) -> component, step, turn, ns: the time that other places lose by waiting for the places
        `some`. If `some` has steps, only these steps count

`rows`: collectives with `match`, `ranks`, `waiting_ns`, `exposed_ns`, `held_ns`, `kind` and `step`. A place is a
device of a process, or a process without devices. A component is a set of places that collectives connect.

Processes without devices may have no steps. There each collective counts as a step of its own, and `turn` is the number
of its match; else `turn` is null. All of this rests on how long the collectives of a match took, each on its own clock.
So the clocks of ranks need not agree.

If all places of a component take part in the same collectives of a step, the step is equally long for all. The place
with the least exposed time computes longest and waits for nobody. If another place has more exposed time, it waited for
the difference. This includes transfers that a place would have hidden if it had not waited before.

In a pipeline each stage waits while the first stages fill the pipeline, and while the last stages drain it. Stages with
the same work wait equally long for that. So a stage lost only the difference between its exposed time and the least
exposed time of all stages. The waiting alone would be a wrong measure, because stages in the middle have neighbours on
both sides and wait less. A waiting stage may also be held up itself, for example while it takes memory or loads kernels
in a warm-up. That time counts as lateness of the stage itself, so it is subtracted from the waiting.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.spans import DEVICE, PROCESS

_col = pl.col
SIDES = ("send", "recv", "send_recv")
_FEW = 2  # in a run of at most this many steps, waiting in the first step counts in full
_OF_NORMAL = 1.4826  # factor from the median absolute deviation to the standard deviation of a normal distribution
_MOSTLY = 0.5  # share: lateness over all steps must be at least this part of the lateness in very late steps
# Limits in standard deviations. Chance exceeds _STEADY (for the sum of all steps) once in a thousand times, and _FAR
# (for a single step) hardly ever.
_STEADY, _FAR = 3, 6
_PLACE = (*DEVICE, "component")
_STEP = ("component", "step", "turn")


def waited_ns() -> pl.Expr:
    """Returns how much shorter the exposed time of a collective would be without waiting, because the transfer would
    begin earlier and computing would hide it."""
    return pl.min_horizontal("exposed_ns", _col("waiting_ns").fill_null(0))


def add_held(rows: pl.DataFrame, held: pl.DataFrame) -> pl.DataFrame:
    """Adds held_ns, the time for which the calls `held` (with wait_ns and step) held up the row's host in the row's
    step."""
    at = [*PROCESS, "step"]
    sums = held.group_by(at).agg(held_ns=_col("wait_ns").sum())
    rows = rows.join(sums, on=at, how="left", nulls_equal=True, maintain_order="left")
    return rows.with_columns(_col("held_ns").fill_null(0))


def lateness(rows: pl.DataFrame) -> pl.DataFrame:
    # All ranks of one collective (`match`) get the same step, because their files may number steps differently.
    step = pl.when(_col("match").is_not_null()).then(_col("step").first().over("match")).otherwise("step")
    is_side = _col("kind").is_in(SIDES) & _col("match").is_not_null()
    rows = rows.with_columns(
        component=_components(rows),
        step=step.cast(pl.String),
        waiting_ns=_col("waiting_ns").fill_null(0),
        is_side=is_side.fill_null(value=False),
    )
    places = rows.group_by("component").agg(places=pl.struct(DEVICE).n_unique())
    rows = rows.join(places, on="component", maintain_order="left")
    is_alone = _col("step").is_null() & _col("device_id").is_null() & ~_col("is_side").any().over("component")
    rows = rows.with_columns(turn=pl.when(is_alone).then("match"))
    sums = rows.group_by(*_PLACE, "step", "turn", maintain_order=True).agg(
        _col("exposed_ns", "waiting_ns").sum(),
        waited_ns=waited_ns().sum(),
        has_all=(_col("ranks") == _col("places")).fill_null(value=False).all(),
        places=_col("places").first(),
        start_ns=_col("start_ns").min(),
        sides=_col("is_side").sum(),
        held_ns=_col("held_ns").first(),
    )
    is_same = _col("has_all").all().over(_STEP) & (pl.len().over(_STEP) == _col("places"))
    more = _col("exposed_ns") - _col("exposed_ns").min().over(_STEP)
    more = pl.when(is_same).then(pl.min_horizontal(more, "waiting_ns")).otherwise(0)
    sums = sums.with_columns(waited_ns=pl.max_horizontal("waited_ns", more))
    uneven = pl.min_horizontal("waited_ns", _col("exposed_ns") - _col("exposed_ns").min().over(_STEP))
    uneven = (uneven - _col("held_ns")).clip(0)
    is_pipeline = _col("sides").sum().over("component") > 0
    sums = sums.with_columns(late_ns=pl.when(is_pipeline).then(uneven).otherwise("waited_ns"))
    # In the first step, ranks also wait because they begin at different times, and because the pipeline is still empty.
    # So late_ns of the first step is limited to the largest late_ns of the other steps.
    is_first = (_col("start_ns") == _col("start_ns").min().over(_PLACE)) & (pl.len().over(_PLACE) > _FEW)
    most = _col("late_ns").filter(~is_first).max().over(_PLACE)
    sums = sums.with_columns(late_ns=pl.when(is_first).then(pl.min_horizontal("late_ns", most)).otherwise("late_ns"))
    return sums.select(*_PLACE, "step", "turn", "exposed_ns", "waited_ns", "late_ns")


def _components(rows: pl.DataFrame) -> pl.Series:
    """Returns, for each row, the id of the connected component that contains the row's rank and device."""
    places = rows.select(place=pl.struct(DEVICE).rank("dense").cast(pl.Int64), match="match")
    # Link all places of a collective to the place with the least number.
    edges = places.drop_nulls().with_columns(first=_col("place").min().over("match")).select("place", "first").unique()
    leader = {place: place for place in places["place"].unique().to_list()}

    def top(place: int) -> int:
        while leader[place] != place:
            place = leader[place]
        return place

    for place, first in edges.iter_rows():
        one, other = sorted((top(place), top(first)))
        leader[other] = one
    of = {place: top(place) for place in leader}
    return places["place"].replace_strict(list(of), list(of.values()), return_dtype=pl.Int64)


def stragglers(rows: pl.DataFrame, least_ns: float) -> pl.DataFrame:
    """Returns the places (devices, or processes without devices) that wait at least `least_ns` less than most places of
    their component. The difference must be larger than chance over all steps, or very large in a few steps. If all
    places are late equally often, they wait equally long, and the result is empty."""
    rows = _add_less(rows)
    sums = rows.group_by(_PLACE).agg(
        _col("late_ns").sum(),
        chance_ns=_STEADY * _col("less_ns").std().fill_null(0) * pl.len().sqrt(),
        # Other programs hold up a process for a while now and then, and one collective cannot tell them from the rank.
        far_ns=_col("less_ns").filter(_col("is_far") & _col("turn").is_null()).sum(),
    )
    sums = sums.with_columns(less_ns=_usual_ns().over("component") - _col("late_ns"))
    is_much = (_col("less_ns") > 0) & (_col("less_ns") >= least_ns)
    is_far = (_col("far_ns") >= least_ns) & (_col("less_ns") >= _MOSTLY * _col("far_ns"))
    is_no_chance = (_col("less_ns") >= _col("chance_ns")) | is_far
    return sums.filter(is_much & is_no_chance).sort(DEVICE).select(_PLACE)


def late_by_far(rows: pl.DataFrame) -> pl.DataFrame:
    return _add_less(rows).filter("is_far").sort(*DEVICE).select(*_PLACE, "step", "turn")


def _add_less(rows: pl.DataFrame) -> pl.DataFrame:
    """Adds `less_ns` and `is_far`. `less_ns` is how much less time a device waits in a step than most devices do.
    `is_far` is true if `less_ns` is far outside the range that is usual for the device's steps."""
    rows = rows.with_columns(less_ns=_usual_ns().over(_STEP) - _col("late_ns"))
    apart = (_col("less_ns") - _col("less_ns").median().over(_PLACE)).abs()
    spread = _OF_NORMAL * apart.median().over(_PLACE)
    return rows.with_columns(is_far=_col("less_ns") > _FAR * spread)


def _usual_ns() -> pl.Expr:
    """Returns the median of late_ns. For an even number of values, the median is the larger of the two middle values.
    So if there are two ranks, the rank that waits longer counts as the usual rank."""
    return _col("late_ns").sort().get(pl.len() // 2)


def loss_to(rows: pl.DataFrame, some: pl.DataFrame) -> pl.DataFrame:
    """Returns component, step, turn and ns: the least late_ns of the places that are not in `some`, minus the least
    late_ns of all places. Each of the other places lost at least this time."""
    step = [name for name in ("step", "turn") if name in some.columns]
    rows = rows.join(some.select("component", *step).unique(), on=["component", *step], how="semi", nulls_equal=True)
    others = rows.join(some, on=[*DEVICE, *step], how="anti", nulls_equal=True)
    others = others.group_by(_STEP).agg(_col("late_ns").min())
    least = rows.group_by(_STEP).agg(least_ns=_col("late_ns").min())
    both = others.join(least, on=_STEP, nulls_equal=True)
    return both.select(*_STEP, ns=_col("late_ns") - _col("least_ns"))
