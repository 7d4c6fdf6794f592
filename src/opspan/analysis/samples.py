"""Finds what the host was doing when its processors were sampled.

    places(trace, gaps) -> for each row of the table samples:
        range: row of the innermost range that was open on the sample's thread.
        call: row of the innermost call that was open on the sample's thread.
        is_idle: whether a device of the sample's process had nothing to do; null if the process used no device, and
            for samples before and after everything else that was recorded of the process.
    inside(trace, places, kind, name) -> for each sample, whether it is inside the op, module or range with this name.
    by_function(samples), by_library(samples) -> function, library, event, samples, weight, total_samples, total_weight:
        sums over the samples in which the function (library) was the innermost one and, as total, in which it was
        anywhere in the stack. A function that is in a stack several times counts once.
    functions_of(stacks) -> a row for each function of each stack.
    counted_event(counts) -> the event whose samples are counted.
    is_short() -> whether a sample has only its innermost functions.

A weight is added only to weights of the same `event`, because events count different things.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

from opspan.analysis.busy import whole_times
from opspan.analysis.functions import spans_of
from opspan.analysis.hardware_events import time_event
from opspan.analysis.nest import innermost, nearest
from opspan.analysis.spans import PROCESS, distinct, union, within
from opspan.tables.names import matching, names_of

if TYPE_CHECKING:
    from opspan.tables import Tables

SEPARATOR = ";"  # stands between the functions of a stack, and between their libraries
UNRESOLVED = "(unresolved)"  # the name of all functions of a library whose names the tool did not find
BROKEN = "[Broken backtraces]"  # nsys writes it in place of the rest of a stack
SHORT = "only their innermost functions, because the tool did not record the whole stack, or could not"
KINDS = ("op", "module", "range")
_ADDRESS = r"^0x[0-9a-f]+$|^\[unknown\]$|^\?$"
_NUMBERS = ("samples", "weight", "total_samples", "total_weight")
_col = pl.col


def places(trace: Tables, gaps: pl.DataFrame) -> pl.DataFrame:
    samples = trace.samples
    points = samples.select("rank", "pid", "tid", "time_ns")
    return pl.DataFrame(
        [
            innermost(trace.ranges, points).alias("range"),
            innermost(spans_of(trace.calls, trace.ranges), points).alias("call"),
            _is_idle(samples, trace, gaps),
        ]
    )


def _is_idle(samples: pl.DataFrame, trace: Tables, gaps: pl.DataFrame) -> pl.Series:
    used = distinct(trace.work.filter(_col("device_id").is_not_null()), PROCESS)
    wholes = whole_times(trace).join(used, on=PROCESS, how="semi", nulls_equal=True)
    flags = pl.Series([None], dtype=pl.Boolean).new_from_index(0, samples.height)
    for spans, flag in ((wholes, False), (gaps, True)):
        spans = union(spans.select(*PROCESS, "start_ns", "end_ns"), PROCESS)
        flags = flags.scatter(within(samples, "time_ns", spans, PROCESS)["row"], flag)
    return flags.alias("is_idle")


def inside(trace: Tables, places: pl.DataFrame, kind: str, name: str) -> pl.Series:
    ranges = trace.ranges
    if kind == "module":
        modules = ranges["module"].unique().drop_nulls().cast(pl.String)
        named = modules.filter(modules.is_in(matching(modules, name)) | modules.str.starts_with(f"{name}."))
        return ranges["module"].is_in(named.cast(pl.Categorical).implode()).gather(places["range"]).fill_null(False)
    is_named = ranges["name"].is_in(pl.Series(matching(names_of(ranges), name)).cast(pl.Categorical).implode())
    if kind == "op":
        is_named &= ranges["kind"].is_in(["op", "backward"])
    return nearest(ranges, is_named).gather(places["range"]).is_not_null()


def by_function(samples: pl.DataFrame) -> pl.DataFrame:
    return _sums(samples, ("function", "library"))


def by_library(samples: pl.DataFrame) -> pl.DataFrame:
    return _sums(samples, ("library",))


def _sums(samples: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    frames = _frames(samples)
    of_stack = ("number", "event")
    own = frames.group_by(of_stack, maintain_order=True).last().group_by(*key, "event", maintain_order=True)
    every = frames.unique([*of_stack, *key], maintain_order=True).group_by(*key, "event", maintain_order=True)
    totals = every.agg(total_samples=_col("samples").sum(), total_weight=_col("weight").sum())
    rows = totals.join(
        own.agg(_col("samples", "weight").sum()),
        on=[*key, "event"],
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )
    return rows.select(*key, "event", *(_col(name).fill_null(0) for name in _NUMBERS))


def counted_event(counts: pl.DataFrame) -> str | None:
    """Returns the event whose samples are counted: the one that measures time or, without such an event, the one with
    most samples. Null is the event of tools that do not name theirs. `counts` has a row for each event: event, samples.
    """
    event = time_event(counts["event"].to_list())
    if event is None and counts.height and not counts["event"].has_nulls():
        event = counts.sort("samples", descending=True, maintain_order=True)["event"][0]
    return event


def is_short() -> pl.Expr:
    stack = _col("stack").cast(pl.String)
    return stack.str.contains(BROKEN, literal=True) | ~stack.str.contains(SEPARATOR, literal=True)


def _frames(samples: pl.DataFrame) -> pl.DataFrame:
    """Returns a row for each function of each distinct stack, the outermost first: number (of the stack), event,
    function, library, and the samples and weight of the stack."""
    stacks = samples.group_by("stack", "libraries", "event", maintain_order=True).agg(
        samples=pl.len().cast(pl.Int64), weight=_col("weight").fill_null(0).sum()
    )
    frames = functions_of(stacks.with_row_index("number"))
    return frames.filter(_col("function").fill_null("") != BROKEN)


def functions_of(stacks: pl.DataFrame) -> pl.DataFrame:
    """Returns a row for each function of each stack, the outermost first. The columns function and library replace
    stack and libraries. The row of an unknown stack has no function."""
    texts = stacks.with_columns(function=_parts("stack"), library=_parts("libraries")).drop("stack", "libraries")
    # Files that were damaged may have fewer libraries than functions.
    is_paired = _col("function").list.len() == _col("library").list.len()
    library = pl.when(is_paired).then("library").otherwise(_col("function").list.eval(pl.lit(None, dtype=pl.String)))
    frames = texts.with_columns(library=library).explode("function", "library")
    return frames.with_columns(
        function=pl.when(_col("function").str.contains(_ADDRESS)).then(pl.lit(UNRESOLVED)).otherwise("function"),
        library=_col("library").str.split("/").list.last(),
    )


def _parts(column: str) -> pl.Expr:
    return _col(column).cast(pl.String).str.split(SEPARATOR)
