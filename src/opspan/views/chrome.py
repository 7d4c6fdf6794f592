"""A Chrome trace (JSON, gzipped where the name ends with .gz), for Perfetto, chrome://tracing and what reads those.

    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7, "tid": 7, "ts": 12.345, "dur": 6.789, "args": {...}}

Categories, arrows (`ac2g` from a call to its work, `fwdbwd` from an op to its backward) and the names of args are those
of torch.profiler's own files, so that tools for those find their way. A device is a process, each of its streams a
thread. Times are microseconds from the first thing in the trace, `baseTimeNanoseconds` is the UTC time of that.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

import polars as pl

from opspan.analysis import attribute
from opspan.analysis.autograd import BY_NESTING
from opspan.analysis.nest import trace_end_ns
from opspan.trace import Trace
from opspan.views.json_text import constant, members, microseconds, number, real, text
from opspan.views.places import places_of

_BATCH = 100_000  # rows that are text at a time
_col = pl.col
Lines = tuple[pl.DataFrame, pl.Expr]  # rows, and how to write one of them

_CATEGORIES = {
    "op": "cpu_op",
    "backward": "cpu_op",
    "engine": "cpu_op",
    "user": "user_annotation",
    "module": "user_annotation",
    "step": "user_annotation",
    "memcpy": "gpu_memcpy",
    "memset": "gpu_memset",
    "sync": "cuda_sync",
    "graph": "cuda_graph",
}
_RANGE_ARGS = {
    "Kind": text(_col("kind")),
    "External id": number(_col("op_id")),
    "Sequence number": number(_col("seq")),
    "Fwd thread id": number(_col("forward_tid")),
    "Input Dims": text(_col("sizes")),
    "Class": text(_col("class_name")),
    "Args": text(_col("args")),
    "Domain": text(_col("domain")),
    "Category": text(_col("category")),
    "Payload": pl.coalesce(number(_col("payload_int")), number(_col("payload_uint")), real(_col("payload_float"))),
    "Data": text(_col("payload_json")),
    "Text": text(_col("text")),
}
_CALL_ARGS = {
    "correlation": number(_col("correlation_id")),
    "result": number(_col("return_code")),
    "Data": text(_col("payload_json")),
}
_FUNCTION_ARGS = {"Python id": number(_col("id")), "Python parent id": number(_col("parent_id"))}
_WORK_ARGS = {
    "device": number(_col("device_id")),
    "context": number(_col("context_id")),
    "stream": number(_col("stream_id")),
    "correlation": number(_col("correlation_id")),
    "graph node id": number(_col("graph_node_id")),
    "bytes": number(_col("bytes")),
    "grid": pl.format("[{}, {}, {}]", "grid_x", "grid_y", "grid_z"),
    "block": pl.format("[{}, {}, {}]", "block_x", "block_y", "block_z"),
    "registers per thread": number(_col("registers")),
    "shared memory": number(_col("static_shared_bytes") + _col("dynamic_shared_bytes")),
    "Data": text(_col("payload_json")),
}
_SPANS = ("ranges", "calls", "work", "functions")


def write(trace: Trace, path: Path) -> list[str]:
    trace = attribute(trace)
    is_gzip = path.suffix.lower() == ".gz"
    with gzip.open(path, "wt", 6, encoding="utf-8") if is_gzip else path.open("w", encoding="utf-8") as file:
        _write(trace, file)
    return _left_out(trace)


def _write(trace: Trace, file: TextIO) -> None:
    starts = [trace.frames[name]["start_ns"].min() for name in _SPANS]
    times = [time for time in (*starts, trace.counters["time_ns"].min()) if isinstance(time, int)]
    zero_ns = min(times, default=0)
    file.write(json.dumps(_head(trace, zero_ns))[:-1] + ', "traceEvents": [\n')
    separator = ""
    for frame, line in _events(trace, zero_ns):
        for start in range(0, frame.height, _BATCH):
            lines = frame.slice(start, _BATCH).select(line.alias("line"))["line"]
            file.write(separator + ",\n".join(lines.to_list()))
            separator = ",\n"
    file.write("\n]}\n")


def _left_out(trace: Trace) -> list[str]:
    """What is in the trace and has no place in the file."""
    timeless = {name: trace.frames[name]["start_ns"].null_count() for name in _SPANS}
    said = [f"{count:,} {name} are not in it, for they have no start" for name, count in timeless.items() if count]
    frames = {name: trace.frames[name] for name in ("memory", "samples")}
    others = [f"{frame.height:,} rows of {name}" for name, frame in frames.items() if frame.height]
    if others:
        said.append(f"{' and '.join(others)} are not in it; .sqlite and .parquet have them")
    return said


def _head(trace: Trace, zero_ns: int) -> dict[str, Any]:
    head: dict[str, Any] = {"schemaVersion": 1, "displayTimeUnit": "ms"}
    if trace.origin_utc_ns is not None:
        head["baseTimeNanoseconds"] = trace.origin_utc_ns + zero_ns
    head["sources"] = [
        {"rank": rank, "source": one.source, "tool": one.tool, "version": one.tool_version, "host": one.host}
        for rank, one in enumerate(trace.ranks)
    ]
    return head


def _events(trace: Trace, zero_ns: int) -> Iterator[Lines]:
    places = places_of(trace)
    for frame, what in (
        (places.processes, "process_name"),
        (places.threads, "thread_name"),
        (places.devices, "process_name"),
        (places.streams, "thread_name"),
    ):
        yield frame, _event("M", name=constant(what), args=members({"name": text(_col("title"))}))
    began, last_ns = _col("start_ns").is_not_null(), trace_end_ns(*(trace.frames[name] for name in _SPANS))
    ranges = places.on_threads(trace.ranges.with_row_index("row"))
    calls = places.on_threads(trace.calls.with_row_index("row"))
    work = places.on_devices(trace.work.with_row_index("row"))
    at = microseconds(_col("start_ns") - zero_ns)
    ends_ns = _col("end_ns").fill_null(last_ns)
    taken = microseconds((ends_ns - _col("start_ns")).clip(lower_bound=0))

    yield from _ranges(ranges.filter(began), at, taken, microseconds(ends_ns - zero_ns))
    category = pl.coalesce(text(_col("api")), constant("call"))
    yield calls.filter(began), _span(_name("name"), category, at, taken, _CALL_ARGS)
    functions = places.on_threads(trace.functions)
    yield functions.filter(began), _span(_name("name"), constant("python_function"), at, taken, _FUNCTION_ARGS)
    name = pl.coalesce(text(_col("full_name")), _name("name"))
    category = pl.when(_col("is_overhead")).then(constant("overhead")).otherwise(_category("other"))
    yield work.filter(began), _span(name, category, at, taken, _WORK_ARGS)

    launched = work.filter(_col("call").is_not_null(), began)
    yield from _arrows("ac2g", calls[launched["call"]], launched, launched["row"], at)
    linked = ranges.filter(_col("forward").is_not_null(), _col("link") != BY_NESTING, began)
    # Numbers of their own, past those of the others: some viewers know arrows by number alone.
    yield from _arrows("fwdbwd", ranges[linked["forward"]], linked, linked["row"] + work.height, at)

    counters = places.on_threads(trace.counters).filter(_col("time_ns").is_not_null(), _col("value").is_not_null())
    value = members({"value": real(_col("value"))})
    yield counters, _event("C", name=_name("name"), ts=microseconds(_col("time_ns") - zero_ns), args=value)


def _event(phase: str, **values: pl.Expr) -> pl.Expr:
    return members({"ph": constant(phase), "pid": number(_col("process")), "tid": number(_col("thread")), **values})


def _span(name: pl.Expr, category: pl.Expr, at: pl.Expr, taken: pl.Expr, args: Mapping[str, pl.Expr]) -> pl.Expr:
    return _event("X", cat=category, name=name, ts=at, dur=taken, args=members(args))


def _name(column: str) -> pl.Expr:
    return pl.coalesce(text(_col(column)), constant("(no name)"))


def _category(other: str) -> pl.Expr:
    kind = _col("kind").cast(pl.String).fill_null(other)
    return text(kind.replace(_CATEGORIES))


def _ranges(ranges: pl.DataFrame, at: pl.Expr, taken: pl.Expr, end: pl.Expr) -> Iterator[Lines]:
    """Those of the tree as spans; those that overlap as pairs with an id, which viewers draw on lines of their own."""
    is_mark, is_async = (_col(name).fill_null(value=False) for name in ("is_mark", "is_async"))
    name, category, args = _name("name"), _category("range"), members(_RANGE_ARGS)
    yield ranges.filter(~is_mark, ~is_async), _span(name, category, at, taken, _RANGE_ARGS)
    apart = ranges.filter(~is_mark, is_async)
    pair = {"cat": category, "name": name, "id": number(_col("row"))}
    yield apart, _event("b", **pair, ts=at, args=args)
    yield apart, _event("e", **pair, ts=end)
    yield ranges.filter(is_mark), _event("i", cat=category, name=name, ts=at, s=constant("t"), args=args)


def _arrows(kind: str, sources: pl.DataFrame, targets: pl.DataFrame, ids: pl.Series, at: pl.Expr) -> Iterator[Lines]:
    """From the beginning of each source to that of its target."""
    values = {"cat": constant(kind), "name": constant(kind), "id": number(_col("arrow")), "ts": at}
    drawn = sources["start_ns"].is_not_null()
    yield sources.with_columns(arrow=ids).filter(drawn), _event("s", **values)
    yield targets.with_columns(arrow=ids).filter(drawn), _event("f", **values, bp=constant("e"))
