"""A Chrome trace (JSON, gzipped if the name ends with .gz), for Perfetto, chrome://tracing and similar tools.

    {"ph":"X","pid":7,"tid":7,"cat":"cpu_op","name":"aten::mm","ts":12.345,"dur":6.789,"args":{...}}

Categories, arrows (`ac2g` from a call to its work, `fwdbwd` from an op to its backward) and the names of args are those
of torch.profiler's own files, so that tools for those can use it. A device is a process, each of its streams a thread.
Times are microseconds from the one on in which the trace begins; `baseTimeNanoseconds` is its UTC time. opspan can
read everything back except samples: tables/chrome_keys.py says which column has which key.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

import polars as pl

from opspan import inputs, native
from opspan.analysis import Analysed
from opspan.analysis.autograd import BY_NESTING
from opspan.analysis.hierarchy import hierarchy
from opspan.analysis.nest import trace_end_ns
from opspan.tables import Tables, schema
from opspan.tables import chrome_keys as keys
from opspan.views import pieces
from opspan.views.chrome_tracks import Tracks, tracks_of
from opspan.views.pieces import Piece

_BATCH = 50_000  # rows that are turned into text at a time
_col = pl.col
# An object of JSON for each row: native/columns/json_items.cpp says how what is written. A null is left out.
Members = Mapping[str, pl.Expr]
Events = tuple[pl.DataFrame, Members, pl.Expr | None]  # rows, their events, and which of the rows have one (None: all)

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
# Args beside those of the columns, for tools that read torch.profiler's files. A byte a nanosecond is one GB/s.
_TOOK = pl.when(_col("end_ns") > _col("start_ns")).then(_col("end_ns") - _col("start_ns"))
_TORCHS = {
    "shared memory": _col("static_shared_bytes") + _col("dynamic_shared_bytes"),
    "memory bandwidth (GB/s)": pl.when(_col("kind").cast(pl.String).is_in(["memcpy", "memset"])).then(_col("bytes"))
    / _TOOK,
}
_SERIES = ["name", "domain", "device_id"]
_MEMORY_NAMES = {"alloc": "[memory]", "free": "[memory]", "out_of_memory": "[OutOfMemory]"}
_SPANS = ("ranges", "calls", "work", "functions")
_POINTS = ("memory", "counters")
_ENDS = ("process", "thread", "start_ns")  # of an arrow


def write(found: Analysed, path: Path) -> list[str]:
    trace = found.attributed
    frames = {name: _with_ids(trace.frames[name]) for name in _SPANS}
    frames["ranges"] = frames["ranges"].with_columns(_as_reported(found.tables.ranges))
    if (modules := hierarchy(trace.ranges)) is not None:
        frames["ranges"] = frames["ranges"].with_columns(modules.alias("modules"))
    trace = Tables(trace.ranks, **{**trace.frames, **frames})
    pieces.write(path, _pieces(trace))
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


def _pieces(trace: Tables) -> Iterator[Callable[[], Piece]]:
    starts = [trace.frames[name]["start_ns"].min() for name in _SPANS]
    starts += [trace.frames[name]["time_ns"].min() for name in _POINTS]
    zero_ns = min((time for time in starts if isinstance(time, int)), default=0)
    zero_ns -= zero_ns % 1000  # HTA takes whole microseconds: they are those of the source then
    tracks = tracks_of(trace)
    head = json.dumps(_head(trace, tracks, zero_ns))[:-1] + ', "traceEvents": [\n'
    yield head.encode
    count = 0
    for rows, event, chosen in _events(trace, tracks, zero_ns):
        for start in range(0, rows.height, _BATCH):
            batch = rows.slice(start, _BATCH)
            if chosen is not None and not (batch := batch.filter(chosen)).height:
                continue
            yield partial(_items, batch, event, count)
            count += batch.height
    yield "\n]}\n".encode


def _items(batch: pl.DataFrame, event: Members, before: int) -> Piece:
    return native.json_items(batch.select(_named(event)), before)


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
        head |= {name: value for name, value in _sound(_said_of(trace)).items() if name not in taken}
    tables = {name: trace.frames[name].select(list(schema.TABLES[name].schema)) for name in keys.WHOLE}
    tables["places"] = tracks.by_process
    tables["series"] = _series(trace.counters)
    head[keys.TABLES] = {"ranks": [_sound(dataclasses.asdict(rank)) for rank in trace.ranks]} | {
        name: _columns(frame) for name, frame in tables.items()
    }
    return head


def _said_of(trace: Tables) -> Mapping[str, Any]:
    said = trace.ranks[0].options.get("metadata")
    return said if isinstance(said, Mapping) else {}


def _sound(value: Any) -> Any:
    """Without what Python's json module would write and JSON does not have: NaN, infinities, halves of a pair."""
    text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    return json.loads(text, parse_constant=str)


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


