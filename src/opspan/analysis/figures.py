"""What of a run is compared with another one: a row for each name, small enough to be kept in place of the trace.

    figures(run, by="op", steps=None, process=None, is_part=False) -> Figures
        .time    device or cpu: which time the others are. Of devices where ranges have any
        .rows    *KEYS[by], count, ns, and of what began in a step: step (ns, divided by the number of steps), median
                 and deviation (over the steps of a process; several processes count as their mean)
        .steps   how many there were, how long they took, and whether they tell the noise
    lasted(steps) -> Lasted, the last of these

`run` is complete (`Analysed.complete`); `steps`: what `iterations` gives; `process`: its pid, if only that one counts;
`is_part`: what did not begin in a step does not count.
ProfilerStep#N are one name, for their numbers say nothing. Rules: docs/analysis.md, compare.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from opspan.analysis.averages import on_device
from opspan.analysis.iterations import iterations
from opspan.analysis.places import placed
from opspan.analysis.spans import PROCESS, length, within
from opspan.analysis.steps import PATTERN
from opspan.analysis.sums import OF_RANGES, OF_WORK
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
_NUMBER = pl.int_range(pl.len(), dtype=pl.UInt32)


class Lasted(NamedTuple):
    """How many steps there are, and how many the process has that has fewest; how long one took: the median, and the
    usual deviation from it."""

    number: int
    least: int
    median: float
    deviation: float

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
    if by not in KEYS:
        raise UsageError(f"cannot compare by {by!r}; expected one of {', '.join(KEYS)}")
    keys = list(KEYS[by])
    steps = _of_process(iterations(run.ranges) if steps is None else steps, process)
    time = "device" if by == "kernel" or _of_process(run.ranges, process)["self_device_ns"].sum() else "cpu"
    parts = _of_process(_kernels(run) if by == "kernel" else _ranges(run, keys, time), process)
    if process is not None and not (parts.height or steps.height):
        raise UsageError(f"there is nothing of process {process}; expected {_processes(run)}")
    if is_part:
        parts = parts[within(parts, "start_ns", steps, PROCESS)["row"].unique().sort()]
    if by == "place":
        parts = placed(parts, steps)
    return Figures(by, time, _sums(parts, keys, steps), lasted(steps))


def lasted(steps: pl.DataFrame) -> Lasted:
    if not steps.height:
        return Lasted(0, 0, 0.0, 0.0)
    least = steps.group_by(PROCESS).len().sort("len")["len"][0]
    median, deviation = _typical(steps.select(*PROCESS, ns=length()), []).row(0)
    return Lasted(steps.height, least, median, deviation)


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


def _sums(parts: pl.DataFrame, keys: list[str], steps: pl.DataFrame) -> pl.DataFrame:
    more = ("position",) if "position" in parts.columns else ()  # each of a place's is the same, or null
    found = parts.group_by(keys).agg(
        *(_col(name).max() for name in more), count=pl.len().cast(pl.Int64), ns=_col("ns").sum()
    )
    pairs = within(parts, "start_ns", steps, PROCESS)
    placed = parts.select(*keys, *PROCESS, "ns")[pairs["row"]].with_columns(pairs["stretch"])
    of_steps = placed.group_by(*keys, *PROCESS, "stretch").agg(_col("ns").sum())
    # A step in which a name is not there is one in which it took no time.
    every = of_steps.select(*keys, *PROCESS).unique()
    every = every.join(steps.select(*PROCESS, stretch=_NUMBER), on=PROCESS, nulls_equal=True)
    every = every.join(of_steps, on=[*keys, *PROCESS, "stretch"], how="left", nulls_equal=True)
    every = every.with_columns(_col("ns").fill_null(0))
    share = (_col("ns").sum() / max(steps.height, 1)).round().cast(pl.Int64)
    typical = every.group_by(keys).agg(step=share)
    typical = typical.join(_typical(every, keys), on=keys, how="left", nulls_equal=True)
    found = found.join(typical, on=keys, how="left", nulls_equal=True)
    texts = (key for key in keys if key != "place")
    return found.with_columns(_col(name).cast(pl.String) for name in texts).select(
        *keys, *more, "count", "ns", "step", "median", "deviation"
    )


def _typical(times: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """The median of what each step took, and the usual deviation from it."""
    median = _col("ns").median().over(*keys, *PROCESS)
    off = times.with_columns(median=median).with_columns(off=(_col("ns") - _col("median")).abs())
    typical = (_col("median").mean(), _col("off").median().alias("deviation"))
    return off.group_by(keys).agg(typical) if keys else off.select(typical)
