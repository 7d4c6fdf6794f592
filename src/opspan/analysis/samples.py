"""Finds what the host was doing when its processors were sampled.

    ranges_of(trace) -> for each row of the table samples: row of the innermost range that was open on its thread.
    places(trace, gaps) -> for each row of the table samples:
        range: the row that `ranges_of` returns.
        call: row of the innermost call that was open on the sample's thread.
        is_idle: whether a device of the sample's process had nothing to do; null if the process used no device, and
            for samples before and after everything else that was recorded of the process.
    inside(trace, in_ranges, kind, name) -> for each sample, whether it is inside the op, module, range or call of this
        name.
    by_function(samples), by_library(samples) -> function, library, event, samples, weight, total_samples, total_weight:
        sums over the samples in which the function (library) was the innermost one and, as total, in which it was
        anywhere in the stack. A function that is in a stack several times counts once.
    distinct_stacks(samples) -> the different stacks, with the sums of their samples.
    sums_of(stacks, key) -> the sums that by_function and by_library return.
    left_out(stacks) -> how many outer functions these sums leave out, because the stacks are too large.
    of_time(samples) -> the samples whose event measures time.
    counted_event(counts) -> the event whose samples are counted.
    is_of(event) -> whether a row is of the event.
    numbered_stacks(stacks), innermost_frames(stacks), frames_of(stacks, depth) -> the functions of different stacks.
    deepest(frames, most) -> how many functions of each stack are counted, if all together are at most `most`.
    figures_of(sums, key, width) -> figures from the hardware's events for each value of `key`: cycles, ipc, ...
    functions_of(stacks) -> a row for each function of each stack.
    name_by_itself() -> the name of such a row's function, where its library is not shown beside it.
    is_short() -> whether a sample has only its innermost functions.
    innermost_functions(samples) -> the name of the innermost function of each sample; null if it is not known.

A weight is added only to weights of the same `event`, because events count different things.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import polars as pl

from opspan.analysis.functions import spans_of
from opspan.analysis.hardware_events import figures, may_be_rare, time_event
from opspan.analysis.nest import innermost, nearest
from opspan.analysis.spans import PROCESS, distinct, union, within
from opspan.tables.names import matching, names_of
from opspan.tables.schema import STACK_SEPARATOR

if TYPE_CHECKING:
    from opspan.tables import Tables

UNRESOLVED = "(unresolved)"  # the name of all functions of a library whose names the tool did not find
BROKEN = "[Broken backtraces]"  # nsys writes it in place of the rest of a stack
SHORT = "only their innermost functions, because the tool did not record the whole stack, or could not"
OF_HARDWARE = ("cycles", "instructions", "ipc", "llc_misses", "front_end_bound", "retiring", "back_end_bound")
FEW = 30  # with fewer samples, a share would be wrong by more than a fifth, so no share is shown
MOST_FRAMES = 20_000_000  # of the distinct stacks together; only crafted files and very long runs have more
_FRAMES_AT_ONCE = 1_000_000  # that are split at a time, which limits the memory
_NO_NAME = r"^0x[0-9a-f]+$|^\[unknown\]$|^\?$|^$"
_NUMBERS = ("samples", "weight", "total_samples", "total_weight")
_col = pl.col


def ranges_of(trace: Tables) -> pl.Series:
    return innermost(trace.ranges, _points(trace)).alias("range")


def _points(trace: Tables) -> pl.DataFrame:
    return trace.samples.select("rank", "pid", "tid", "time_ns")


def places(trace: Tables, gaps: pl.DataFrame) -> pl.DataFrame:
    return pl.DataFrame(
        [
            ranges_of(trace),
            innermost(spans_of(trace.calls, trace.ranges), _points(trace)).alias("call"),
            _is_idle(trace.samples, trace, gaps),
        ]
    )


def _is_idle(samples: pl.DataFrame, trace: Tables, gaps: pl.DataFrame) -> pl.Series:
    from opspan.analysis.busy import whole_times  # a table of ops does not need it, and it takes long to import

    used = distinct(trace.work.filter(_col("device_id").is_not_null()), PROCESS)
    wholes = whole_times(trace).join(used, on=PROCESS, how="semi", nulls_equal=True)
    flags = pl.Series([None], dtype=pl.Boolean).new_from_index(0, samples.height)
    for spans, flag in ((wholes, False), (gaps, True)):
        spans = union(spans.select(*PROCESS, "start_ns", "end_ns"), PROCESS)
        flags = flags.scatter(within(samples, "time_ns", spans, PROCESS)["row"], flag)
    return flags.alias("is_idle")


def inside(trace: Tables, in_ranges: pl.Series, kind: str, name: str) -> pl.Series:
    ranges = trace.ranges
    if kind == "call":
        return _in_calls(trace, name)
    if kind == "module":
        modules = ranges["module"].unique().drop_nulls().cast(pl.String)
        named = modules.filter(modules.is_in(matching(modules, name)) | modules.str.starts_with(f"{name}."))
        return ranges["module"].is_in(named.cast(pl.Categorical).implode()).gather(in_ranges).fill_null(False)
    is_named = _is_named(ranges, name)
    if kind == "op":
        is_named &= ranges["kind"].is_in(["op", "backward"])
    return nearest(ranges, is_named).gather(in_ranges).is_not_null()


def _is_named(rows: pl.DataFrame, name: str) -> pl.Series:
    return rows["name"].is_in(pl.Series(matching(names_of(rows), name), dtype=pl.Categorical).implode())


def _in_calls(trace: Tables, name: str) -> pl.Series:
    """Returns, for each sample, whether a call of this name was open on its thread, at any depth."""
    named = spans_of(trace.calls, trace.ranges).filter(_is_named(trace.calls, name))
    return innermost(named, _points(trace)).is_not_null()


def by_function(samples: pl.DataFrame) -> pl.DataFrame:
    return sums_of(distinct_stacks(samples), ("function", "library"))


def by_library(samples: pl.DataFrame) -> pl.DataFrame:
    return sums_of(distinct_stacks(samples), ("library",))


def left_out(stacks: pl.DataFrame) -> int:
    frames = stacks["frames"]
    return int((frames - frames.clip(upper_bound=deepest(frames, MOST_FRAMES))).sum())


def of_time(samples: pl.DataFrame) -> pl.DataFrame:
    """Returns no samples if none of their events measures time."""
    event = time_event(samples["event"].unique().cast(pl.String))
    return samples.filter(is_of(event))


def is_of(event: str | None) -> pl.Expr:
    """Returns an expression for frames with a column `event`. None stands for rows without an event."""
    return _col("event").cast(pl.String).eq_missing(pl.lit(event, dtype=pl.String))


def counted_event(counts: pl.DataFrame) -> str | None:
    """Returns the event that measures time or, without such an event, the one with most samples. Null is the event of
    tools that do not name theirs. `counts` has the columns event and samples."""
    event = time_event(counts["event"].to_list())
    if event is None and counts.height and not counts["event"].has_nulls():
        event = counts.sort("samples", descending=True, maintain_order=True)["event"][0]
    return event


def figures_of(sums: pl.DataFrame, key: Sequence[str], width: int | None = None) -> pl.DataFrame:
    """Returns OF_HARDWARE for each value of `key`. `sums` has the columns of the key, event, samples and weight. Events
    that have few samples in a row are left out there. `width` is that of the processor's cores (processors.py)."""
    sums = sums.drop_nulls("event")
    rare = [event for event in sums["event"].unique() if may_be_rare(event)]
    is_enough = (_col("samples") >= FEW) | _col("event").cast(pl.String).is_in(rare)
    enough = sums.with_columns(weight=pl.when(is_enough).then("weight"))
    wide = enough.pivot("event", index=list(key), values="weight")
    known = figures(wide.select(pl.exclude(key).cast(pl.Float64)), width)
    nothing = pl.lit(None, dtype=pl.Float64)
    return wide.select(*key, *(known[name] if name in known.columns else nothing.alias(name) for name in OF_HARDWARE))


