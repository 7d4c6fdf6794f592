"""A Chrome trace (JSON, gzipped if the name ends with .gz), for Perfetto, chrome://tracing and similar tools.

    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7, "tid": 7, "ts": 12.345, "dur": 6.789, "args": {...}}

Categories, arrows (`ac2g` from a call to its work, `fwdbwd` from an op to its backward) and the names of args are those
of torch.profiler's own files, so that tools for those can use it. A device is a process, each of its streams a thread.
Times are microseconds from the first thing in the trace on; `baseTimeNanoseconds` is the UTC time of that. opspan can
read everything back except samples: tables/chrome_keys.py says which column has which key.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Any, TextIO

import polars as pl

from opspan import inputs
from opspan.analysis import Analysed
from opspan.analysis.autograd import BY_NESTING
from opspan.analysis.nest import trace_end_ns
from opspan.json_columns import constant, members, microseconds, number, real, text
from opspan.tables import Tables, schema
from opspan.tables import chrome_keys as keys
from opspan.views.chrome_tracks import Tracks, tracks_of

_BATCH = 100_000  # rows that are turned into text at a time
_col = pl.col
Lines = tuple[pl.DataFrame, pl.Expr]  # rows, and how to write one of them

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
# An arg beside those of the columns, for tools that read torch.profiler's files.
_SHARED = {"shared memory": number(_col("static_shared_bytes") + _col("dynamic_shared_bytes"))}
_SERIES = ["name", "domain", "device_id"]
_MEMORY_NAMES = {"alloc": "[memory]", "free": "[memory]", "out_of_memory": "[OutOfMemory]"}
_SPANS = ("ranges", "calls", "work", "functions")
_POINTS = ("memory", "counters")


def write(found: Analysed, path: Path) -> list[str]:
    trace = found.attributed
    frames = {name: _with_ids(trace.frames[name]) for name in _SPANS}
    frames["ranges"] = frames["ranges"].with_columns(_as_reported(found.tables.ranges))
    trace = Tables(trace.ranks, **{**trace.frames, **frames})
    is_gzip = path.suffix.lower() == ".gz"
    with gzip.open(path, "wt", 6, encoding="utf-8") if is_gzip else path.open("w", encoding="utf-8") as file:
        _write(trace, file)
    return _left_out(trace)


def _with_ids(frame: pl.DataFrame) -> pl.DataFrame:
    """Gives a row without an id a unique one, because a row is recognised by its id when the file is read back."""
    if not frame["id"].null_count():
        return frame
    highest = frame["id"].max()
    free = highest + 1 if isinstance(highest, int) else 0
    return frame.with_columns(pl.col("id").fill_null(pl.int_range(pl.len()) + free))


def _as_reported(ranges: pl.DataFrame) -> pl.DataFrame:
    """The columns as they were before nesting, which closes open ranges and takes overlapping ones out of the tree."""
    return ranges.select("end_ns", was_async=_col("is_async").fill_null(value=False))


def _write(trace: Tables, file: TextIO) -> None:
    starts = [trace.frames[name]["start_ns"].min() for name in _SPANS]
    starts += [trace.frames[name]["time_ns"].min() for name in _POINTS]
    zero_ns = min((time for time in starts if isinstance(time, int)), default=0)
    tracks = tracks_of(trace)
    file.write(json.dumps(_head(trace, tracks, zero_ns))[:-1] + ', "traceEvents": [\n')
    separator = ""
    for frame, line in _events(trace, tracks, zero_ns):
        for start in range(0, frame.height, _BATCH):
            lines = frame.slice(start, _BATCH).select(line.alias("line"))["line"]
            file.write(separator + ",\n".join(lines.to_list()))
            separator = ",\n"
    file.write("\n]}\n")


def _left_out(trace: Tables) -> list[str]:
    """Sentences on what is in the trace and has no place in the file."""
    timeless = {name: trace.frames[name]["start_ns"].null_count() for name in _SPANS}
    timeless |= {name: trace.frames[name]["time_ns"].null_count() for name in _POINTS}
    said = [f"{count:,} {name} are not in it, for they have no start" for name, count in timeless.items() if count]
    if trace.samples.height:
        said.append(f"{trace.samples.height:,} rows of samples are not in it; .sqlite and .parquet have them")
    return said


def _head(trace: Tables, tracks: Tracks, zero_ns: int) -> dict[str, Any]:
    head: dict[str, Any] = {keys.MARK: {"version": keys.VERSION, "zero_ns": zero_ns, "no_thread": tracks.no_thread}}
    head |= {"schemaVersion": 1, "displayTimeUnit": "ms"}
    if trace.origin_utc_ns is not None:
        head["baseTimeNanoseconds"] = trace.origin_utc_ns + zero_ns
    if len(trace.ranks) == 1:  # what a user has said of the run, for tools that look for it: HTA for distributedInfo
        taken = {*head, keys.TABLES, "traceEvents"}
        head |= {name: value for name, value in _said_of(trace).items() if name not in taken}
    tables = {name: trace.frames[name].select(list(schema.TABLES[name].schema)) for name in keys.WHOLE}
    tables["places"] = tracks.by_process
    tables["series"] = _series(trace.counters)
    head[keys.TABLES] = {"ranks": [dataclasses.asdict(rank) for rank in trace.ranks]} | {
        name: _columns(frame) for name, frame in tables.items()
    }
    return head


def _said_of(trace: Tables) -> Mapping[str, Any]:
    said = trace.ranks[0].options.get("metadata")
    return said if isinstance(said, Mapping) else {}


def _columns(frame: pl.DataFrame) -> dict[str, list[Any]]:
    """The columns that hold anything, as lists; numbers that JSON cannot hold become texts."""
    columns: dict[str, list[Any]] = {}
    for column in frame.iter_columns():
        if column.dtype == pl.Float64:
            values = [value if value is None or isfinite(value) else str(value) for value in column]
        else:
            values = (
                column if column.dtype.is_numeric() or column.dtype == pl.Boolean else column.cast(pl.String)
            ).to_list()
        if column.count():
            columns[column.name] = values
    return columns


def _series(counters: pl.DataFrame) -> pl.DataFrame:
    """What is known of counters beside their values. Kept apart, as viewers take all args of a counter for values."""
    return counters.select(_SERIES).unique(maintain_order=True)


def _events(trace: Tables, tracks: Tracks, zero_ns: int) -> Iterator[Lines]:
    for frame, what in (
        (tracks.processes, "process_name"),
        (tracks.threads, "thread_name"),
        (tracks.devices, "process_name"),
        (tracks.streams, "thread_name"),
    ):
        yield frame, _event("M", name=constant(what), args=members({"name": text(_col("title"))}))
    began, last_ns = _col("start_ns").is_not_null(), trace_end_ns(*(trace.frames[name] for name in _SPANS))
    ranges = tracks.on_threads(trace.ranges.with_row_index("row"))
    calls = tracks.on_threads(trace.calls.with_row_index("row"))
    work = tracks.on_devices(trace.work.with_row_index("row"))
    most_ns = _last_ns(trace) - zero_ns
    at = microseconds(_col("start_ns") - zero_ns, most_ns)
    ends_ns = _col("end_ns").fill_null(last_ns)
    taken = microseconds((ends_ns - _col("start_ns")).clip(lower_bound=0), most_ns)

    yield from _ranges(ranges.filter(began), at, taken, microseconds(ends_ns - zero_ns, most_ns))
    category = pl.coalesce(text(_col("api")), constant("call"))
    yield calls.filter(began), _span(_name("name"), category, at, taken, *_args(calls, keys.EVENTS["calls"]))
    functions = tracks.on_threads(trace.functions)
    yield (
        functions.filter(began),
        _span(_name("name"), constant("python_function"), at, taken, *_args(functions, keys.EVENTS["functions"])),
    )
    name = pl.coalesce(text(_col("full_name")), _name("name"))
    category = pl.when(_col("is_overhead")).then(constant("overhead")).otherwise(_category("other"))
    args, never_null = _args(work, keys.EVENTS["work"])
    args = {**args, **{key: _sizes(of) for of, key in keys.SIZES.items()}, **_SHARED}
    # If there is no full name, the event itself already has the short one.
    args[keys.WORK["name"]] = text(pl.when(_col("full_name").is_not_null()).then("name"))
    if work["name"].null_count():
        args[keys.UNNAMED] = pl.when(_col("name").is_null()).then(pl.lit("1"))
    yield work.filter(began), _span(name, category, at, taken, args, never_null - {keys.WORK["name"]})

    launched = work.filter(_col("call").is_not_null(), began)
    yield from _arrows("ac2g", calls[launched["call"]], launched, launched["row"], at)
    linked = ranges.filter(_col("forward").is_not_null(), _col("link") != BY_NESTING, began)
    # These numbers come after those of the other arrows: some viewers tell arrows apart by number alone.
    yield from _arrows("fwdbwd", ranges[linked["forward"]], linked, linked["row"] + work.height, at)

    at = microseconds(_col("time_ns") - zero_ns, most_ns)
    yield _memory(tracks.on_threads(trace.memory.with_row_index("row")).filter(_col("time_ns").is_not_null()), at)
    series = _series(trace.counters).with_row_index("series")
    counters = tracks.on_threads(trace.counters).filter(_col("time_ns").is_not_null())
    counters = counters.join(series, on=_SERIES, how="left", nulls_equal=True, maintain_order="left")
    value = members({"value": real(_col("value"))})
    yield counters, _event("C", cat=text(_col("series")), name=_name("name"), ts=at, args=value)


def _last_ns(trace: Tables) -> int:
    """The latest time in the trace."""
    columns = [(name, column) for name in _SPANS for column in ("start_ns", "end_ns")]
    columns += [(name, "time_ns") for name in _POINTS]
    found = [trace.frames[name][column].max() for name, column in columns]
    return max((time for time in found if isinstance(time, int)), default=0)


def _event(phase: str, **values: pl.Expr) -> pl.Expr:
    """None of the values may be null."""
    event = {"ph": constant(phase), "pid": number(_col("process")), "tid": number(_col("thread")), **values}
    return members(event, event)


def _span(
    name: pl.Expr, category: pl.Expr, at: pl.Expr, taken: pl.Expr, args: Mapping[str, pl.Expr], never_null: set[str]
) -> pl.Expr:
    return _event("X", cat=category, name=name, ts=at, dur=taken, args=members(args, never_null))


def _args(frame: pl.DataFrame, names: Mapping[str, str]) -> tuple[dict[str, pl.Expr], set[str]]:
    """An arg for each column that holds anything, and args that say that the name, or the end, is null; and those of
    the args that are never null."""
    args = {key: _value(column, frame[column].dtype) for column, key in names.items() if frame[column].count()}
    if "end_ns" in frame.columns and "end_ns" not in names and frame["end_ns"].null_count():
        is_open = _col("end_ns").is_null()
        if "is_mark" in frame.columns:
            is_open &= ~_col("is_mark").fill_null(value=False)
        args[keys.ENDED] = pl.when(is_open).then(constant(keys.NOT_ENDED))
    if "name" not in names and frame["name"].null_count():
        args[keys.UNNAMED] = pl.when(_col("name").is_null()).then(pl.lit("1"))
    return args, {key for column, key in names.items() if not frame[column].null_count()}


def _value(column: str, dtype: pl.DataType) -> pl.Expr:
    return (
        number(_col(column)) if dtype.is_integer() else real(_col(column)) if dtype.is_float() else text(_col(column))
    )


def _list(texts: pl.Series) -> pl.Expr:
    """As JSON lists where the texts are such lists, else as JSON texts."""
    distinct, column = texts.unique().drop_nulls().cast(pl.String), _col(texts.name)
    lists = distinct.filter(pl.Series([_is_list(value) for value in distinct], dtype=pl.Boolean)).cast(texts.dtype)
    return pl.when(column.is_in(lists.implode())).then(column.cast(pl.String)).otherwise(text(column))


def _is_list(value: str) -> bool:
    try:
        return value.startswith("[") and json.dumps(json.loads(value)) == value
    except (ValueError, RecursionError):
        return False


def _name(column: str) -> pl.Expr:
    return pl.coalesce(text(_col(column)), constant("(no name)"))


def _category(other: str) -> pl.Expr:
    kind = _col("kind").cast(pl.String).fill_null(other)
    return text(kind.replace(_CATEGORIES))


def _sizes(of: str) -> pl.Expr:
    axes = [f"{of}_{axis}" for axis in "xyz"]
    known = pl.any_horizontal(_col(axis).is_not_null() for axis in axes)
    return pl.when(known).then(pl.format("[{}, {}, {}]", *(number(_col(axis)).fill_null("null") for axis in axes)))


def _ranges(ranges: pl.DataFrame, at: pl.Expr, taken: pl.Expr, end: pl.Expr) -> Iterator[Lines]:
    """Ranges of the tree as spans; overlapping ones as pairs with an id, which viewers draw on separate lines."""
    is_mark, is_async = (_col(name).fill_null(value=False) for name in ("is_mark", "is_async"))
    name, category = _name("name"), _category("user")
    args, never_null = _args(ranges, keys.EVENTS["ranges"])
    overlaps = is_async & ~_col("was_async")
    if ranges.select(overlaps.any()).item():
        args[keys.OVERLAPS] = pl.when(overlaps).then(pl.lit("1"))
    ranges = ranges.with_columns(inputs=inputs.each(ranges["inputs"], inputs.to_torch))
    for column in keys.LISTS:
        if ranges[column].count():
            args[keys.RANGES[column]] = _list(ranges[column])
    yield ranges.filter(~is_mark, ~is_async), _span(name, category, at, taken, args, never_null)
    apart = ranges.filter(~is_mark, is_async)
    pair = {"cat": category, "name": name, "id": text(_col("row"))}
    yield apart, _event("b", **pair, ts=at, args=members(args))
    yield apart, _event("e", **pair, ts=end)
    yield ranges.filter(is_mark), _event("i", cat=category, name=name, ts=at, s=constant("t"), args=members(args))


def _memory(memory: pl.DataFrame, at: pl.Expr) -> Lines:
    """As torch.profiler writes it: freed bytes are negative, the host is device -1."""
    event = _col("event").cast(pl.String)
    name = text(event.replace_strict(_MEMORY_NAMES, default=pl.concat_str(pl.lit("[memory "), event, pl.lit("]"))))
    signed = _col("bytes") * pl.when(event == "free").then(-1).otherwise(1)
    rows = memory.with_columns(signed, _col("device_id").fill_null(-1), end_ns=_col("end_ns") - _col("time_ns"))
    host = {"Device Type": pl.when(_col("device_id") < 0).then(pl.lit("0")).otherwise(pl.lit("1"))}
    args, never_null = _args(rows, keys.EVENTS["memory"])
    args_text = members({**args, **host}, never_null)
    category = constant("cpu_instant_event")
    return rows, _event(
        "i", cat=category, name=pl.coalesce(name, constant("[memory]")), ts=at, s=constant("t"), args=args_text
    )


def _arrows(kind: str, sources: pl.DataFrame, targets: pl.DataFrame, ids: pl.Series, at: pl.Expr) -> Iterator[Lines]:
    """Arrows from the beginning of each source to the beginning of its target."""
    values = {"cat": constant(kind), "name": constant(kind), "id": number(_col("arrow")), "ts": at}
    drawn = sources["start_ns"].is_not_null()
    yield sources.with_columns(arrow=ids).filter(drawn), _event("s", **values)
    yield targets.with_columns(arrow=ids).filter(drawn), _event("f", **values, bp=constant("e"))
