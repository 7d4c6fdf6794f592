"""Lists the events of torch.profiler's files in the way of torch.profiler, so that tables are equal to torch's tables.

Besides ops, the list has the calls into libraries and, if traced, Python functions. Both count as children, so their
time is not self time of the event around them. An only child with its parent's name becomes part of the parent.
"""

from __future__ import annotations

import polars as pl

from opspan import analysis
from opspan.analysis.autograd import arrow_numbers
from opspan.analysis.memory import TOTALS, changes, during, summed, without_children
from opspan.analysis.nest import enclose, nearest
from opspan.events.columns import EventColumns, event_columns
from opspan.row_numbers import ROW_NUMBER
from opspan.tables import Tables
from opspan.tables.external_ids import external_ids
from opspan.tables.schema import NAME

_col = pl.col
_SPAN = ("rank", "pid", "tid", "start_ns", "end_ns", "name")
_TIMES = ("self_ns", "self_device_ns")
# Events that torch leaves out of its list.
_UNLISTED: tuple[str, ...] = ("[memory]", "[OutOfMemory]", "aten::is_leaf", "aten::output_nr", "aten::_version")
_UNLISTED += tuple(f"profiler::_record_function_{when}" for when in ("enter", "enter_new", "exit"))


def profiler_columns(trace: Tables) -> EventColumns:
    """Returns the events of a trace. `analysis.attribute` must have added its columns to the trace."""
    # The order of `spans` matters: if spans have equal times, the function becomes the outermost, then comes the op,
    # then the call into a library.
    before = trace.functions.height
    numbered = trace.ranges.with_columns(external_ids(trace.ranges).alias("op_id"))  # External ids of a Chrome trace
    spans = [trace.functions.select(_SPAN), numbered, trace.calls.select(_SPAN)]
    ranges = _with_args(pl.concat(spans, how="diagonal")).with_columns(
        (_col("end_tid") != _col("tid")).fill_null(value=False).alias("is_async"),  # torch's rule for async events
        (_col("is_mark") | _col("name").is_in(_UNLISTED)).fill_null(value=False).alias("is_mark"),
    )
    ranges = ranges.with_columns(end_ns=pl.max_horizontal("start_ns", "end_ns"), forward=_col("forward") + before)
    memory = changes(trace.memory)
    alone = _alone(memory, ranges)
    if alone.height:
        ranges = pl.concat([ranges, alone.drop("cpu_memory", "device_memory")], how="diagonal")
    work = trace.work.with_columns(_col("range", "launch_range") + before)
    ranges = analysis.device_time(enclose(ranges), work)
    # Functions are events here, so other events have no stack of functions.
    ranges = _with_engine(ranges.with_columns(function=pl.lit(None, dtype=ROW_NUMBER)))
    # Makes a new Tables, because `replace` would drop the analysis when rows change.
    columns = event_columns(Tables(trace.ranks, **{**trace.frames, "ranges": ranges, "work": work}))
    is_python = pl.int_range(pl.len()) < before
    columns = _folded(columns._replace(cpu=columns.cpu.with_columns(is_python.alias("is_python"))))
    return _with_flows(_with_memory(columns, memory, alone) if memory.height else columns)


def numbered_engine(ranges: pl.DataFrame) -> pl.DataFrame:
    """Returns the ranges of a trace. Those of the autograd engine get sequence numbers, as in torch.profiler."""
    return _with_engine(enclose(ranges)).select(ranges.columns)


def _with_args(ranges: pl.DataFrame) -> pl.DataFrame:
    """Adds an input without sizes and without a type to each range that has a text argument of record_function
    (`args`). As in torch, does so only if sizes were recorded."""
    has_args = _col("args").is_not_null() & _col("sizes").is_null()
    if not ranges["args"].count() or not ranges["sizes"].count():
        return ranges
    places = {"sizes": "[[]]", "input_strides": "[[]]", "input_types": '[""]'}
    return ranges.with_columns(
        pl.when(has_args).then(pl.lit(place, dtype=NAME)).otherwise(name).alias(name) for name, place in places.items()
    )