def innermost_functions(samples: pl.DataFrame) -> pl.Series:
    """Returns names that are categorical (`name_by_itself`)."""
    key = ["stack", "libraries"]
    stacks = numbered_stacks(samples.select(key).unique(maintain_order=True))
    own = innermost_frames(stacks)
    own = own.select("number", function=name_by_itself().cast(pl.Categorical))
    stacks = stacks.join(own, on="number", how="left", maintain_order="left")
    rows = samples.select(key).join(stacks, on=key, how="left", nulls_equal=True, maintain_order="left")
    return rows["function"]


def innermost_frames(stacks: pl.DataFrame) -> pl.DataFrame:
    """Returns number (of the stack), function and library of the innermost function of each stack that has one.
    `stacks` has the columns that `numbered_stacks` adds."""
    # With two functions, one is left if the other stands for the part of the stack that the tool did not record.
    frames = [_split(part, 2).group_by("number", maintain_order=True).last() for part in _in_parts(stacks)]
    return pl.concat([_split(stacks.clear(), 1), *frames])


def frames_of(stacks: pl.DataFrame, depth: int) -> pl.DataFrame:
    """Returns number (of the stack), function and library of the `depth` innermost functions of each stack, the
    outermost first. BROKEN is among them. `stacks` has the columns that `numbered_stacks` adds."""
    columns = ("number", "stack", "libraries")
    return pl.concat([functions_of(part.select(columns), depth) for part in _in_parts(stacks)])


