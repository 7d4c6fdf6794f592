"""Makes two frames of the events of a trace, one for the CPU and one for the devices.

The frames are made from the trace's tables and the columns that `analysis` adds. `cpu` has the rows of `trace.ranges`
in the same order, so row numbers are valid for both. Rows of marks (points in time) are not events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from opspan import analysis
from opspan.analysis.averages import on_device
from opspan.analysis.functions import frames
from opspan.analysis.hierarchy import hierarchy
from opspan.analysis.memory import SELF, TOTALS
from opspan.analysis.nest import timed, timeless
from opspan.events.kinds import DeviceType
from opspan.row_numbers import ROW_NUMBER
from opspan.tables.schema import KIND, NAME, WORK_KIND

if TYPE_CHECKING:
    from opspan.tables import Tables

Schema = dict[str, pl.DataType | type[pl.DataType]]

# Columns of EventColumns.cpu. Some come from the trace, the others from the analysis.
CPU: Schema = {
    "rank": pl.Int32,
    "tid": pl.Int64,
    "name": NAME,
    "kind": KIND,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,  # never null, because open ranges get the end of the trace
    "parent": ROW_NUMBER,  # row of the innermost enclosing range of the thread; null at the top and for async ranges
    "is_event": pl.Boolean,
    "is_async": pl.Boolean,
    "self_ns": pl.Int64,  # duration without the direct children; 0 for async ranges
    "self_device_ns": pl.Int64,  # time of the work that the range itself launched, and not an inner range; 0 if async
    "device_ns": pl.Int64,  # time of the work that this range and all ranges inside it launched
    "seq": pl.Int64,
    "forward_tid": pl.Int64,  # thread of the forward op; null if the label does not name it (then see `forward`)
    "forward": ROW_NUMBER,  # row of the forward op; null if unknown
    "op_id": pl.Int64,
    "sizes": NAME,
    "input_types": NAME,
    "input_strides": NAME,
    "inputs": NAME,
    "overload": NAME,
    "function": ROW_NUMBER,  # row, in `functions`, of the innermost function that the range runs in
}
# Columns of EventColumns.device.
DEVICE: Schema = {
    "rank": pl.Int32,
    "device_id": pl.Int64,
    "stream_id": pl.Int64,
    "kind": WORK_KIND,
    "name": NAME,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "range": ROW_NUMBER,  # row in `cpu` of the innermost range that launched the work; null if unknown
}
# Further columns of EventColumns.cpu, if the trace has memory: bytes that were allocated minus bytes that were freed.
MEMORY: Schema = dict.fromkeys((*TOTALS, *SELF), pl.Int64)
# A further column if flops are requested: the flops of the op, or 0 if they are not known.
FLOPS: Schema = {"flops": pl.Int64}
# A further column if ranges have keyword values: these values, as a JSON object.
KEYWORDS: Schema = {"keywords": pl.String}
FUNCTIONS: Schema = {"name": NAME, "parent": ROW_NUMBER}


class EventColumns(NamedTuple):
    cpu: pl.DataFrame  # may also have the columns is_python (if Python functions are events) and modules (if recorded)
    device: pl.DataFrame
    use_device: str | None = None  # torch's name for the kind of device; None: no device has work
    device_type: DeviceType = DeviceType.CUDA
    # The functions that ranges run in. `parent` is the row of the calling function.
    functions: pl.DataFrame = pl.DataFrame(schema=FUNCTIONS)

    @property
    def has_memory(self) -> bool:
        return "cpu_memory" in self.cpu.columns

    @property
    def has_flops(self) -> bool:
        return "flops" in self.cpu.columns

    def since(self, zero_ns: int) -> EventColumns:
        """Returns the same events, with times that count from `zero_ns`."""
        if not zero_ns:
            return self
        times = pl.col("start_ns", "end_ns") - zero_ns
        return self._replace(cpu=self.cpu.with_columns(times), device=self.device.with_columns(times))

    def with_flops(self) -> EventColumns:
        from opspan.analysis.flops import flops

        return self._replace(cpu=self.cpu.with_columns(flops(self.cpu).fill_null(0)))


def event_columns(trace: Tables) -> EventColumns:
    """Returns the events of a trace. `analysis.attribute` must have added its columns to the trace."""
    ranges, work = _without_async_owners(trace.ranges, on_device(trace.work))
    function, functions = frames(ranges, trace.functions)
    cpu = _cpu(ranges).with_columns(function.alias("function"))
    if ranges["class_name"].count() and (modules := hierarchy(ranges)) is not None:
        cpu = cpu.with_columns(modules.alias("modules"))
    return EventColumns(cpu, _device(work), *_kind_of_device(trace, work), functions)


def _without_async_owners(ranges: pl.DataFrame, work: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Gives the work of each async range to the range around it, because async events have no device time in torch."""
    owner_is_async = ranges["is_async"].gather(work["range"]).fill_null(value=False)
    if not owner_is_async.any():
        return ranges, work
    around = ranges["parent"].gather(work["range"])  # an enclosing range is never async
    work = work.with_columns(range=around.zip_with(owner_is_async, work["range"]))
    return analysis.device_time(ranges, work), work


