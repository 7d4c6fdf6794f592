"""Computes the names, categories and args that the rows of a trace have in a timeline, for Chrome traces and
Perfetto."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import polars as pl

from opspan import inputs
from opspan.analysis import Analysis
from opspan.analysis.hierarchy import hierarchy
from opspan.analysis.nest import count_timeless
from opspan.tables import Tables
from opspan.tables import chrome_keys as keys
from opspan.tables.schema import MEMORY_EVENT, NAME, WORK_KIND
from opspan.tables.tables import id_count

_col = pl.col

SPANS = ("ranges", "calls", "work", "functions")
POINTS = ("memory", "counters")
_CATEGORIES = {
    "op": "cpu_op",
    "backward": "cpu_op",
    "engine": "cpu_op",
    "user": "user_annotation",
    "unknown": "user_annotation",
    "module": "user_annotation",
    "step": "user_annotation",
    "memcpy": "gpu_memcpy",
    "memset": "gpu_memset",
    "sync": "cuda_sync",
    "graph": "cuda_graph",
}
_MEMORY_NAMES = {"alloc": "[memory]", "free": "[memory]", "out_of_memory": "[OutOfMemory]"}


def drawn(analysis: Analysis) -> Tables:
    """Returns the analysed trace, in which each span has an id. Ranges also have a column `modules`. The ends of
    ranges are the recorded ones, which may be null."""
    trace = analysis.attributed
    frames = {name: _with_ids(trace.frames[name]) for name in SPANS}
    frames["ranges"] = frames["ranges"].with_columns(_as_reported(analysis.tables.ranges))
    if (modules := hierarchy(trace.ranges)) is not None:
        frames["ranges"] = frames["ranges"].with_columns(modules.alias("modules"))
    frames["work"] = _with_captured(frames["work"], trace.ranges)
    return Tables(trace.ranks, **{**trace.frames, **frames})


def _with_captured(work: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    """Adds the name, sizes and module of the captured op to each row of work of a replayed CUDA graph. The op itself
    has no event, because it did not run during the replay."""
    if not work["replay"].count():
        return work
    row = work["range"].zip_with(work["replayed_range_id"].is_not_null(), pl.Series([None], dtype=work["range"].dtype))
    columns = zip(("name", "sizes", "module_path"), keys.REPLAYED, strict=False)
    return work.with_columns(ranges[column].gather(row).alias(name) for column, name in columns)


def replayed_args(work: pl.DataFrame) -> dict[str, pl.Expr]:
    names = {name: key for name, key in keys.REPLAYED.items() if name in work.columns and work[name].count()}
    return {key: text(name) for name, key in names.items()}


def _with_ids(frame: pl.DataFrame) -> pl.DataFrame:
    """Gives a unique id to each row without an id: when the file is read back, rows are recognised by their ids."""
    if not frame["id"].null_count():
        return frame
    return frame.with_columns(pl.col("id").fill_null(pl.int_range(pl.len()) + id_count(frame)))


def _as_reported(ranges: pl.DataFrame) -> pl.DataFrame:
    """Returns `end_ns` and `was_async` as they were recorded. The analysis sets the ends of open ranges, and
    makes overlapping ranges async."""
    return ranges.select("end_ns", was_async=_col("is_async").fill_null(value=False))


def zero_ns(trace: Tables) -> int:
    return trace.begin_ns(*SPANS, *POINTS, with_overhead=True) or 0


def left_out(trace: Tables) -> list[str]:
    """Returns sentences on the parts of the trace that a timeline does not show."""
    without = {name: trace.frames[name]["start_ns"].null_count() for name in SPANS}
    without |= {name: trace.frames[name]["time_ns"].null_count() for name in POINTS}
    without["ranges"] -= count_timeless(trace.ranges)
    sentences = [f"{count:,} {name} are not in it, for they have no start" for name, count in without.items() if count]
    if trace.samples.height:
        sentences.append(f"{trace.samples.height:,} rows of samples are not in it; .sqlite and .parquet have them")
    return sentences


def text(column: str) -> pl.Expr:
    return _col(column).cast(pl.String)


def args(frame: pl.DataFrame, names: Mapping[str, str]) -> dict[str, pl.Expr]:
    """Returns args by their keys. `names` maps columns to keys. Columns without a value in any row are left out, unless
    there are no rows. Further args mark events without an end or without a name."""
    columns = {column: key for column, key in names.items() if frame[column].count() or not frame.height}
    exprs = {key: _col(column) for column, key in columns.items()}
    if "end_ns" in frame.columns and "end_ns" not in names and frame["end_ns"].null_count():
        is_open = _col("end_ns").is_null()
        if "is_mark" in frame.columns:
            is_open &= ~_col("is_mark").fill_null(value=False)
        exprs[keys.ENDED] = pl.when(is_open).then(pl.lit(keys.NOT_ENDED))
    if "name" not in names and frame["name"].null_count():
        exprs[keys.UNNAMED] = pl.when(_col("name").is_null()).then(1)
    return exprs


def with_lists(ranges: pl.DataFrame) -> pl.DataFrame:
    """Writes columns of lists as JSON, and the values of inputs as torch.profiler writes them."""
    ranges = ranges.with_columns(inputs=inputs.map_texts(ranges["inputs"], inputs.to_torch))
    columns = [column for column in keys.LISTS if ranges[column].count()]
    return ranges.with_columns(inputs.map_texts(ranges[column], _list) for column in columns)


def _list(value: str) -> str:
    """Returns a JSON list, as Python's json module writes it, unchanged. Returns any other text as a JSON string."""
    try:
        is_list = value.startswith("[") and json.dumps(json.loads(value)) == value
    except (ValueError, RecursionError):
        is_list = False
    return value if is_list else json.dumps(value)


def sizes(of: str) -> pl.Expr:
    axes = [f"{of}_{axis}" for axis in "xyz"]
    known = pl.any_horizontal(_col(axis).is_not_null() for axis in axes)
    return pl.when(known).then(pl.format("[{}, {}, {}]", *(text(axis).fill_null("null") for axis in axes)))


def name(column: str) -> pl.Expr:
    return _col(column).fill_null("(no name)")


def category(kinds: pl.Enum, other: str) -> pl.Expr:
    return _named("kind", kinds, lambda kind: _CATEGORIES.get(kind, kind), _CATEGORIES.get(other, other))


def work_category() -> pl.Expr:
    return pl.when(_col("is_overhead")).then(pl.lit("overhead", NAME)).otherwise(category(WORK_KIND, "other"))


def call_category() -> pl.Expr:
    return _col("api").fill_null("call")


def memory_name() -> pl.Expr:
    return _named("event", MEMORY_EVENT, lambda event: _MEMORY_NAMES.get(event, f"[memory {event}]"), "[memory]")


def _named(column: str, values: pl.Enum, name: Callable[[str], str], other: str) -> pl.Expr:
    """Calls `name` once for each value of the enum, and looks up the name of each row."""
    names = pl.Series([*map(name, values.categories), other], dtype=NAME)
    return pl.lit(names).gather(_col(column).to_physical().cast(pl.UInt32).fill_null(len(values.categories)))
