"""A rule about kernels that get slower in the course of a program."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from opspan.analysis.spans import DEVICE, number_groups
from opspan.findings.rule import Evidence, Rule, place_of
from opspan.findings.run import Run, top
from opspan.findings.saved import reduce, saved_ns

_col = pl.col
_SAME = (*DEVICE, "name", "full_name", "grid_x", "grid_y", "grid_z", "sizes")
_LEAST = 32  # least number of runs of a kernel; fewer runs do not show a change
_PARTS = 8  # a kernel's runs, in order of time, are divided into this many equal parts
_LONGER = 1.1  # least factor by which a kernel got slower; smaller changes have many reasons
# Time is lost in parts (see _PARTS) that are slower than the kernel's quickest part. This is the least ratio of the
# time lost after the quickest part to the time lost before it. If only chance makes parts slow, the ratio is about 1.
_MIRRORED = 3
_CHANCE = 2.33  # limit in standard deviations: with values in random order, chance exceeds it once in a hundred times
_MOST = 0.8  # share of the compared kernels' time: if at least this share is slower, the whole device got slower


def _look(run: Run, threshold: float) -> Iterator[Evidence]:
    rows = _comparable(run)
    if not rows.height:
        return
    rows = _compare(rows)
    before, later = (rows.filter(_col("more_ns").is_not_null(), is_later=is_later) for is_later in (False, True))
    if not later.height or later["more_ns"].sum() < _MIRRORED * before["more_ns"].sum():
        return
    if not _is_in_order(rows.join(later.select("of").unique(), on="of", how="semi", maintain_order="left")):
        return
    compared_ns = int(rows["ns"].sum())
    slower_ns = int(rows.join(later.select("of"), on="of", how="semi")["ns"].sum())
    is_whole = slower_ns >= _MOST * compared_ns
    if is_whole:
        later = _all_slower(run, _levels(rows))
    at_stake = saved_ns(run, reduce(run, later, "more_ns"), threshold)
    if not run.matters(at_stake, threshold):
        return
    kernel = top(later, "more_ns", "name")[0]
    first = later.filter(_col("name").cast(pl.String) == kernel).sort("start_ns").row(0, named=True)
    begin_ns, end_ns = rows.select(_col("start_ns").min(), _col("end_ns").max()).row(0)
    since = (first["start_ns"] - begin_ns) / (end_ns - begin_ns)
    ns = int(later["ns"].sum())
    yield Evidence(
        at_stake,
        {
            "more_ns": run.per_process(later, "more_ns"),
            "times": round(ns / max(ns - int(later["more_ns"].sum()), 1), 2),
            "kernels": later.height,
            "slower_share": slower_ns / compared_ns,
            "since_share": since,
        },
        {
            "kernel": kernel,
            "since": str(first["step"]) if first["step"] is not None else f"{since:.0%} of the run",
            "which": "the device as a whole" if is_whole else "some kernels alone",
        },
        confidence="possible",  # the trace shows no clocks, heat, other programs or data
        **place_of(later, "more_ns"),
    )


def _comparable(run: Run) -> pl.DataFrame:
    """Returns the kernels that ran alone, in order of time, with `of`, a number that all runs of the same kernel share.
    Runs are of the same kernel if they have the same name and grid, and their ops have the same sizes. If sizes are
    unknown, the n-th run of a name and grid in a step is compared with the n-th run in other steps, if these steps have
    the same number of runs."""
    if not run.steps.height and not run.trace.ranges["sizes"].count():
        return run.all_kernels.clear()
    columns = (*_SAME[:-1], "start_ns", "end_ns", "ns", "what", "kind", "work", "range", "step", "op", "module")
    rows = run.all_kernels.select(columns).filter(_col("what").is_in(["computing", "communicating"]))
    rows = rows.sort(*DEVICE, "start_ns")
    is_after = (_col("start_ns") >= _col("end_ns").cum_max().shift(1).over(DEVICE)).fill_null(value=True)
    is_alone = is_after & (_col("start_ns").shift(-1).over(DEVICE) >= _col("end_ns")).fill_null(value=True)
    rows = rows.filter(is_alone, _col("what") == "computing", _col("kind") == "kernel", _col("name").is_not_null())
    rows = rows.with_columns(sizes=run.trace.ranges["sizes"].gather(rows["range"]))
    rows = rows.filter(_col("sizes").is_not_null() | _col("step").is_not_null())
    often = rows.group_by(_SAME).len().filter(_col("len") >= _LEAST)
    if not often.height:
        return rows.clear()
    rows = rows.join(often.drop("len").with_row_index("same"), on=_SAME, nulls_equal=True, maintain_order="left")
    in_step = ("same", "step")
    place, count = pl.int_range(pl.len()).over(in_step), pl.len().over(in_step)
    is_known = _col("sizes").is_not_null()
    rows = rows.with_columns(place=pl.when(~is_known).then(place), count=pl.when(~is_known).then(count))
    (rows,) = number_groups(("same", "place", "count"), rows)
    return rows.filter(pl.len().over("of") >= _LEAST).sort("start_ns")


def _compare(rows: pl.DataFrame) -> pl.DataFrame:
    """Divides the runs of each kernel into eight parts, in order of time, and adds `more_ns` and `is_later`. `more_ns`
    is how much longer a run took than a usual run in the quickest part; null unless the run's part is clearly slower
    than the quickest part. `is_later` says whether the run's part came after the quickest part."""
    part = pl.int_range(pl.len()) * _PARTS // pl.len()
    rows = rows.with_columns(part=part.over("of").cast(pl.Int8))
    ns = _col("ns")
    parts = rows.group_by("of", "part").agg(low_ns=ns.quantile(0.25), usual_ns=ns.median(), high_ns=ns.quantile(0.75))
    quick = parts.sort("of", "usual_ns", "part").unique("of", keep="first", maintain_order=True)
    quick = quick.select("of", quick="part", quick_ns="usual_ns", quick_high_ns="high_ns")
    is_slow = (_col("low_ns") > _col("quick_high_ns")) & (_col("usual_ns") >= _LONGER * _col("quick_ns"))
    parts = parts.join(quick, on="of").select("of", "part", "quick", "quick_ns", is_slow=is_slow)
    rows = rows.join(parts, on=["of", "part"], maintain_order="left")
    more_ns = pl.when("is_slow").then((ns - _col("quick_ns")).clip(0))
    return rows.with_columns(more_ns=more_ns.cast(pl.Int64), is_later=_col("part") > _col("quick"))


