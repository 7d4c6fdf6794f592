"""Chooses the samples of processors that rules look at, and reads their stacks.

samples_of(run) -> the samples in the run's time, of the event that measures time.
in_time(run, samples, is_late) -> those of the samples that are in the run's time; with `is_late` not in the first step.
shares(samples, chosen, by) -> the part of the samples' weight that the chosen ones have.
with_functions(samples, of_stack) -> the samples whose stack has a function that `of_stack` returns, as `function`.
most_executed(samples) -> the names of the functions that processors were executing in most of the samples.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import polars as pl

from opspan.analysis.busy import whole_times
from opspan.analysis.samples import FEW, by_function, of_time
from opspan.analysis.spans import PROCESS, look_up
from opspan.findings.run import Run
from opspan.tables.schema import STACK_SEPARATOR

NAMELESS = re.compile(r"0x[0-9a-f]+|func@0x[0-9a-f]+|\[unknown\]|\?|")  # how tools write functions without a name
UNNAMED = "functions without a name"
_MOST = 3
Frame = tuple[str, str]  # a function, and the file name of its library, which is empty if it is unknown
_col = pl.col


def samples_of(run: Run) -> pl.DataFrame:
    """Returns the samples in steps. For a process without steps, returns the samples from the first work of its devices
    on or, without devices, between the begin of its first range or call and the end of its last one. If no event of the
    file measures time, there are none."""
    return run.memo("samples", lambda: [in_time(run, of_time(run.analysis.tables.samples))])[0]


def in_time(run: Run, samples: pl.DataFrame, *, is_late: bool = False) -> pl.DataFrame:
    samples = samples.filter(_col("weight") > 0)
    if not samples.height:
        return samples
    times = whole_times(run.trace).select(*PROCESS, from_ns="start_ns", until_ns="end_ns")
    samples = look_up(samples, times, PROCESS)
    is_inside = (_col("from_ns") <= _col("time_ns")) & (_col("time_ns") <= _col("until_ns"))
    samples = samples.filter(is_inside.fill_null(value=True)).drop("from_ns", "until_ns")
    return run.rows_in_usual_steps(samples, "time_ns", is_late=is_late, odd=True)


def with_functions(samples: pl.DataFrame, of_stack: Callable[[Sequence[Frame]], str | None]) -> pl.DataFrame:
    """Calls `of_stack` once for each distinct stack, with its frames, the outermost first."""
    stacks = samples.select("stack", "libraries").unique(maintain_order=True)
    names = [of_stack(_frames(*row)) for row in stacks.cast(pl.String).iter_rows()]
    stacks = stacks.with_columns(function=pl.Series(names, dtype=pl.String)).drop_nulls("function")
    return samples.join(stacks, on=["stack", "libraries"], nulls_equal=True, maintain_order="left")


def shares(samples: pl.DataFrame, chosen: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Returns, for each process or thread with chosen samples, the largest share first: `share` (the chosen part of the
    weight), `named_share` (without functions that have no name), `samples`, `all_samples`, and the `function` with
    the largest weight."""
    weight = _col("weight").cast(pl.Float64)
    is_named = ~_col("function").str.starts_with(UNNAMED)
    totals = samples.group_by(by).agg(all_samples=pl.len(), total=weight.sum())
    functions = chosen.group_by(*by, "function").agg(weight.sum(), samples=pl.len())
    functions = functions.sort("weight", "function", descending=[True, False])
    sums = functions.group_by(by, maintain_order=True).agg(
        _col("function").first(), _col("samples", "weight").sum(), named=weight.filter(is_named).sum()
    )
    rows = sums.join(totals, on=by, nulls_equal=True, maintain_order="left")
    rows = rows.with_columns(share=_col("weight") / _col("total"), named_share=_col("named") / _col("total"))
    return rows.sort("share", *by, descending=[True, *(False for _ in by)])


def most_executed(samples: pl.DataFrame) -> tuple[str, ...]:
    """Returns at most three functions that were the innermost ones of at least FEW samples, the most executed first.
    Leaves out functions without a name."""
    sums = by_function(samples).filter(_col("samples") >= FEW).sort("weight", descending=True, maintain_order=True)
    pairs = sums.select("function", "library").fill_null("").iter_rows()
    return tuple(frame_text(*pair) for pair in pairs if pair[0] and not pair[0].startswith("("))[:_MOST]


def frame_text(function: str, library: str) -> str:
    return f"{function} ({library})" if library else function


def _frames(stack: str | None, libraries: str | None) -> list[Frame]:
    functions = stack.split(STACK_SEPARATOR) if stack else []
    paths = libraries.split(STACK_SEPARATOR) if libraries else []
    if len(paths) != len(functions):  # files that were damaged may have fewer libraries
        paths = [""] * len(functions)
    return [(function, path.rpartition("/")[2]) for function, path in zip(functions, paths, strict=True)]
