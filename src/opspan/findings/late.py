"""Who waits for whom: the time that each rank lost to others in collectives, and the ranks that it was lost to.

    with_held(rows, held) -> with held_ns: for how long the host of each was held up in its step
    late(rows) -> rank, pid, device_id, component, step, and in ns
        exposed_ns  in which a collective ran and nothing else did (analysis/exposed.py)
        waited_ns   how much of it the rank waited for others
        late_ns     the same without the fill of an even pipeline, and without what ranks begin at different times
    stragglers(late, least_ns) -> rank, pid, device_id, component of those that others wait for
    late_by_far(late) -> the same, and step: of each step those that came later than most by far
    lost_to(late, some) -> component, step, ns: what others lose to them; if `some` has steps, in these

`rows`: collectives with `match`, `ranks`, `waiting_ns`, `exposed_ns`, `held_ns`, `kind` and `step`. A place is a
device of a process, or a process; a component has the places that collectives connect.

Where the places of a component have the same collectives in a step, that step is as long for all of them, and the place
that exposes least has most work of its own: it waits for nobody, and what another exposes more is waiting, too. That
counts transfers that the other would have hidden, had it not waited before.

In a pipeline each stage waits for the first to fill it and for the last to drain it: all for the same time if they have
the same work. Only what a stage exposes more than the one that exposes least is lost to another; of waiting alone those
have less that are in the middle, and send and receive on both sides. While a stage waits, its host may be held up as
others are, by taking memory or loading kernels in a warm-up, say: that much it would be late itself.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.spans import DEVICE, PROCESS

_col = pl.col
SIDES = ("send", "recv", "send_recv")
_FEW = 2  # steps
_OF_NORMAL = 1.4826  # times the median distance from the median is the usual deviation of what is normally spread
_MOSTLY = 0.5  # of what a place is late by far, as much it is late in all, or others are as often
_STEADY, _FAR = 3, 6  # usual deviations: of the sum of all steps, which chance exceeds once in a thousand; of a step
_PLACE = (*DEVICE, "component")
_STEP = ("component", "step")


def waited_ns() -> pl.Expr:
    """How much of what a collective exposes would be gone, had it not waited: the transfer would then begin sooner, and
    be hidden as long as something computes."""
    return pl.min_horizontal("exposed_ns", _col("waiting_ns").fill_null(0))


def with_held(rows: pl.DataFrame, held: pl.DataFrame) -> pl.DataFrame:
    """`held`: calls that hold up hosts, with wait_ns and step."""
    at = [*PROCESS, "step"]
    sums = held.group_by(at).agg(held_ns=_col("wait_ns").sum())
    rows = rows.join(sums, on=at, how="left", nulls_equal=True, maintain_order="left")
    return rows.with_columns(_col("held_ns").fill_null(0))


def late(rows: pl.DataFrame) -> pl.DataFrame:
    # The same step for all ranks: their files may count from different steps.
    step = pl.when(_col("match").is_not_null()).then(_col("step").first().over("match")).otherwise("step")
    is_side = _col("kind").is_in(SIDES) & _col("match").is_not_null()
    rows = rows.with_columns(
        component=_components(rows),
        step=step.cast(pl.String),
        waiting_ns=_col("waiting_ns").fill_null(0),
        is_side=is_side.fill_null(value=False),
    )
    places = (
        rows.select("component", place=pl.struct(DEVICE)).group_by("component").agg(places=_col("place").n_unique())
    )
    rows = rows.join(places, on="component", maintain_order="left")
    sums = rows.group_by(*_PLACE, "step", maintain_order=True).agg(
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
    # Ranks begin at different times, and fill a pipeline that none had to drain before: that is no step's lateness.
    is_first = (_col("start_ns") == _col("start_ns").min().over(_PLACE)) & (pl.len().over(_PLACE) > _FEW)
    most = _col("late_ns").filter(~is_first).max().over(_PLACE)
    sums = sums.with_columns(late_ns=pl.when(is_first).then(pl.min_horizontal("late_ns", most)).otherwise("late_ns"))
    return sums.select(*_PLACE, "step", "exposed_ns", "waited_ns", "late_ns")


def _components(rows: pl.DataFrame) -> pl.Series:
    """The number of the component of each row's place."""
    places = rows.select(place=pl.struct(DEVICE).rank("dense").cast(pl.Int64), match="match")
    # Each collective connects its places with the first of them.
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
    """*DEVICE, component, of who waits at least so much less than most places of its component do, and either in most
    steps, beyond what chance gives, or in a few by far. Who is late as often as others waits as much as they do."""
    sums = (
        _less(rows)
        .group_by(_PLACE)
        .agg(
            _col("late_ns").sum(),
            chance_ns=_STEADY * _col("less_ns").std().fill_null(0) * pl.len().sqrt(),
            far_ns=_col("less_ns").filter("is_far").sum(),
        )
    )
    sums = sums.with_columns(less_ns=_usual().over("component") - _col("late_ns"))
    is_much = (_col("less_ns") > 0) & (_col("less_ns") >= least_ns)
    is_far = (_col("far_ns") >= least_ns) & (_col("less_ns") >= _MOSTLY * _col("far_ns"))
    is_no_chance = (_col("less_ns") >= _col("chance_ns")) | is_far
    return sums.filter(is_much & is_no_chance).sort(DEVICE).select(_PLACE)


def late_by_far(rows: pl.DataFrame) -> pl.DataFrame:
    return _less(rows).filter("is_far").sort(*DEVICE).select(*_PLACE, "step")


def _less(rows: pl.DataFrame) -> pl.DataFrame:
    """With less_ns, how much less than most a place waits in a step, and whether that is far beyond what the
    place's steps differ by."""
    rows = rows.with_columns(less_ns=_usual().over(_STEP) - _col("late_ns"))
    apart = (_col("less_ns") - _col("less_ns").median().over(_PLACE)).abs()
    spread = _OF_NORMAL * apart.median().over(_PLACE)
    return rows.with_columns(is_far=_col("less_ns") > _FAR * spread)


def _usual() -> pl.Expr:
    """The median; of an even number the upper of the two in the middle: of two ranks the one that waits is usual."""
    return _col("late_ns").sort().get(pl.len() // 2)


def lost_to(rows: pl.DataFrame, some: pl.DataFrame) -> pl.DataFrame:
    """component, step, ns: what all the others waited for these places, beyond what these waited themselves."""
    step = ["step"] if "step" in some.columns else []
    rows = rows.join(some.select("component", *step).unique(), on=["component", *step], how="semi", nulls_equal=True)
    others = rows.join(some, on=[*DEVICE, *step], how="anti", nulls_equal=True)
    others = others.group_by(_STEP).agg(_col("late_ns").min())
    least = rows.group_by(_STEP).agg(least_ns=_col("late_ns").min())
    found = others.join(least, on=_STEP, nulls_equal=True)
    return found.select(*_STEP, ns=_col("late_ns") - _col("least_ns"))
