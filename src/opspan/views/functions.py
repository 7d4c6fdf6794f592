"""The functions that processors executed, as tools sampled them: `opspan functions`."""

from __future__ import annotations

import math
from dataclasses import replace

import polars as pl

from opspan.analysis import Analysis
from opspan.analysis.hardware_events import is_ns
from opspan.analysis.lanes import in_lanes
from opspan.analysis.parts import Part, Parts
from opspan.analysis.processors import width
from opspan.analysis.provenance import matched
from opspan.analysis.samples import (
    FEW,
    SHORT,
    counted_event,
    distinct_stacks,
    figures_of,
    inside,
    is_of,
    is_short,
    left_out,
    ranges_of,
    sums_of,
)
from opspan.analysis.source_lines import eager_lines
from opspan.printable import plural, printable
from opspan.questions import Options, Question
from opspan.views import fields, of_ranges
from opspan.views.answer import Answer
from opspan.views.fields import Field, with_values

_SHOWN = "the samples that are counted here"
FUNCTION = replace(fields.FUNCTION, none="(unknown)")
LIBRARY = Field("library", "Library", "name", none="(unknown)")
_OF_STACKS = ("function", "library")
_IS_LEAF, _IS_IN = "it was the innermost one of the stack", "it was in the stack, at any depth"
SHARES = (
    Field("share", "Self", "share", f"Of {_SHOWN}: {_IS_LEAF}", total_title=_SHOWN, none="few"),
    Field("total_share", "Total", "share", f"Of {_SHOWN}: {_IS_IN}", total_title=_SHOWN, none="few"),
)
TIMES = (
    Field("cpu_ns", "Self CPU time", "ns", f"Of the samples in which {_IS_LEAF}", rank=2),
    Field("total_cpu_ns", "CPU time", "ns", f"Of the samples in which {_IS_IN}", rank=1),
)
# If the samples do not measure time, a page shows their weights. For example, a weight is a number of instructions.
WEIGHTS = (
    Field("weight", "Self weight", "count", f"Of the samples in which {_IS_LEAF}"),
    Field("total_weight", "Weight", "count", f"Of the samples in which {_IS_IN}"),
)
COUNTS = (
    Field("samples", "Samples", "count", f"In which {_IS_LEAF}", rank=3),
    Field("error_share", "Error", "share", "Standard deviation of the share that comes from counting samples", rank=4),
)
_SLOTS = "the slots for micro-operations"
RATES = (
    Field("ipc", "IPC", "number", "Instructions for each cycle", rank=5),
    Field("llc_misses", "LLC misses", "flop", rank=6),
    Field(
        "front_end_bound",
        "Front-end bound",
        "share",
        "Slots that got no micro-operation, although the core could have taken one",
        total_title=_SLOTS,
        rank=7,
    ),
    Field("retiring", "Retiring", "share", "Slots whose micro-operation retired", total_title=_SLOTS, rank=7),
    Field(
        "back_end_bound",
        "Back-end bound",
        "share",
        "Slots that were free because the core could not take a micro-operation",
        total_title=_SLOTS,
        rank=7,
    ),
)
_FIELDS = (*SHARES, *TIMES, *COUNTS, *RATES)
_NUMBERS = ("samples", "weight", "total_samples", "total_weight")
_col = pl.col


@in_lanes
def parts(analysis: Analysis, options: Options) -> Parts:
    samples = _counted(analysis, options)
    key, lost = _key(options.by), 0
    if options.by in _OF_STACKS:
        stacks = distinct_stacks(samples)
        rows, lost = sums_of(stacks, key), left_out(stacks)
    else:
        rows = _by_place(analysis, samples, options.by)
    counts = samples.group_by("event").agg(
        samples=pl.len().cast(pl.Int64),
        weight=_col("weight").fill_null(0).sum(),
        in_ranges=_col("range").count().cast(pl.Int64),
        short=is_short().sum().cast(pl.Int64),
    )
    every = pl.DataFrame({"samples": [analysis.tables.samples.height]}, schema={"samples": pl.Int64})
    rows, counts = (frame.with_columns(_col("event").cast(pl.String)) for frame in (rows, counts))
    return {
        "rows": Part(rows, (*key, "event")),
        "counts": Part(counts, ("event",)),
        "every": Part(every, ()),
        "processors": Part(_widths(analysis), ("width",)),
        "left out": Part(pl.DataFrame({"functions": [lost]}), ()),
    }


def _widths(analysis: Analysis) -> pl.DataFrame:
    """Returns the width of the processor's cores, null if it is not known. The frame has no row without samples."""
    widths = [width(analysis.tables.ranks)] if analysis.tables.samples.height else []
    return pl.DataFrame({"width": widths}, schema={"width": pl.Int64})


def _counted(analysis: Analysis, options: Options) -> pl.DataFrame:
    """Returns the samples that the options ask for, with the range and, by call, the call that each was taken in."""
    in_ranges = ranges_of(analysis.attributed)
    samples = analysis.tables.samples.with_columns(in_ranges)
    is_counted = pl.lit(True)
    if options.by == "call":
        samples = samples.with_columns(analysis.sample_places["call"])
    if options.idle:
        is_counted &= analysis.sample_places["is_idle"]
    if options.inside is not None:
        is_counted &= inside(analysis.complete, in_ranges, *options.inside)
    return samples.filter(is_counted)


