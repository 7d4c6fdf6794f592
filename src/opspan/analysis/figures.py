"""Computes the figures of a run for a comparison. They are small enough to be saved without the trace.

    figures(run, by="op", steps=None, process=None, is_part=False) -> Figures:
        .time: the kind of all times: device if any range has device time or if `by` is kernel, else cpu.
        .rows: a row for each name (or module, and so on): the columns KEYS[by], count and ns. The other columns use
            only ranges that began in a step, or kernels that were launched in a step: step (their ns divided by the
            number of steps), and usual, error and freedom (noise.py, over the steps of a process). usual and error are
            means over processes. The errors are not reduced by averaging, because processes that wait for each other
            are slow at the same time.
        .steps: the number of steps, figures of how long steps took until the work that they launched was done
            (`until_done`), and whether there are enough steps to tell changes from noise.
    several(run, ways, ...) -> Figures for each way to compare. Sums that several ways need are computed once.
    parts_of(run, by, steps) -> parts, which can be merged for any number of ranks; `together(parts, by)` computes the
        figures from them.
    step_figures(steps) -> StepFigures, as in .steps.

`run` must be complete (`Analysis.complete`). `steps` come from `until_done`, or from `iterations`. `process` is a pid,
if only that process counts. With `is_part`, the figures leave out ranges that began outside of steps, and kernels that
were launched outside of steps. ProfilerStep#N is one name for all N, because runs are recorded at different steps.
docs/analysis.md, "compare", has the rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from opspan.analysis.averages import OF_RANGES, OF_WORK, on_device
from opspan.analysis.iterations import iterations
from opspan.analysis.noise import Usual, usual
from opspan.analysis.parts import Part, Parts
from opspan.analysis.places import number_values, placed
from opspan.analysis.spans import PROCESS, length, within
from opspan.analysis.steps import PATTERN
from opspan.analysis.until_done import until_done
from opspan.errors import UsageError
from opspan.printable import listed
from opspan.row_numbers import ROW_NUMBER

if TYPE_CHECKING:
    from opspan.tables import Tables

_col = pl.col
# The columns that identify a row, for each way to compare.
KEYS = {
    name: OF_RANGES[kind] for name, kind in (("op", "name"), *((kind, kind) for kind in ("shape", "module", "phase")))
}
KEYS |= {"kernel": OF_WORK["kernel"], "place": ("name", "module", "place")}
LEAST = 3  # with fewer steps of a process, the noise is unknown
_USUAL = dict.fromkeys(Usual._fields, pl.Float64)
_OF_TIMES = ("median", "usual", "error")  # these are means over processes, weighted by the number of their steps
_AT_ONCE = 1 << 20  # this many durations are processed together; more would take more memory, but not be faster


class StepFigures(NamedTuple):
    """The number of steps, and figures of how long a step took until its work was done."""

    number: int
    least: int  # the smallest number of steps that a process has
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
    steps: StepFigures


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
    keys, steps = list(KEYS[by]), _step_figures(parts)
    rows = parts["rows"].rows
    times = rows["time"].to_list()
    time = "device" if "device" in times or by == "kernel" else "cpu"
    more = ["position"] if by == "place" else []
    is_of_several = len(set(times)) > 1
    if by == "place":
        rows = _on_the_same_steps(rows, parts["typical"].rows, steps)
        is_of_several |= rows["is_whole"].n_unique() > 1
    if is_of_several:
        # Ranks whose times are not of the kind `time` get 0 as times.
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
        # If there are no steps, the sum is 0, but the mean is unknown.
        **{name: pl.when(_col("times") > 0).then(_col(name) / _col("times")) for name in ("usual", "error")},
        freedom="freedom",
    )
    return Figures(by, time, rows, steps)


def step_figures(steps: pl.DataFrame) -> StepFigures:
    return _step_figures(_parts_of_steps(steps))


def _on_the_same_steps(rows: pl.DataFrame, typical: pl.DataFrame, steps: StepFigures) -> pl.DataFrame:
    """Removes the places of ranks without steps, if other ranks have steps. Keeps positions only for the rank that has
    the typical step (places.py)."""
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
    totals = (_col("freedom").min(), _col("usual", "error", "times").sum(), _col("ns").sum().alias("step_ns"))
    of_keys = sums.groups.with_columns(weighted).group_by("key").agg(totals)
    rows = sums.whole.join(of_keys, on="key", how="left").join(names, on="key")
    numbers = ("count", "ns", "step_ns", "usual", "error", "freedom", "times")
    parts = {"rows": Part(rows.select(*key, *numbers), key, {"freedom": "least"})}
    if by == "place":
        # If there are no steps, places are counted in the whole run. `is_whole` marks these rows, because their places
        # are removed later if other ranks have steps.
        is_whole = pl.lit(not steps.height).alias("is_whole")
        rank = pl.lit(sums.typical, dtype=pl.Int32).alias("rank")
        rows = rows.select(*key, is_whole, *numbers, "position", pl.when(_col("position").is_not_null()).then(rank))
        rules = {"position": "first", "rank": "first", "freedom": "least"}
        parts["rows"] = Part(rows, (*key, "is_whole"), rules)
        parts["typical"] = Part(pl.select(is_whole, rank), ("is_whole",), {"rank": "first"})
    return parts


def _parts_of_steps(steps: pl.DataFrame) -> Parts:
    of_process = steps.group_by(PROCESS, maintain_order=True).agg("took_ns", median=_col("took_ns").median())
    rows = [
        {"median": median, **_usual_of(took)} | {"times": len(took), "least": len(took)}
        for took, median in of_process.select("took_ns", "median").iter_rows()
    ]
    processes = pl.DataFrame(rows, {"median": pl.Float64, **_USUAL, "times": pl.Int64, "least": pl.Int64})
    sums = [(_col(name) * _col("times")).sum() for name in _OF_TIMES]
    total = processes.select(_col("times").sum(), _col("freedom", "least").min(), *sums)
    return {"steps": Part(total, (), {"least": "least", "freedom": "least"})}


def _usual_of(took: list[int]) -> dict[str, float]:
    return {name: float(values[0]) for name, values in usual(np.array([took], dtype=np.int64))._asdict().items()}


def _step_figures(parts: Parts) -> StepFigures:
    (row,) = parts["steps"].rows.to_dicts()
    number = row["times"]
    if not number:
        return StepFigures(0, 0, 0.0, 0.0, 0.0, 0.0)
    means = {name: row[name] / number for name in _OF_TIMES}
    return StepFigures(number, row["least"], freedom=row["freedom"], **means)


class _Sums(NamedTuple):
    """The sums of a run for one way to compare. The column `key` is a row number of `names`."""

    names: pl.DataFrame
    # A row for each key, with sums over the run: key, count, ns. If rows are grouped by place, it also has the place's
    # position in the typical step.
    whole: pl.DataFrame
    # A row for each key and process: key, times (number of steps), ns (sum over these steps), and the columns of Usual.
    groups: pl.DataFrame
    typical: int | None  # the rank that has the typical step (places.py)


def _several(
    run: Tables, ways: Sequence[str], steps: pl.DataFrame, process: int | None, time: str, *, is_part: bool
) -> Iterator[tuple[str, _Sums]]:
    # Ways that sum the same rows are computed together.
    for together in ([by for by in ways if by not in ("kernel", "place")], ["kernel"], ["place"]):
        keys_of = {by: list(KEYS[by]) for by in together if by in ways}
        if not keys_of:
            continue
        parts = _kernels(run) if "kernel" in keys_of else _ranges(run, _keys(keys_of), time)
        parts = _of_process(parts, process)
        if process is not None and not (parts.height or steps.height):
            pids = run.ranges["pid"].unique().drop_nulls().sort().to_list()
            expected = f"one of {listed(pids)}" if pids else "none: the trace says no process"
            raise UsageError(f"there is nothing of process {process}; expected {expected}")
        if is_part:
            parts = parts[within(parts, "start_ns", steps, PROCESS)["row"].unique().sort()]
        if "place" in keys_of:
            parts = placed(parts, steps, [rank.rank for rank in run.ranks])
        yield from _sums(parts, keys_of, steps)


def _keys(keys_of: dict[str, list[str]]) -> list[str]:
    return list(dict.fromkeys(key for keys in keys_of.values() for key in keys))


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
    """Returns the kernels, each with the time of its launch as `start_ns`: a kernel counts in the step that launched
    it, although it may run in the next step."""
    work = on_device(trace.work)
    launched = trace.calls["start_ns"].gather(work["call"])
    return work.select(*KEYS["kernel"], *PROCESS, ns=length(), start_ns=pl.coalesce(launched, "start_ns"))


def _sums(parts: pl.DataFrame, keys_of: dict[str, list[str]], steps: pl.DataFrame) -> Iterator[tuple[str, _Sums]]:
    """Yields each way to compare, and its sums. `keys_of` has the key columns of each way."""
    # the position is equal for all rows of a place, or null
    more = ("position",) if "position" in parts.columns else ()
    typical = parts.filter(_col("position").is_not_null()).select(_col("rank").max()).item() if more else None
    names, which = number_values(parts, _keys(keys_of))
    parts = parts.select(*more, *PROCESS, "start_ns", "ns", key=which)
    totals = parts.group_by("key").agg(
        *(_col(name).max() for name in more), count=pl.len().cast(pl.Int64), ns=_col("ns").sum()
    )
    pairs = within(parts, "start_ns", steps, PROCESS)
    inside = pl.DataFrame(
        {name: parts[name].gather(pairs["row"]) for name in ("key", "ns")} | {"stretch": pairs["stretch"]}
    )
    inside = _of_steps(inside)
    for by, keys in keys_of.items():
        if keys == names.columns:
            own_names, own_whole, own_inside = names, totals, inside
        else:
            own_names, number = number_values(names, keys)
            own_whole, own_inside = (
                one.with_columns(number.gather(one["key"]).alias("key")) for one in (totals, inside)
            )
            own_whole = own_whole.group_by("key").agg(_col("count", "ns").sum())
            own_inside = _of_steps(own_inside)
        yield by, _Sums(own_names, own_whole, _in_steps(own_inside, steps), typical)


def _of_steps(inside: pl.DataFrame) -> pl.DataFrame:
    """Returns the time of each key in each step in which it occurs. The columns are key, stretch (the row of the step)
    and ns."""
    code = _col("key").cast(pl.UInt64) * 2**32 + _col("stretch")
    sums = inside.group_by(code.alias("code")).agg(_col("ns").sum())
    return sums.select(
        "ns", key=(_col("code") // 2**32).cast(ROW_NUMBER), stretch=(_col("code") % 2**32).cast(ROW_NUMBER)
    )


def _in_steps(sums: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Returns `_Sums.groups`: figures of the times of each key over all steps of a process. The time is 0 in a step
    without the key. `sums` come from `_of_steps`."""
    # For each step: its position among the steps of its process (`nth`), and how many steps the process has (`many`).
    numbers = steps.select(process=pl.struct(PROCESS).rank("dense").cast(ROW_NUMBER))
    numbers = numbers.with_columns(
        nth=pl.int_range(pl.len()).over("process"), many=pl.len().cast(pl.Int64).over("process")
    )
    sums = sums.with_columns(numbers[name].gather(sums["stretch"]) for name in numbers.columns)
    schema = {"key": ROW_NUMBER, "ns": pl.Int64, **_USUAL, "times": pl.Int64}
    groups = [pl.DataFrame(schema=schema)]
    for (_, many), rows in sums.partition_by("process", "many", as_dict=True, include_key=False).items():
        keys = rows["key"].unique().sort()
        at = (keys.search_sorted(rows["key"]).to_numpy(), rows["nth"].to_numpy())
        times = np.zeros((len(keys), many), dtype=np.int64)
        times[at] = rows["ns"].to_numpy()
        height = max(_AT_ONCE // many, 1)
        parts = [usual(times[first : first + height]) for first in range(0, len(keys), height)]
        columns = {name: np.concatenate(values) for name, *values in zip(Usual._fields, *parts, strict=True)}
        groups.append(pl.DataFrame({"key": keys, "ns": times.sum(axis=1), **columns, "times": many}, schema))
    return pl.concat(groups)