def _events(trace: Tables, tracks: Tracks, zero_ns: int) -> Iterator[Events]:
    for frame, what in (
        (tracks.processes, "process_name"),
        (tracks.threads, "thread_name"),
        (tracks.devices, "process_name"),
        (tracks.streams, "thread_name"),
    ):
        yield frame, _event("M", name=pl.lit(what), args=pl.struct(name="title")), None
    began, last_ns = _col("start_ns").is_not_null(), trace_end_ns(*(trace.frames[name] for name in _SPANS))
    ranges = tracks.on_threads(trace.ranges.with_row_index("row"))
    calls = tracks.on_threads(trace.calls.with_row_index("row"))
    work = tracks.on_devices(trace.work.with_row_index("row"))
    at = _microseconds(_col("start_ns") - zero_ns)
    ends_ns = _col("end_ns").fill_null(last_ns)
    taken = _microseconds((ends_ns - _col("start_ns")).clip(lower_bound=0))

    yield from _ranges(ranges, at, taken, _microseconds(ends_ns - zero_ns))
    category = _text("api").fill_null("call")
    yield calls, _span(_name("name"), category, at, taken, _args(calls, keys.EVENTS["calls"])), began
    functions = tracks.on_threads(trace.functions)
    args = _args(functions, keys.EVENTS["functions"])
    yield functions, _span(_name("name"), pl.lit("python_function"), at, taken, args), began
    name = pl.coalesce(_text("full_name"), _name("name"))
    category = pl.when(_col("is_overhead")).then(pl.lit("overhead")).otherwise(_category("other"))
    args = _args(work, keys.EVENTS["work"]) | {key: _sizes(of) for of, key in keys.SIZES.items()} | _TORCHS
    # If there is no full name, the event itself already has the short one.
    args[keys.WORK["name"]] = pl.when(_col("full_name").is_not_null()).then(_text("name"))
    if work["name"].null_count():
        args[keys.UNNAMED] = pl.when(_col("name").is_null()).then(1)
    yield work, _span(name, category, at, taken, args), began

    launched = work.select(*_ENDS, "row", "call").filter(_col("call").is_not_null(), began)
    yield from _arrows("ac2g", calls.select(_ENDS)[launched["call"]], launched, launched["row"], at)
    linked = ranges.select(*_ENDS, "row", "forward", "link")
    linked = linked.filter(_col("forward").is_not_null(), _col("link") != BY_NESTING, began)
    # These numbers come after those of the other arrows: some viewers tell arrows apart by number alone.
    yield from _arrows("fwdbwd", ranges.select(_ENDS)[linked["forward"]], linked, linked["row"] + work.height, at)

    at = _microseconds(_col("time_ns") - zero_ns)
    timed = _col("time_ns").is_not_null()
    yield *_memory(tracks.on_threads(trace.memory.with_row_index("row")), at), timed
    series = _series(trace.counters).with_row_index("series")
    counters = tracks.on_threads(trace.counters)
    counters = counters.join(series, on=_SERIES, how="left", nulls_equal=True, maintain_order="left")
    event = _event("C", cat=_text("series"), name=_name("name"), ts=at, args=pl.struct("value"))
    yield counters, event, timed


def _event(phase: str, **values: pl.Expr) -> dict[str, pl.Expr]:
    """None of the values may be null."""
    return {"ph": pl.lit(phase), "pid": _col("process"), "tid": _col("thread"), **values}


def _span(name: pl.Expr, category: pl.Expr, at: pl.Expr, taken: pl.Expr, args: Members) -> dict[str, pl.Expr]:
    return _event("X", cat=category, name=name, ts=at, dur=taken, args=_object(args))


def _args(frame: pl.DataFrame, names: Mapping[str, str]) -> dict[str, pl.Expr]:
    """An arg for each column that holds anything, and args that say that the name, or the end, is null."""
    held = {column: key for column, key in names.items() if frame[column].count() or not frame.height}
    args = {key: _col(column) if frame[column].dtype.is_numeric() else _text(column) for column, key in held.items()}
    if "end_ns" in frame.columns and "end_ns" not in names and frame["end_ns"].null_count():
        is_open = _col("end_ns").is_null()
        if "is_mark" in frame.columns:
            is_open &= ~_col("is_mark").fill_null(value=False)
        args[keys.ENDED] = pl.when(is_open).then(pl.lit(keys.NOT_ENDED))
    if "name" not in names and frame["name"].null_count():
        args[keys.UNNAMED] = pl.when(_col("name").is_null()).then(1)
    return args