def _cpu(ranges: pl.DataFrame) -> pl.DataFrame:
    """Returns the CPU's events. Unchanged columns are shared with the trace, and take no further memory."""
    is_mark, is_async = (pl.col(name).fill_null(value=False) for name in ("is_mark", "is_async"))
    start = pl.col("start_ns")
    if timeless(ranges) is not None:
        # Ops of a replayed graph took no time of the host. They get the start of the range that launched the replay.
        start = pl.lit(ranges["start_ns"].gather(timed(ranges)))
    columns = {"is_event": ~is_mark & start.is_not_null(), "is_async": is_async, "start_ns": start}
    if ranges["end_ns"].null_count():
        columns["end_ns"] = pl.coalesce("end_ns", start)
    has_async = ranges["is_async"].any()
    if has_async:
        columns["parent"] = pl.when(~is_async).then("parent")
    for name in ("self_ns", "self_device_ns", "device_ns"):
        if has_async or ranges.select(pl.col(name).has_nulls()).item():
            columns[name] = pl.when(is_async).then(0).otherwise(pl.col(name).fill_null(0))
    if "forward" not in ranges.columns:
        columns["forward"] = pl.lit(None)
    schema = {**CPU, **MEMORY} if set(MEMORY) <= set(ranges.columns) else CPU
    if (keywords := keywords_of(ranges)) is not None:
        columns["keywords"] = keywords
        schema = {**schema, **KEYWORDS}
    return _select(ranges, columns, schema)


def keywords_of(ranges: pl.DataFrame) -> pl.Expr | None:
    """Returns the keyword values of each range as a JSON object, or None if no range has keyword values. A capture has
    them in payloads such as {"keywords": "{\\"grid\\": \\"g\\"}"}."""
    has_keywords = pl.col("payload_json").str.contains('"keywords": "', literal=True)
    if not ranges.select(has_keywords.any()).item():
        return None
    return pl.when(has_keywords).then(pl.col("payload_json").str.json_path_match("$.keywords"))


def _device(work: pl.DataFrame) -> pl.DataFrame:
    # torch uses full names, with template arguments
    columns = {"name": pl.coalesce("full_name", "name") if work["full_name"].null_count() else pl.col("full_name")}
    if work.select(((pl.col("end_ns") < pl.col("start_ns")) | pl.col("end_ns").is_null()).any()).item():
        columns["end_ns"] = pl.max_horizontal("start_ns", "end_ns")
    return _select(work.filter(pl.col("start_ns").is_not_null()), columns, DEVICE)


def _select(frame: pl.DataFrame, columns: dict[str, pl.Expr], schema: Schema) -> pl.DataFrame:
    columns = {"rank": pl.col("rank").fill_null(0), **columns}
    same = {name for name, dtype in schema.items() if name not in columns and frame.schema[name] == dtype}
    return frame.select(
        pl.col(name) if name in same else columns.get(name, pl.col(name)).cast(dtype).alias(name)
        for name, dtype in schema.items()
    )


def _kind_of_device(trace: Tables, work: pl.DataFrame) -> tuple[str | None, DeviceType]:
    if not work.height:
        return None, DeviceType.CUDA
    is_xpu = "xpu" in trace.devices["kind"].cast(pl.String).to_list()
    return ("xpu", DeviceType.XPU) if is_xpu else ("cuda", DeviceType.CUDA)
