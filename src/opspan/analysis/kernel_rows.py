"""Lists kernels, and copies on request, each with its op, module, step and stack.

    kernel_rows(trace, copies) -> a row for each kernel (or copy), in order of start times, with the columns COLUMNS.

The columns that `launches`, `modules`, `steps` and `phases` add are only looked up here, so call `analyse` first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from opspan.analysis.averages import DURATION, on_device
from opspan.analysis.call_stacks import stack_texts
from opspan.analysis.phases import PHASES
from opspan.analysis.source_lines import texts_of_work
from opspan.tables.schema import I32, I64, NAME, RANK, WORK_KIND, Column
from opspan.tables.tables import ids_of

if TYPE_CHECKING:
    from opspan.tables import Tables

COLUMNS = (
    Column("id", I64, "Number of the row in `trace.work`, which has the rest: grid, block, registers, bytes."),
    Column("rank", I32, RANK),
    Column("device_id", I32, "The device that it ran on."),
    Column("stream_id", I64, "The stream, or queue, that it ran on."),
    Column("kind", WORK_KIND, "`kernel`, or `graph`: a CUDA graph of which the tool recorded no kernels. Also copies."),
    Column("name", NAME, "Short name of the kernel, or which kind of copy or fill it was."),
    Column("start_ns", I64, "When the device began.", "ns"),
    Column("end_ns", I64, "When it was done.", "ns"),
    Column("duration_ns", I64, "How long it ran.", "ns"),
    Column("op", NAME, "Name of the innermost range that launched it: an op, or a range of the program."),
    Column("shape", NAME, "Sizes of the op's inputs as nested lists: `[[2, 4], [4, 3]]`."),
    Column("module", NAME, "The innermost module around the op; for a backward op, that of its forward op."),
    Column("phase", PHASES, "The phase of training or serving that the op is part of."),
    Column("step", NAME, "The step in which it was launched."),
    Column("stack", NAME, "Functions of Python that the op was called in, a line each, the outermost first."),
    Column("lines", NAME, "Lines of the program that it was made from, or called on: docs/compiled.md."),
    Column("source_ops", NAME, "Ops that the program called, from which torch.compile made it; or the op."),
    Column("call", NAME, "The call that launched it, such as `cudaLaunchKernel`."),
    Column("range_id", I64, "The range whose name is `op`.", refers="ranges.id"),
    Column("launch_range_id", I64, "The range in which `call` was made.", refers="ranges.id"),
    Column("call_id", I64, "The call.", refers="calls.id"),
)
_COPIES = ("memcpy", "memset")
# Columns of ranges, and the names that they have in COLUMNS.
_OF_RANGE = {"name": "op", "sizes": "shape", "module": "module", "phase": "phase"}
_col = pl.col


def kernel_rows(trace: Tables, copies: bool = False) -> pl.DataFrame:
    ranges, calls = trace.ranges, trace.calls
    work = trace.work.with_columns(ids_of(trace.work), *texts_of_work(trace).iter_columns())
    work = on_device(work)
    if not copies:
        work = work.filter(~_col("kind").is_in(_COPIES))
    work = work.sort("start_ns", maintain_order=True)
    of_range, of_launch, of_call = work["range"], work["launch_range"], work["call"]
    rows = work.with_columns(
        DURATION.alias("duration_ns"),
        *(ranges[old].gather(of_range).alias(new) for old, new in _OF_RANGE.items()),
        ranges["step"].gather(of_launch),
        stack_texts(ranges, trace.functions, of_range),
        calls["name"].gather(of_call).alias("call"),
        ids_of(ranges).gather(of_range).alias("range_id"),
        ids_of(ranges).gather(of_launch).alias("launch_range_id"),
        ids_of(calls).gather(of_call).alias("call_id"),
    )
    return rows.select(_col(column.name).cast(column.dtype) for column in COLUMNS)
