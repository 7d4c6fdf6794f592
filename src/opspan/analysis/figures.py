"""What of a run is compared with another one: a row for each name, small enough to be kept in place of the trace.

    figures(run, by="op", steps=None, process=None, is_part=False) -> Figures
        .time    device or cpu: which time the others are. Of devices where ranges have any
        .rows    *KEYS[by], count, ns, and of what began in a step: step (ns, divided by the number of steps), and
                 usual, error and freedom (noise.py; over the steps of a process). Several processes count as their
                 mean, and their errors, too: they wait for each other, so their steps are late together
        .steps   how many there were, how long they took until what they launched was done (`until_done`), and whether
                 they tell the noise
    several(run, ways, ...) -> Figures for each way, what is the same for all of them worked out once
    parts_of(run, by, steps), together(parts, by) -> what figures are made of, and they, of any number of ranks
    lasted(steps) -> Lasted, the last of these

`run` is complete (`Analysis.complete`); `steps`: what `until_done` gives, or `iterations`; `process`: its pid, if only
that one counts; `is_part`: what did not begin in a step does not count.
ProfilerStep#N are one name, for their numbers say nothing. Rules: docs/analysis.md, compare.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from opspan.analysis.averages import on_device
from opspan.analysis.iterations import iterations
from opspan.analysis.noise import Usual, usual
from opspan.analysis.parts import Part, Parts
from opspan.analysis.places import numbered, placed
from opspan.analysis.spans import PROCESS, length, within
from opspan.analysis.steps import PATTERN
from opspan.analysis.sums import OF_RANGES, OF_WORK
from opspan.analysis.until_done import until_done
from opspan.errors import UsageError
from opspan.printable import listed

if TYPE_CHECKING:
    from opspan.tables import Tables

_col = pl.col
# What tells the rows apart.
KEYS = {
    name: OF_RANGES[kind] for name, kind in (("op", "name"), *((kind, kind) for kind in ("shape", "module", "phase")))
}
KEYS |= {"kernel": OF_WORK["kernel"], "place": ("name", "module", "place")}
LEAST = 3  # steps of a process that show how much they differ by themselves
_USUAL = dict.fromkeys(Usual._fields, pl.Float64)
_OF_TIMES = ("median", "usual", "error")  # of several processes each counts as often as it has steps
_AT_ONCE = 1 << 20  # times that are looked at together: more take memory, and no less time


class Lasted(NamedTuple):
    """How many steps there are, and how many the process has that has fewest; how long one took until it was done: the
    median, and what `usual` says of it."""

    number: int
    least: int
    median: float
    usual: float
    error: float
    freedom: float

    @property
    def tell_noise(self) -> bool:
        return self.least >= LEAST


class Figures(NamedTuple):
    by: str
    time: str
    rows: pl.DataFrame
    steps: Lasted


def figures(
    run: Tables,
    by: str = "op",
    steps: pl.DataFrame | None = None,
    process: int | None = None,
    *,
    is_part: bool = False,
) -> Figures:
    return several(run, [by], steps, process, is_part=is_part)[by]


def several(
    run: Tables,
    ways: Sequence[str],
    steps: pl.DataFrame | None = None,
    process: int | None = None,
    *,
    is_part: bool = False,
) -> dict[str, Figures]:
    return {by: together(parts, by) for by, parts in _parts(run, ways, steps, process, is_part=is_part)}


def parts_of(run: Tables, by: str, steps: pl.DataFrame | None = None, *, is_part: bool = False) -> Parts:
    ((_, parts),) = _parts(run, [by], steps, None, is_part=is_part)
    return parts


def together(parts: Parts, by: str) -> Figures:
    keys, steps = list(KEYS[by]), _lasted(parts)
    rows = parts["rows"].rows
    times = rows["time"].to_list()
    time = "device" if "device" in times or by == "kernel" else "cpu"
    more = ["position"] if by == "place" else []
    is_of_several = len(set(times)) > 1
    if by == "place":
        rows = _on_the_same_steps(rows, parts["typical"].rows, steps)
        is_of_several |= rows["is_whole"].n_unique() > 1
    if is_of_several:
        # Ranks without time of devices have none of each name.
        numbers = [_col(name) * (_col("time") == time) for name in ("ns", "step_ns", "usual", "error")]
        sums = ("count", "ns", "step_ns", "usual", "error", "times")
        most = (_col(name).max() for name in more)
        rows = rows.with_columns(numbers).group_by(keys).agg(*most, _col("freedom").min(), _col(sums).sum())
    rows = rows.select(
        *keys,
        *more,
        "count",
        "ns",
        step=(_col("step_ns") / max(steps.number, 1)).round().cast(pl.Int64),
        # Sums of nothing are 0.
        **{name: pl.when(_col("times") > 0).then(_col(name) / _col("times")) for name in ("usual", "error")},
        freedom="freedom",
    )
    return Figures(by, time, rows, steps)


def lasted(steps: pl.DataFrame) -> Lasted:
    return _lasted(_parts_of_steps(steps))


def _on_the_same_steps(rows: pl.DataFrame, typical: pl.DataFrame, steps: Lasted) -> pl.DataFrame:
    """A rank without steps, where others have some, is outside of steps; and one rank has the typical step."""
    counts = _col("is_whole") == (steps.number == 0)
    rank = pl.lit(next(iter(typical.filter(counts)["rank"]), None), dtype=pl.Int32)
    return rows.with_columns(
        place=pl.when(counts).then("place"),
        position=pl.when(counts, _col("rank") == rank).then("position"),
    )


def _parts(
    run: Tables, ways: Sequence[str], steps: pl.DataFrame | None, process: int | None, *, is_part: bool
) -> Iterator[tuple[str, Parts]]:
    for by in ways:
        if by not in KEYS:
            raise UsageError(f"cannot compare by {by!r}; expected one of {', '.join(KEYS)}")
    steps = iterations(run.ranges) if steps is None else steps
    if "took_ns" not in steps.columns:
        steps = until_done(steps, run.calls, run.work)
    steps = _of_process(steps, process).sort(*PROCESS, "start_ns")
    time = "device" if _of_process(run.ranges, process)["self_device_ns"].sum() else "cpu"
    of_steps = _parts_of_steps(steps)
    for by, sums in _several(run, ways, steps, process, time, is_part=is_part):
        yield by, {**_parts_of_sums(sums, by, "device" if by == "kernel" else time, steps), **of_steps}


def _parts_of_sums(sums: _Sums, by: str, time: str, steps: pl.DataFrame) -> Parts:
    texts = [name for name in KEYS[by] if name != "place"]
    names = sums.names.with_columns(_col(texts).cast(pl.String), time=pl.lit(time)).with_row_index("key")
    key = ("time", *KEYS[by])
    weighted = [_col(name) * _col("times") for name in ("usual", "error")]
    of_keys = (
        sums.groups.with_columns(weighted)
        .group_by("key")
        .agg(_col("freedom").min(), _col("ns").sum().alias("step_ns"), _col("usual", "error", "times").sum())
    )
    rows = sums.whole.join(of_keys, on="key", how="left").join(names, on="key")
    numbers = ("count", "ns", "step_ns", "usual", "error", "freedom", "times")
    found = {"rows": Part(rows.select(*key, *numbers), key, {"freedom": "least"})}
    if by == "place":
        # Without steps it is a place in the whole; who has steps as well is not known yet.
        is_whole = pl.lit(not steps.height).alias("is_whole")
        rank = pl.lit(sums.typical, dtype=pl.Int32).alias("rank")
        rows = rows.select(*key, is_whole, *numbers, "position", pl.when(_col("position").is_not_null()).then(rank))
        rules = {"position": "first", "rank": "first", "freedom": "least"}
        found["rows"] = Part(rows, (*key, "is_whole"), rules)
        found["typical"] = Part(pl.select(is_whole, rank), ("is_whole",), {"rank": "first"})
    return found


def _parts_of_steps(steps: pl.DataFrame) -> Parts:
    of_process = steps.group_by(PROCESS, maintain_order=True).agg("took_ns", median=_col("took_ns").median())
    rows = [
        {"median": median, **_of_one(took)} | {"times": len(took), "least": len(took)}
        for took, median in of_process.select("took_ns", "median").iter_rows()
    ]
    each = pl.DataFrame(rows, {"median": pl.Float64, **_USUAL, "times": pl.Int64, "least": pl.Int64})
    sums = [(_col(name) * _col("times")).sum() for name in _OF_TIMES]
    lasted = each.select(_col("times").sum(), _col("freedom", "least").min(), *sums)
    return {"steps": Part(lasted, (), {"least": "least", "freedom": "least"})}


def _of_one(took: list[int]) -> dict[str, float]:
    return {name: float(values[0]) for name, values in usual(np.array([took], dtype=np.int64))._asdict().items()}


def _lasted(parts: Parts) -> Lasted:
    (row,) = parts["steps"].rows.to_dicts()
    number = row["times"]
    if not number:
        return Lasted(0, 0, 0.0, 0.0, 0.0, 0.0)
    return Lasted(number, row["least"], freedom=row["freedom"], **{name: row[name] / number for name in _OF_TIMES})


class _Sums(NamedTuple):
    """`whole` and `groups` are by `key`, the number of a row of `names`."""

    names: pl.DataFrame
    whole: pl.DataFrame  # key, count, ns; of places their position in the typical step
    groups: pl.DataFrame  # of each process in which it is: key, times (how many steps), ns (of all of them), and usual
    typical: int | None  # the rank of which the typical step is


def _several(
    run: Tables, ways: Sequence[str], steps: pl.DataFrame, process: int | None, time: str, *, is_part: bool
) -> Iterator[tuple[str, _Sums]]:
    # Figures that are sums over the same rows are summed together.
    for together in ([by for by in ways if by not in ("kernel", "place")], ["kernel"], ["place"]):
        asked = {by: list(KEYS[by]) for by in together if by in ways}
        if not asked:
            continue
        of_kernels = "kernel" in asked
        parts = _kernels(run) if of_kernels else _ranges(run, _keys(asked), time)
        parts = _of_process(parts, process)
        if process is not None and not (parts.height or steps.height):
            raise UsageError(f"there is nothing of process {process}; expected {_processes(run)}")
        if is_part:
            parts = parts[within(parts, "start_ns", steps, PROCESS)["row"].unique().sort()]
        if "place" in asked:
            parts = placed(parts, steps, [rank.rank for rank in run.ranks])
        yield from _sums(parts, asked, steps)


def _keys(asked: dict[str, list[str]]) -> list[str]:
    return list(dict.fromkeys(key for keys in asked.values() for key in keys))


def _processes(run: Tables) -> str:
    pids = run.ranges["pid"].unique().drop_nulls().sort().to_list()
    return f"one of {listed(pids)}" if pids else "none: the trace says no process"


def _of_process(frame: pl.DataFrame, process: int | None) -> pl.DataFrame:
    return frame if process is None else frame.filter(_col("pid") == process)


def _ranges(trace: Tables, keys: list[str], time: str) -> pl.DataFrame:
    keys = [key for key in keys if key != "place"]
    is_mark = trace.ranges["is_mark"].fill_null(value=False)
    ns = "self_device_ns" if time == "device" else "self_ns"
    rows = trace.ranges.select(*keys, *PROCESS, "tid", "start_ns", ns=ns).filter(~is_mark)
    if "name" in keys:
        name = _col("name").cast(pl.String).str.replace(PATTERN, "ProfilerStep*")
        rows = rows.with_columns(name.cast(pl.Categorical))
    return rows


def _kernels(trace: Tables) -> pl.DataFrame:
    """A kernel is of the step that launched it: it may run in the next one."""
    work = on_device(trace.work)
    launched = trace.calls["start_ns"].gather(work["call"])
    return work.select(*KEYS["kernel"], *PROCESS, ns=length(), start_ns=pl.coalesce(launched, "start_ns"))


def _sums(parts: pl.DataFrame, asked: dict[str, list[str]], steps: pl.DataFrame) -> Iterator[tuple[str, _Sums]]:
    """For each way what its figures are made of. `asked`: the keys of each way."""
    more = ("position",) if "position" in parts.columns else ()  # each of a place's is the same, or null
    typical = parts.filter(_col("position").is_not_null()).select(_col("rank").max()).item() if more else None
    names, which = numbered(parts, _keys(asked))
    parts = parts.select(*more, *PROCESS, "start_ns", "ns", key=which)
    whole = parts.group_by("key").agg(
        *(_col(name).max() for name in more), count=pl.len().cast(pl.Int64), ns=_col("ns").sum()
    )
    pairs = within(parts, "start_ns", steps, PROCESS)
    inside = pl.DataFrame(
        {name: parts[name].gather(pairs["row"]) for name in ("key", "ns")} | {"stretch": pairs["stretch"]}
    )
    inside = _of_steps(inside)
    for by, keys in asked.items():
        if keys == names.columns:
            own_names, own_whole, own_inside = names, whole, inside
        else:
            own_names, number = numbered(names, keys)
            own_whole, own_inside = (
                one.with_columns(number.gather(one["key"]).alias("key")) for one in (whole, inside)
            )
            own_whole = own_whole.group_by("key").agg(_col("count", "ns").sum())
            own_inside = _of_steps(own_inside)
        yield by, _Sums(own_names, own_whole, _in_steps(own_inside, steps), typical)


def _of_steps(inside: pl.DataFrame) -> pl.DataFrame:
    """key, stretch, ns: what each key took in each step in which it was."""
    code = _col("key").cast(pl.UInt64) * 2**32 + _col("stretch")
    sums = inside.group_by(code.alias("code")).agg(_col("ns").sum())
    return sums.select(
        "ns", key=(_col("code") // 2**32).cast(pl.UInt32), stretch=(_col("code") % 2**32).cast(pl.UInt32)
    )


def _in_steps(sums: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """For each key of a process what it took in the steps of the process (`_Sums.groups`). A step in which it is not
    there is one in which it took no time. `sums`: of the steps in which it is."""
    # Where each step is among those of its process, and how many that has.
    of = steps.select(process=pl.struct(PROCESS).rank("dense").cast(pl.UInt32))
    of = of.with_columns(nth=pl.int_range(pl.len()).over("process"), many=pl.len().cast(pl.Int64).over("process"))
    sums = sums.with_columns(of[name].gather(sums["stretch"]) for name in of.columns)
    schema = {"key": pl.UInt32, "ns": pl.Int64, **_USUAL, "times": pl.Int64}
    found = [pl.DataFrame(schema=schema)]
    for (_, many), rows in sums.partition_by("process", "many", as_dict=True, include_key=False).items():
        keys = rows["key"].unique().sort()
        at = (keys.search_sorted(rows["key"]).to_numpy(), rows["nth"].to_numpy())
        times = np.zeros((len(keys), many), dtype=np.int64)
        times[at] = rows["ns"].to_numpy()
        each = max(_AT_ONCE // many, 1)
        parts = [usual(times[first : first + each]) for first in range(0, len(keys), each)]
        columns = {name: np.concatenate(values) for name, *values in zip(Usual._fields, *parts, strict=True)}
        found.append(pl.DataFrame({"key": keys, "ns": times.sum(axis=1), **columns, "times": many}, schema))
    return pl.concat(found)