def sums_of(stacks: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    depth = deepest(stacks["frames"], MOST_FRAMES)
    sums = [_sums_of(_split(part, depth), part, key) for part in _in_parts(stacks)]
    return _together(pl.concat(sums), key) if len(sums) > 1 else sums[0]


def _sums_of(frames: pl.DataFrame, stacks: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """Returns the sums over some of the stacks. `frames` has their functions."""
    numbers = stacks.select("number", "event", "samples", "weight")
    nothing = pl.lit(0, dtype=pl.Int64)
    own = frames.group_by("number", maintain_order=True).last().join(numbers, on="number", maintain_order="left")
    every = frames.unique(["number", *key], maintain_order=True).join(numbers, on="number", maintain_order="left")
    totals = every.select(
        *key, "event", samples=nothing, weight=nothing, total_samples="samples", total_weight="weight"
    )
    own = own.select(*key, "event", "samples", "weight", total_samples=nothing, total_weight=nothing)
    return _together(pl.concat([totals, own]), key)


def _together(rows: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    return rows.group_by(*key, "event", maintain_order=True).agg(_col(*_NUMBERS).sum())


def distinct_stacks(samples: pl.DataFrame) -> pl.DataFrame:
    """Returns a row for each distinct stack of each event: number, stack, libraries, event, and samples, weight and
    frames (the number of functions)."""
    stacks = samples.group_by("stack", "libraries", "event", maintain_order=True).agg(
        samples=pl.len().cast(pl.Int64), weight=_col("weight").fill_null(0).sum()
    )
    return numbered_stacks(stacks)


def numbered_stacks(stacks: pl.DataFrame) -> pl.DataFrame:
    """Adds number, and frames (the number of functions). `stacks` has different stacks."""
    frames = _col("stack").cast(pl.String).str.count_matches(STACK_SEPARATOR, literal=True).cast(pl.Int64) + 1
    return stacks.with_columns(frames=frames.fill_null(1)).with_row_index("number")


def deepest(frames: pl.Series, most_together: int) -> int:
    """Returns how many functions of each stack are counted, the innermost first. It is so many that all stacks together
    have `most_together` at most, but at least 1, and at most _FRAMES_AT_ONCE."""
    least, most = 1, _FRAMES_AT_ONCE
    while least < most:
        middle = (least + most + 1) // 2
        fits = int(frames.clip(upper_bound=middle).sum()) <= most_together
        least, most = (middle, most) if fits else (least, middle - 1)
    return least


def _in_parts(stacks: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yields the stacks in parts that have about as many functions each. There is one part at least."""
    parts = stacks["frames"].cum_sum() // _FRAMES_AT_ONCE
    lengths = parts.rle().struct.field("len").to_list() if stacks.height else [0]
    first = 0
    for count in lengths:
        yield stacks.slice(first, count)
        first += count


def _split(stacks: pl.DataFrame, deepest: int) -> pl.DataFrame:
    """Returns number (of the stack), function and library of each function that is counted."""
    frames = functions_of(stacks.select("number", "stack", "libraries"), deepest)
    return frames.filter(_col("function").fill_null("") != BROKEN)


def functions_of(stacks: pl.DataFrame, deepest: int | None = None) -> pl.DataFrame:
    """Returns a row for each function of each stack, the outermost first. The columns function and library replace
    stack and libraries. The row of an unknown stack has no function. Leaves out the outer functions of stacks that have
    more than `deepest`."""
    columns = {"function": "stack", "library": "libraries"}
    texts = stacks.with_columns(_col(of).cast(pl.String).alias(name) for name, of in columns.items())
    frames, libraries = (_col(name).str.count_matches(STACK_SEPARATOR, literal=True) for name in columns)
    # Files that were damaged may have fewer libraries than functions.
    texts = texts.with_columns(library=pl.when(frames == libraries).then("library")).drop(columns.values())
    if deepest is not None and (texts.select(frames).to_series() >= _FRAMES_AT_ONCE).any():
        texts = texts.with_columns(_inner(texts[name], deepest) for name in columns)
    lists = [_col(name).str.split(STACK_SEPARATOR) for name in columns]
    texts = texts.with_columns(lists if deepest is None else [names.list.tail(deepest) for names in lists])
    nothing = _col("function").list.eval(pl.lit(None, dtype=pl.String))
    return (
        texts.with_columns(_col("library").fill_null(nothing))
        .explode(*columns)
        .with_columns(
            function=pl.when(_col("function").str.contains(_NO_NAME)).then(pl.lit(UNRESOLVED)).otherwise("function"),
            library=_col("library").str.split("/").list.last(),
        )
    )


def name_by_itself() -> pl.Expr:
    """Returns the name of a function for rows that do not show its library. A function without a name is called after
    its library. The rows have the columns of `functions_of`."""
    is_in_library = (_col("function") == UNRESOLVED) & (_col("library") != "")
    return pl.when(is_in_library).then(pl.format("{} in {}", "function", "library")).otherwise("function")


def is_short() -> pl.Expr:
    stack = _col("stack").cast(pl.String)
    return stack.str.contains(BROKEN, literal=True) | ~stack.str.contains(STACK_SEPARATOR, literal=True)


def _inner(stacks: pl.Series, deepest: int) -> pl.Series:
    """Cuts stacks to their innermost functions without splitting the whole stack."""
    texts = [text and STACK_SEPARATOR.join(text.rsplit(STACK_SEPARATOR, deepest)[-deepest:]) for text in stacks]
    return pl.Series(stacks.name, texts, dtype=pl.String)