def _named(values: Members) -> list[pl.Expr]:
    return [value.alias(key) for key, value in values.items()]


def _object(values: Members) -> pl.Expr:
    return pl.struct(_named(values))


def _microseconds(ns: pl.Expr) -> pl.Expr:
    return ns.cast(pl.Duration("ns"))


def _json(text: pl.Expr) -> pl.Expr:
    return text.cast(pl.Binary)


def _text(column: str) -> pl.Expr:
    return _col(column).cast(pl.String)


def _name(column: str) -> pl.Expr:
    return _col(column).fill_null("(no name)").cast(pl.String)


def _category(other: str) -> pl.Expr:
    return _text("kind").fill_null(other).replace(_CATEGORIES)


def _list(value: str) -> str:
    """As a JSON list where the text is one, else as a JSON text."""
    try:
        is_list = value.startswith("[") and json.dumps(json.loads(value)) == value
    except (ValueError, RecursionError):
        is_list = False
    return value if is_list else json.dumps(value)


def _sizes(of: str) -> pl.Expr:
    axes = [f"{of}_{axis}" for axis in "xyz"]
    known = pl.any_horizontal(_col(axis).is_not_null() for axis in axes)
    return pl.when(known).then(_json(pl.format("[{}, {}, {}]", *(_text(axis).fill_null("null") for axis in axes))))


def _ranges(ranges: pl.DataFrame, at: pl.Expr, taken: pl.Expr, end: pl.Expr) -> Iterator[Events]:
    """Ranges of the tree as spans; overlapping ones as pairs with an id, which viewers draw on separate lines."""
    is_mark, is_async = (_col(name).fill_null(value=False) for name in ("is_mark", "is_async"))
    began = _col("start_ns").is_not_null()
    name, category = _name("name"), _category("user")
    args = _args(ranges, keys.EVENTS["ranges"])
    overlaps = is_async & ~_col("was_async")
    if ranges.select(overlaps.any()).item():
        args[keys.OVERLAPS] = pl.when(overlaps).then(1)
    if "modules" in ranges.columns:
        args["Module Hierarchy"] = _text("modules")
    ranges = ranges.with_columns(inputs=inputs.each(ranges["inputs"], inputs.to_torch))
    for column in keys.LISTS:
        if ranges[column].count():
            ranges = ranges.with_columns(inputs.each(ranges[column], _list))
            args[keys.RANGES[column]] = _json(_text(column))
    yield ranges, _span(name, category, at, taken, args), began & ~is_mark & ~is_async
    apart = began & ~is_mark & is_async
    pair = {"cat": category, "name": name, "id": _text("row")}
    yield ranges, _event("b", **pair, ts=at, args=_object(args)), apart
    yield ranges, _event("e", **pair, ts=end), apart
    yield ranges, _event("i", cat=category, name=name, ts=at, s=pl.lit("t"), args=_object(args)), began & is_mark


def _memory(memory: pl.DataFrame, at: pl.Expr) -> tuple[pl.DataFrame, Members]:
    """As torch.profiler writes it: freed bytes are negative, the host is device -1."""
    event = _text("event")
    name = event.replace_strict(_MEMORY_NAMES, default=pl.concat_str(pl.lit("[memory "), event, pl.lit("]")))
    signed = _col("bytes") * pl.when(event == "free").then(-1).otherwise(1)
    rows = memory.with_columns(signed, _col("device_id").fill_null(-1), end_ns=_col("end_ns") - _col("time_ns"))
    args = {**_args(rows, keys.EVENTS["memory"]), "Device Type": (_col("device_id") >= 0).cast(pl.Int32)}
    category, name = pl.lit("cpu_instant_event"), name.fill_null("[memory]")
    return rows, _event("i", cat=category, name=name, ts=at, s=pl.lit("t"), args=_object(args))


def _arrows(kind: str, sources: pl.DataFrame, targets: pl.DataFrame, ids: pl.Series, at: pl.Expr) -> Iterator[Events]:
    """Arrows from the beginning of each source to the beginning of its target."""
    values = {"cat": pl.lit(kind), "name": pl.lit(kind), "id": _col("arrow"), "ts": at}
    drawn = sources["start_ns"].is_not_null()
    yield sources.with_columns(arrow=ids).filter(drawn), _event("s", **values), None
    yield targets.with_columns(arrow=ids).filter(drawn), _event("f", **values, bp=pl.lit("e")), None