def _with_flows(columns: EventColumns) -> EventColumns:
    """Adds the numbers of the arrows from forward to backward in a Chrome trace. A backward op has the number of its
    arrow, a forward op that of its first arrow, and all other events 0. Events without a forward op get 0 as the
    forward op's thread, as in torch."""
    ends = (_col("kind") == "backward").fill_null(value=False) & _col("forward").is_not_null()
    cpu = columns.cpu.with_row_index("row").with_columns(arrow=arrow_numbers(ends))
    first = cpu.group_by(row="forward").agg(first=_col("arrow").min())
    cpu = cpu.join(first, on="row", how="left", maintain_order="left")
    begins, number = _col("first").is_not_null(), pl.coalesce("arrow", "first", 0)
    linked = columns.cpu["tid"].gather(columns.cpu["forward"])
    thread = pl.coalesce("forward_tid", linked, 0)
    return columns._replace(
        cpu=cpu.with_columns(flow_id=number, flow_start=begins, forward_tid=thread).drop("row", "arrow", "first")
    )


def _with_engine(ranges: pl.DataFrame) -> pl.DataFrame:
    """Gives each range of the autograd engine the sequence number and the forward thread of the backward op that it
    runs. Removes the forward thread from ops without a sequence number."""
    names = ("seq", "forward_tid")
    rows = pl.int_range(ranges.height, dtype=ROW_NUMBER, eager=True)
    ops = ranges.select("parent", *names, row=rows).filter(_col("parent").is_not_null(), ranges["kind"] == "backward")
    first = ops.sort("row").unique("parent", keep="first").rename({name: f"{name}_of_op" for name in names})
    joined = pl.DataFrame({"parent": rows}).join(first, on="parent", how="left", maintain_order="left")
    is_engine = (ranges["kind"] == "engine").fill_null(value=False)
    ranges = ranges.with_columns(
        pl.when(pl.lit(is_engine)).then(pl.coalesce(name, joined[f"{name}_of_op"])).otherwise(name).alias(name)
        for name in names
    )
    return ranges.with_columns(forward_tid=pl.when(_col("seq").is_not_null()).then("forward_tid"))


def _alone(memory: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    """Returns the memory changes that happened while no event was open on any thread, as events of zero length."""
    listed = ranges.filter(~_col("is_mark"), _col("start_ns").is_not_null())
    begun = listed["start_ns"].sort().search_sorted(memory["time_ns"], side="right")
    ended = listed["end_ns"].sort().search_sorted(memory["time_ns"], side="left")
    return memory.filter(begun == ended).select(
        "rank",
        "pid",
        "tid",
        _col("time_ns").alias("start_ns"),
        _col("time_ns").alias("end_ns"),
        "cpu_memory",
        "device_memory",
        pl.lit("[memory]", dtype=NAME).alias("name"),
        pl.lit(value=False).alias("is_async"),
        pl.lit(value=False).alias("is_mark"),
    )


def _with_memory(columns: EventColumns, memory: pl.DataFrame, alone: pl.DataFrame) -> EventColumns:
    """Adds, for each event, the memory that all threads allocated while the event lasted, as torch counts it. Subtracts
    the memory of the children to get the self memory. The last rows of the CPU's events are the events of `alone`."""
    cpu = columns.cpu
    before = cpu.height - alone.height
    lasting = during(memory, cpu["start_ns"].head(before), cpu["end_ns"].head(before))
    totals = pl.concat([lasting, alone.select(TOTALS)])
    own = without_children(totals, cpu["parent"], cpu["is_event"])
    return columns._replace(cpu=cpu.with_columns(*totals, *own))


def _folded(columns: EventColumns) -> EventColumns:
    """Removes each event that is the only child of a parent with the same name. The parent gets the children, work and
    times of the removed event."""
    cpu = columns.cpu
    in_tree = cpu["is_event"] & ~cpu["is_async"]
    parent = cpu["parent"].zip_with(in_tree, pl.Series([None], dtype=ROW_NUMBER))
    siblings = pl.DataFrame({"parent": parent}).select(pl.len().over("parent")).to_series()
    name = cpu["name"].to_physical()
    is_folded = ((siblings == 1) & (name == name.gather(parent))).fill_null(value=False)
    if not is_folded.any():
        return columns
    owner = nearest(pl.DataFrame({"parent": parent}), ~is_folded)
    added = summed(cpu.select(_TIMES), owner, is_folded)
    cpu = cpu.with_columns(
        *(cpu[name] + added[name] for name in _TIMES),
        (cpu["is_event"] & ~is_folded).alias("is_event"),
        owner.gather(parent).alias("parent"),
    )
    device = columns.device.with_columns(owner.gather(columns.device["range"]).alias("range"))
    return columns._replace(cpu=cpu, device=device)