def _key(by: str) -> tuple[str, ...]:
    return ("function", "library") if by == "function" else (by,)


def _by_place(analysis: Analysis, samples: pl.DataFrame, by: str) -> pl.DataFrame:
    """Sums samples by the op, module, ... that they were taken in. A sample counts once, for its innermost range, or by
    call for its innermost call."""
    if by == "thread":
        names = analysis.tables.threads.select("rank", "pid", "tid", thread="name").unique(["rank", "pid", "tid"])
        named = samples.join(names, on=["rank", "pid", "tid"], how="left", nulls_equal=True, maintain_order="left")
        key = pl.format("{} ({})", _col("thread").cast(pl.String).fill_null(""), "tid").str.strip_chars()
        rows = named.with_columns(key.alias(by))
    elif by == "line":
        lines = eager_lines(analysis.complete, matched(analysis.complete).inside)
        rows = samples.with_columns(lines.gather(samples["range"]).alias(by))
    elif by == "call":
        rows = samples.with_columns(analysis.tables.calls["name"].gather(samples["call"]).alias(by))
    else:
        rows = samples.with_columns(of_ranges.names(analysis, by, samples["range"]))
    sums = rows.group_by(by, "event", maintain_order=True).agg(
        samples=pl.len().cast(pl.Int64), weight=_col("weight").fill_null(0).sum()
    )
    return sums.with_columns(_col(by).cast(pl.String))


def rows(parts: Parts, options: Options) -> pl.DataFrame:
    sums, counts = parts["rows"].rows, parts["counts"].rows
    key = _key(options.by)
    event = counted_event(counts)
    own = sums.filter(is_of(event))
    total = int(counts.filter(is_of(event))["weight"].sum()) or None
    numbers = [name for name in _NUMBERS if name in sums.columns]
    table = own.select(*key, *numbers, share=_share("samples", "weight", total), error_share=1 / _col("samples").sqrt())
    table = table.with_columns(error_share=_col("error_share") * _col("share"))
    if "total_weight" in numbers:
        table = table.with_columns(total_share=_share("total_samples", "total_weight", total))
    times = {"cpu_ns": "weight", "total_cpu_ns": "total_weight"}
    of_time = _col if is_ns(event) else lambda _: pl.lit(None, dtype=pl.Int64)
    table = table.with_columns(of_time(of).alias(name) for name, of in times.items() if of in numbers)
    widths = parts["processors"].rows["width"]
    rates = figures_of(sums, key, widths[0] if len(widths) == 1 else None)
    table = table.join(rates, on=key, how="left", nulls_equal=True, maintain_order="left")
    order = "weight" if options.by not in _OF_STACKS else ["weight", "total_weight"]
    return table.sort(order, descending=True, maintain_order=True)


def _share(samples: str, weight: str, total: int | None) -> pl.Expr:
    if total is None:
        return pl.lit(None, dtype=pl.Float64)
    return pl.when(_col(samples) >= FEW).then(_col(weight) / total)


def answer(parts: Parts, options: Options) -> Answer:
    table = rows(parts, options)
    names = {"function": [FUNCTION, *with_values([replace(LIBRARY, rank=1)], table)], "library": [LIBRARY]}.get(
        options.by
    )
    if names is None:
        names = [of_ranges.field("The host was in", options.by)]
    notes = _notes(parts, options)
    if options.by == "call" and table.height and not table["call"].count():
        notes.append("None of these samples is in a call that a tool recorded")
    return Answer("functions", table, (*names, *with_values(_FIELDS, table)), tuple(notes))


def _notes(parts: Parts, options: Options) -> list[str]:
    counts, every = parts["counts"].rows, int(parts["every"].rows["samples"].sum())
    if not every:
        return ["This trace has no samples of the host's processors: nsys --sample=cpu, VTune and perf record them"]
    if not counts.height:
        return [f"None of the {plural(every, 'sample')} is {_asked(options)}"]
    event = counted_event(counts)
    row = counts.filter(is_of(event)).row(0, named=True)
    n = row["samples"]
    named = f" of the event {printable(event)}" if event is not None else ""
    asked = f" {_asked(options)}" if options.idle or options.inside else ""
    text = f"{plural(n, 'sample')}{named}{asked}, {100 * row['in_ranges'] / n:.1f} % of them in ranges"
    notes = [f"{text}; a share of 10 % is right to within {100 * math.sqrt(0.09 / n):.1f} points, at one sigma"]
    if row["short"] and options.by in _OF_STACKS:
        notes.append(
            f"{100 * row['short'] / n:.1f} % of the samples have {SHORT}: totals of outer functions are too small"
        )
    if lost := int(parts["left out"].rows["functions"].sum()):
        notes.append(
            f"The stacks are too deep to count all of their functions: {plural(lost, 'outer function')} of the "
            "different stacks are left out, so totals of outer functions are too small"
        )
    return notes


def _asked(options: Options) -> str:
    texts = [f"in {options.inside[0]} {printable(options.inside[1])}"] if options.inside else []
    return " and ".join([*texts, *(["taken while a device was idle"] if options.idle else [])])


QUESTION = Question("functions", parts, rows, answer)