def _levels(rows: pl.DataFrame) -> pl.DataFrame:
    """Returns *DEVICE, start_ns, level, in order of time. `level` is how long kernels took in a step, as a multiple of
    their usual time. With few steps, returns a level for each of the eight parts of the runs (_compare) instead."""
    rows = rows.with_columns(level=_col("ns") / _col("ns").median().over("of"))
    is_few = rows["step"].n_unique() < _PARTS or rows["step"].has_nulls()
    key = "part" if is_few else "step"
    levels = rows.group_by(*DEVICE, key).agg(_col("level").median(), _col("start_ns").min())
    return levels.sort("start_ns", *DEVICE)


def _is_in_order(rows: pl.DataFrame) -> bool:
    """Returns whether, on some device, each step takes about as long as the step before. If only the batches differ, a
    slow step is often followed by a quick one. Von Neumann's test compares the squared differences between neighbours
    with the squared differences from the mean."""
    count, level = _col("level").len(), _col("level")
    ratio = (level.diff() ** 2).sum() / ((level - level.mean()) ** 2).sum()
    most = 2 * (1 - _CHANCE * ((count - 2) / (count**2 - 1)).sqrt())
    devices = _levels(rows).group_by(DEVICE, maintain_order=True).agg(is_in_order=ratio <= most)
    return bool(devices["is_in_order"].any())


def _all_slower(run: Run, levels: pl.DataFrame) -> pl.DataFrame:
    """Returns the kernels after the quickest step of their device, with `more_ns`: how much longer they took, estimated
    from the level of their step. Includes kernels that _comparable leaves out."""
    quickest = _col("level").arg_min()
    quick = levels.group_by(DEVICE).agg(since_ns=_col("start_ns").get(quickest), least=_col("level").min())
    rows = run.computing.filter(_col("kind") == "kernel").sort("start_ns")
    numbers, of_levels, of_quick = number_groups(DEVICE, rows, levels, quick)
    rows = numbers.join_asof(
        of_levels.select("of", "start_ns", "level"), on="start_ns", by="of", check_sortedness=False
    )
    rows = rows.join(of_quick.select("of", "since_ns", "least"), on="of", maintain_order="left")
    rows = rows.filter(_col("start_ns") >= _col("since_ns"), _col("level") > _col("least"))
    return rows.with_columns(more_ns=(_col("ns") * (1 - _col("least") / _col("level"))).round().cast(pl.Int64))


RULES = (
    Rule(
        id="slower-kernels",
        title="Kernels that get slower",
        looks_at="how much longer kernels took than the quickest eighth of the runs of the same kernel before, with "
        "the same grid and sizes (without sizes, at the same place of each step), where it ran alone 32 times or more, "
        "if steps that follow each other are alike: else batches differ. Where most kernels do so, it is the device, "
        "and each kernel is taken to be as slow as its step is beside the quickest step before. At stake is how much "
        "sooner the run would have ended. Steps that are outliers are looked at, too: a change that stays makes many "
        "of them",
        threshold=0.03,
        because="three hundredths of the time: clocks of a device that is well differ by less",
        sentence="{kernels} kernels took {more_ns} longer ({times} times as long) than the same kernels before, from "
        "{since} on, most in {kernel}: {which} got slower",
        remedy="Watch clocks, temperature and power meanwhile (nvidia-smi dmon, amd-smi monitor): a device that is "
        "hot, or at its limit of power, lowers its clocks. Where some kernels alone get slower, look for what grows "
        "(caches, sequences) and for other programs on the device",
        command="opspan table FILE --by kernel",
        read="https://docs.nvidia.com/deploy/nvidia-smi/index.html",
        look=_look,
    ),
)
