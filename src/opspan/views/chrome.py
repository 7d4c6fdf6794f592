"""A Chrome trace (JSON, gzipped if the name ends with .gz), for Perfetto, chrome://tracing and similar tools.

    {"ph":"X","pid":7,"tid":7,"cat":"cpu_op","name":"aten::mm","ts":12.345,"dur":6.789,"args":{...}}

The categories, the arrows and the names of args are those of torch.profiler's own files, so tools for these files can
also read ours. An `ac2g` arrow goes from a call to the kernel or copy that it launched, a `fwdbwd` arrow from an op to
its backward op. A device is written as a process, and each of its streams as a thread. Times are in microseconds. Time
0 is the begin of the trace, rounded down to a whole microsecond, and `baseTimeNanoseconds` is the UTC time of time 0.
The file has no samples; opspan can read the rest back. tables/chrome_keys.py says which column has which key.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import polars as pl

from opspan import native
from opspan.analysis import Analysis
from opspan.analysis.autograd import BY_NESTING, arrow_numbers
from opspan.analysis.nest import trace_end_ns
from opspan.events.columns import keywords_of
from opspan.tables import Tables
from opspan.tables import chrome_keys as keys
from opspan.tables.external_ids import IS_ANNOTATION, external_ids
from opspan.tables.schema import KIND, NAME
from opspan.views import drawn, pieces
from opspan.views.chrome_head import SERIES, head, series
from opspan.views.chrome_tracks import ChromeTracks, tracks_of
from opspan.views.drawn import text
from opspan.views.pieces import Piece

_MODULE_CALL = r"^nn\.Module: .*_([0-9]{1,18})$"  # matches the name that torch and opspan give to a call of a module
_BATCH = 50_000  # number of rows that are written together
_col = pl.col
# The keys of a JSON object, and for each key an expression that computes its value from a row. A key whose value is
# null is left out. native/columns/json_items.cpp says how types are written.
Members = Mapping[str, pl.Expr]
# For one kind of event: the rows, the members of the event of each row, and a condition for the rows that have an event
# (None: all rows).
Events = tuple[pl.DataFrame, Members, pl.Expr | None]

_TOOK = pl.when(_col("end_ns") > _col("start_ns")).then(_col("end_ns") - _col("start_ns"))
# Args that are computed from columns, for tools that read torch.profiler's files. One byte per nanosecond is one GB/s.
_TORCH_ARGS = {
    "shared memory": _col("static_shared_bytes") + _col("dynamic_shared_bytes"),
    "memory bandwidth (GB/s)": pl.when(_col("kind").is_in(["memcpy", "memset"])).then(_col("bytes")) / _TOOK,
}
_AFTER_PROCESSES = 5_000_000  # sort index of the first device; the same as in torch.profiler's files
_ENDS = ("process", "thread", "start_ns")  # columns with the track and the time where an arrow begins or ends


def write(analysis: Analysis, path: Path) -> list[str]:
    trace = drawn.drawn(analysis)
    pieces.write(path, _pieces(trace))
    return drawn.left_out(trace)


def _pieces(trace: Tables) -> Iterator[Callable[[], Piece]]:
    zero_ns = drawn.zero_ns(trace)
    zero_ns -= zero_ns % 1000  # HTA drops fractions of a microsecond, so time 0 must be a whole microsecond
    tracks = tracks_of(trace)
    beginning = json.dumps(head(trace, tracks, zero_ns))[:-1] + ', "traceEvents": [\n'
    yield beginning.encode
    count = 0
    for rows, event, chosen in _events(trace, tracks, zero_ns):
        for start in range(0, rows.height, _BATCH):
            batch = rows.slice(start, _BATCH)
            if chosen is not None:
                is_chosen = batch.select(chosen.fill_null(value=False)).to_series()
                if not is_chosen.any():
                    continue
                batch = batch if is_chosen.all() else batch.filter(is_chosen)
            yield partial(_items, batch, event, count)
            count += batch.height
    yield "\n]}\n".encode


def _items(batch: pl.DataFrame, event: Members, before: int) -> Piece:
    return native.json_items(batch.select(_named(event)), before)


def _events(trace: Tables, tracks: ChromeTracks, zero_ns: int) -> Iterator[Events]:
    yield from _names(tracks)
    began, last_ns = _col("start_ns").is_not_null(), trace_end_ns(*(trace.frames[name] for name in drawn.SPANS))
    external = external_ids(trace.ranges).alias("external")
    ranges = tracks.on_threads(trace.ranges.with_row_index("row").with_columns(external))
    calls = tracks.on_threads(trace.calls.with_row_index("row"))
    work = tracks.on_devices(trace.work.with_row_index("row"))
    at = _microseconds(_col("start_ns") - zero_ns)
    ends_ns = _col("end_ns").fill_null(last_ns)
    taken = _microseconds((ends_ns - _col("start_ns")).clip(lower_bound=0))

    yield from _ranges(trace, ranges, at, taken, _microseconds(ends_ns - zero_ns))
    # The captured ops of a replayed CUDA graph have no event. So the work of a replay gets the id of the range that
    # launched the replay.
    of_work = work["launch_range"].zip_with(work["replayed_range_id"].is_not_null(), work["range"])
    calls, work = calls.with_columns(external.gather(calls["range"])), work.with_columns(external.gather(of_work))
    args = _with_torch_args(trace, "calls", drawn.args(calls, keys.EVENTS["calls"]))
    is_hip = _col("api") == "hip"
    args[keys.API] = pl.when(is_hip).then("api")
    category = pl.when(is_hip).then(pl.lit("cuda_runtime", NAME)).otherwise(drawn.call_category())
    yield calls, _span(drawn.name("name"), category, at, taken, args), began
    functions = tracks.on_threads(trace.functions)
    args = _with_torch_args(trace, "functions", drawn.args(functions, keys.EVENTS["functions"]))
    yield functions, _span(drawn.name("name"), pl.lit("python_function"), at, taken, args), began
    name = pl.coalesce("full_name", drawn.name("name"))
    args = drawn.args(work, keys.EVENTS["work"])
    args |= {key: _json(drawn.sizes(of)) for of, key in keys.SIZES.items()} | drawn.replayed_args(work)
    args = _with_torch_args(trace, "work", args)
    # An event has the full name if it is known. Only then, the short name is needed as an arg.
    args[keys.WORK["name"]] = pl.when(_col("full_name").is_not_null()).then("name")
    if work["name"].null_count():
        args[keys.UNNAMED] = pl.when(_col("name").is_null()).then(1)
    yield work, _span(name, drawn.work_category(), at, taken, args), began

    linked = ranges.select(*_ENDS, "forward", "link")
    linked = linked.filter(_col("forward").is_not_null(), _col("link") != BY_NESTING, began)
    linked = linked.with_columns(arrow=arrow_numbers(pl.lit(value=True)))
    yield from _arrows("fwdbwd", ranges.select(_ENDS)[linked["forward"]], linked, at)
    # Some viewers tell arrows apart only by id. So the ids of `ac2g` arrows begin after those of the `fwdbwd` arrows.
    launched = work.select(*_ENDS, "call", arrow=_col("row") + linked.height + 1)
    launched = launched.filter(_col("call").is_not_null(), began)
    yield from _arrows("ac2g", calls.select(_ENDS)[launched["call"]], launched, at)

    at = _microseconds(_col("time_ns") - zero_ns)
    timed = _col("time_ns").is_not_null()
    yield *_memory(tracks.on_threads(trace.memory.with_row_index("row")), trace, at), timed
    known = series(trace.counters).with_row_index("series")
    counters = tracks.on_threads(trace.counters)
    counters = counters.join(known, on=SERIES, how="left", nulls_equal=True, maintain_order="left")
    event = _event("C", cat=text("series"), name=drawn.name("name"), ts=at, args=pl.struct("value"))
    yield counters, event, timed


def _names(tracks: ChromeTracks) -> Iterator[Events]:
    """Yields the events that name processes and threads, and that put the host above the devices."""
    for frame, what, labels in (
        (tracks.processes, "process", pl.lit("CPU")),
        (tracks.threads, "thread", None),
        (tracks.devices, "process", pl.format("GPU {}", "device_id").fill_null("GPU")),
        (tracks.streams, "thread", None),
    ):
        first = _AFTER_PROCESSES if frame is tracks.devices else 0
        metadata = {"name": {"name": _col("title")}, "sort_index": {"sort_index": pl.int_range(pl.len()) + first}}
        if labels is not None:
            metadata["labels"] = {"labels": labels}
        for name, args in metadata.items():
            yield frame, _event("M", name=pl.lit(f"{what}_{name}"), args=_object(args)), None


def _event(phase: str, **values: pl.Expr) -> dict[str, pl.Expr]:
    """Returns the members of an event: its phase, process and thread, and `values`, which are never null."""
    return {"ph": pl.lit(phase), "pid": _col("process"), "tid": _col("thread"), **values}


def _span(name: pl.Expr, category: pl.Expr, at: pl.Expr, taken: pl.Expr, args: Members) -> dict[str, pl.Expr]:
    return _event("X", cat=category, name=name, ts=at, dur=taken, args=_object(args))


def _is_from_torch(trace: Tables) -> bool:
    return any(rank.source == "kineto" for rank in trace.ranks)


def _with_torch_args(trace: Tables, table: str, args: dict[str, pl.Expr]) -> dict[str, pl.Expr]:
    """Adds the args that other tools look for, under torch.profiler's keys. In a trace of torch.profiler, each event
    has one JSON text with the args that are not columns of opspan. In other traces the args are computed from
    columns."""
    if _is_from_torch(trace):
        ours = [*keys.EVENTS[table].values(), *keys.OTHERS]
        return {**dict.fromkeys(ours, pl.lit(None, pl.Int32)), **args, "...": _col("payload_json")}
    others = {"External id": _col("external")} if table in ("ranges", "calls", "work") else {}
    if table == "ranges":  # torch writes 0 for annotations, which have no op id
        others[keys.RANGES["op_id"]] = pl.coalesce("op_id", pl.when(IS_ANNOTATION).then(0))
        if (keywords := keywords_of(trace.ranges)) is not None:  # torch writes each keyword value as an arg
            args = {**dict.fromkeys(keys.OTHERS, pl.lit(None, pl.Int32)), **args, "...": keywords}
    if table == "memory":  # torch reserves no memory of the host; how much it reserves on a device is not known
        others["Total Reserved"] = pl.when(_col("device_id") < 0).then(0)
    if table == "functions":
        others["Python module id"] = _col("name").cast(pl.String).str.extract(_MODULE_CALL).cast(pl.Int64)
    return args | others | (_TORCH_ARGS if table == "work" else {})


def _named(values: Members) -> list[pl.Expr]:
    return [value.alias(key) for key, value in values.items()]


def _object(values: Members) -> pl.Expr:
    return pl.struct(_named(values))


def _microseconds(ns: pl.Expr) -> pl.Expr:
    return ns.cast(pl.Duration("ns"))


def _json(text: pl.Expr) -> pl.Expr:
    return text.cast(pl.Binary)


def _ranges(trace: Tables, ranges: pl.DataFrame, at: pl.Expr, taken: pl.Expr, end: pl.Expr) -> Iterator[Events]:
    """Yields the events of ranges. A mark becomes an event without a duration. An async range becomes a begin event and
    an end event with the same id; viewers draw such a pair on a separate line. Every other range becomes a span."""
    is_mark, is_async = (_col(name).fill_null(value=False) for name in ("is_mark", "is_async"))
    began = _col("start_ns").is_not_null()
    name, category = _name(ranges), _category() if _is_from_torch(trace) else drawn.category(KIND, "user")
    args = drawn.args(ranges, keys.EVENTS["ranges"])
    overlaps = is_async & ~_col("was_async")
    if ranges.select(overlaps.any()).item():
        args[keys.OVERLAPS] = pl.when(overlaps).then(1)
    if "modules" in ranges.columns:
        args["Module Hierarchy"] = _col("modules")
    ranges = drawn.with_lists(ranges)
    args |= {keys.RANGES[column]: _json(text(column)) for column in keys.LISTS if ranges[column].count()}
    args = _with_torch_args(trace, "ranges", args)
    yield ranges, _span(name, category, at, taken, args), began & ~is_mark & ~is_async
    apart = began & ~is_mark & is_async
    pair = {"cat": category, "name": name, "id": text("row")}
    yield ranges, _event("b", **pair, ts=at, args=_object(args)), apart
    yield ranges, _event("e", **pair, ts=end), apart
    yield ranges, _event("i", cat=category, name=name, ts=at, s=pl.lit("t"), args=_object(args)), began & is_mark


def _name(ranges: pl.DataFrame) -> pl.Expr:
    """Returns the name of a range with the overload of its op, as torch.profiler writes it: aten::add.Tensor."""
    name = drawn.name("name")
    if not ranges["overload"].count():
        return name
    return pl.when(_col("overload") != "").then(pl.format("{}.{}", name, "overload")).otherwise(name)


def _category() -> pl.Expr:
    """Returns the category that torch.profiler wrote for a range. If there is none, returns torch.profiler's category
    for marks, ops or other ranges."""
    mark, op, other = (pl.lit(name, NAME) for name in ("cpu_instant_event", "cpu_op", "user_annotation"))
    return pl.coalesce("category", pl.when("is_mark").then(mark).when(_col("source") == "torch").then(op), other)


def _memory(memory: pl.DataFrame, trace: Tables, at: pl.Expr) -> tuple[pl.DataFrame, Members]:
    """Returns events of memory as torch.profiler writes them: freed bytes are negative, the host is device -1."""
    signed = _col("bytes") * pl.when(_col("event") == "free").then(-1).otherwise(1)
    rows = memory.with_columns(signed, _col("device_id").fill_null(-1), end_ns=_col("end_ns") - _col("time_ns"))
    args = _with_torch_args(trace, "memory", drawn.args(rows, keys.EVENTS["memory"]))
    args["Device Type"] = (_col("device_id") >= 0).cast(pl.Int32)
    category, name = pl.lit("cpu_instant_event"), drawn.memory_name()
    return rows, _event("i", cat=category, name=name, ts=at, s=pl.lit("t"), args=_object(args))


def _arrows(kind: str, sources: pl.DataFrame, targets: pl.DataFrame, at: pl.Expr) -> Iterator[Events]:
    """Yields arrows from the beginning of each source to the beginning of its target. The column `arrow` of `targets`
    has the ids of the arrows."""
    values = {"cat": pl.lit(kind), "name": pl.lit(kind), "id": _col("arrow"), "ts": at}
    drawn = sources["start_ns"].is_not_null()
    yield sources.with_columns(targets["arrow"]).filter(drawn), _event("s", **values), None
    yield targets.filter(drawn), _event("f", **values, bp=pl.lit("e")), None
