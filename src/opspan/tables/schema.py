"""Defines the tables of a Trace: each column's name, type, unit and description. docs/schema.md is made from this file.

Readers fill these columns and no others. An analysis adds columns of its own to a frame.

Texts that repeat (names, domains, sizes) are polars Categoricals. They take a u32 for each row, and are grouped and
joined as integers. Unlike Enums, Categoricals can be concatenated when the frames come from different files. Texts that
are mostly distinct (torch's labels, JSON) are Strings. Texts from a fixed list (kinds) are Enums.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

import polars as pl

from opspan.labels import KIND_NAMES
from opspan.tables.column import I32 as I32
from opspan.tables.column import I64 as I64
from opspan.tables.column import NAME as NAME
from opspan.tables.column import RANK as RANK
from opspan.tables.column import U32 as U32
from opspan.tables.column import U64, TableSchema
from opspan.tables.column import Column as Column
from opspan.tables.column import Dtype as Dtype
from opspan.tables.compiled import COMPILATIONS, GRAPH_BREAKS, PROVENANCE

KIND = pl.Enum(KIND_NAMES)
WORK_KIND = pl.Enum(["kernel", "memcpy", "memset", "sync", "graph", "other"])
MEMORY_EVENT = pl.Enum(["alloc", "free", "usage", "transfer", "fault", "out_of_memory"])
REPLAY = pl.Enum(["unique", "capture", "batch size", "order", "ambiguous"])
SEVERITY = pl.Enum(["info", "warning", "error"])

STEP = r"^ProfilerStep#([0-9]+)$"  # matches the names of torch's numbered steps


def _where(thread: bool = True) -> tuple[Column, ...]:
    """Returns the columns that identify the rank, the process and, if wanted, the thread of a row."""
    rank = Column("rank", I32, RANK)
    pid = Column("pid", I64, "Process, as the operating system numbered it.")
    tid = Column("tid", I64, "Thread, as the operating system numbered it.")
    return (rank, pid, tid) if thread else (rank, pid)


RANGES = TableSchema(
    "ranges",
    "What the program said about itself: ranges and marks, as the tool recorded them.",
    (
        Column("id", I64, "Number of the row in this trace, from 0; other columns and tables refer to it."),
        *_where(),
        Column("end_tid", I64, "Thread that ended the range, if another thread began it."),
        Column("start_ns", I64, "When the range began, or the mark was set; null for an op of a replayed graph.", "ns"),
        Column("end_ns", I64, "When the range ended; null for a mark and for a range that was still open.", "ns"),
        Column("name", NAME, "Name without the fields of the label: the op, the module, the user's text."),
        Column("text", pl.String, "The text that the tool recorded, if it is more than the name."),
        Column("kind", KIND, "Kind of the range; guessed from the name if the label does not have it."),
        Column("source", NAME, "How the range was reported: torch, user, nvtx, itt, ..."),
        Column("domain", NAME, "NVTX or ITT domain; null: the default domain."),
        Column("category", NAME, "The user's category; if it has no name, its number as text."),
        Column("color", U32, "Colour that the program asked for, as ARGB."),
        Column("seq", I64, "Autograd's sequence number; a backward op has the number of its forward op."),
        Column("op_id", I64, "torch's number of the op, unique in its process."),
        Column("forward_tid", I64, "For a backward op, the thread of its forward op."),
        Column("sizes", NAME, "Sizes of the inputs as nested lists: [[2, 4], [[2], [3]], []]."),
        Column("input_types", NAME, 'Types of the inputs, as torch.profiler names them: ["float", "TensorList", ""].'),
        Column("input_strides", NAME, "Strides of the inputs, as nested lists like sizes."),
        Column("inputs", NAME, "Values of inputs that are not tensors, as JSON: [null, [4, 4], 0.1, false]."),
        Column("input_op_ids", pl.String, "For each input, (op_id, output) of the op that made it, as torch guessed."),
        Column("stack", NAME, "Python functions that the range ran in, one per line, the outermost first."),
        Column("overload", NAME, "Overload of the op, for example Tensor for aten::add.Tensor."),
        Column("class_name", NAME, "Class of the module that the range is a call of."),
        Column("module_path", NAME, "The module that the range is in, if no range or function around it says so."),
        Column("args", pl.String, "Arguments that were given to record_function."),
        Column("payload_int", I64, "The user's payload, if it is a signed integer."),
        Column("payload_uint", U64, "The user's payload, if it is an unsigned integer."),
        Column("payload_float", pl.Float64, "The user's payload, if it is a floating-point number."),
        Column("payload_json", pl.String, "All other data of the range, as a JSON object."),
        Column("parent_id", I64, "The range that the program named as parent (ITT).", refers="ranges.id"),
        Column("is_async", pl.Boolean, "Whether it may overlap others of its thread: start/end range, task, frame."),
        Column("is_mark", pl.Boolean, "Whether the row is a point in time instead of a range."),
    ),
)

RELATIONS = TableSchema(
    "relations",
    "What the program said about pairs of ranges (ITT relations).",
    (
        Column("rank", I32, RANK),
        Column("range_id", I64, "The range that the relation is about.", refers="ranges.id"),
        Column("relation", NAME, "How the range is related to the other: is_dependent_on, is_child_of, ..."),
        Column("other_id", I64, "The other range.", refers="ranges.id"),
        Column("time_ns", I64, "When the program reported the relation.", "ns"),
    ),
)

CALLS = TableSchema(
    "calls",
    "Calls into libraries that the tool saw: CUDA, cuBLAS, NCCL, MPI, the operating system; and waits of threads.",
    (
        Column("id", I64, "Number of the row in this trace, from 0."),
        *_where(),
        Column("start_ns", I64, "When the call began.", "ns"),
        Column("end_ns", I64, "When the call returned; null if it did not.", "ns"),
        Column("name", NAME, "Name of the function, without a version suffix; of a wait, what it was for."),
        Column(
            "api", NAME, "Library of the function: cuda_runtime, cublas, nccl, mpi, osrt, ...; `wait`: VTune's waits."
        ),
        Column("correlation_id", I64, "Number by which the tool pairs calls and work; unique only within the process."),
        Column("return_code", I64, "What the call returned."),
        Column("graph_node_id", I64, "Graph node that the call created."),
        Column("original_graph_node_id", I64, "Graph node that the new one was cloned from."),
        Column("graph_id", I64, "Graph that the call created or refers to."),
        Column("original_graph_id", I64, "Graph that the new one was cloned from."),
        Column("graph_exec_id", I64, "Instance of the graph that the call created."),
        Column("payload_json", pl.String, "All other data of the call, as a JSON object."),
    ),
)

WORK = TableSchema(
    "work",
    "What ran on a device: kernels, copies, fills, waits, whole graphs.",
    (
        Column("id", I64, "Number of the row in this trace, from 0."),
        *_where(thread=False),
        Column("tid", I64, "Thread of the host, set only for the profiler's own activity."),
        Column("device_id", I32, "The device, as devices numbers it."),
        Column("context_id", I64, "Context on the device."),
        Column("stream_id", I64, "Stream, or queue, within the context."),
        Column("start_ns", I64, "When the work began.", "ns"),
        Column("end_ns", I64, "When the work ended.", "ns"),
        Column("kind", WORK_KIND, "Kind of the work."),
        Column("name", NAME, "Short name of the kernel, or what kind of copy, fill or wait it was."),
        Column("full_name", NAME, "Name of the kernel with its template arguments."),
        Column("correlation_id", I64, "Number by which the tool pairs calls and work; unique only within the process."),
        Column(
            "named_range_id",
            I64,
            "The range that the work belongs to, if the tool names a range instead of a call.",
            refers="ranges.id",
        ),
        Column("replayed_range_id", I64, "The op whose captured launch the work repeats.", refers="ranges.id"),
        Column("replay", REPLAY, "How the captured launch was found: docs/graphs.md."),
        Column("is_replay_sure", pl.Boolean, "Whether all launches that it may repeat have the same op and sizes."),
        Column("graph_id", I64, "Graph that the work belongs to."),
        Column("graph_exec_id", I64, "Instance of the graph that was launched."),
        Column("graph_node_id", I64, "Graph node that the work executed."),
        Column("bytes", I64, "Bytes copied or filled.", "bytes"),
        Column("copy_from", NAME, "Kind of memory that was copied from: pageable, pinned, device, managed, ..."),
        Column("copy_to", NAME, "Kind of memory that was copied or written to."),
        Column("peer_device_id", I32, "The other device of a copy between devices."),
        Column("grid_x", I32, "Blocks in x.", "blocks"),
        Column("grid_y", I32, "Blocks in y.", "blocks"),
        Column("grid_z", I32, "Blocks in z.", "blocks"),
        Column("block_x", I32, "Threads of a block in x.", "threads"),
        Column("block_y", I32, "Threads of a block in y.", "threads"),
        Column("block_z", I32, "Threads of a block in z.", "threads"),
        Column("registers", I32, "Registers of one thread."),
        Column("static_shared_bytes", I64, "Shared memory that the kernel declares.", "bytes"),
        Column("dynamic_shared_bytes", I64, "Shared memory that the launch asked for.", "bytes"),
        Column("is_overhead", pl.Boolean, "Whether the profiler did it, not the program."),
        Column("payload_json", pl.String, "All other data that the tool recorded, as a JSON object."),
    ),
)

FUNCTIONS = TableSchema(
    "functions",
    "Calls of the program's Python functions, as a tracer recorded them. Ranges run inside these calls.",
    (
        Column("id", I64, "Number of the row in this trace, from 0."),
        *_where(),
        Column("start_ns", I64, "When the call began.", "ns"),
        Column("end_ns", I64, "When the call returned or its recording stopped; null if that is not known.", "ns"),
        Column("name", NAME, "train.py(12): forward, with the line; nn.Module: Linear_0; <built-in function len>."),
        Column("parent_id", I64, "The call of the calling function.", refers="functions.id"),
        Column("payload_json", pl.String, "All other data that the tracer recorded, as a JSON object."),
    ),
)

THREADS = TableSchema(
    "threads",
    "Threads, with the best name that is known.",
    (
        *_where(),
        Column("name", NAME, "Name that the program gave, else the operating system's."),
        Column("payload_json", pl.String, "Data that the program attached to the thread, as a JSON object."),
    ),
)

PROCESSES = TableSchema(
    "processes",
    "Processes of the program.",
    (
        *_where(thread=False),
        Column("parent_pid", I64, "Process that started this one."),
        Column("name", NAME, "Name of the executable."),
        Column("command_line", pl.String, "Command line, quoted as for a shell."),
        Column("host", NAME, "Machine that it ran on."),
        Column("is_forked", pl.Boolean, "Whether it was forked from its parent without starting another program."),
        Column("start_ns", I64, "When the tool first saw it.", "ns"),
        Column("end_ns", I64, "When the process closed its part of the trace; null if it did not.", "ns"),
    ),
)

DEVICES = TableSchema(
    "devices",
    "Devices that work ran on.",
    (
        Column("rank", I32, RANK),
        Column("device_id", I32, "Number of the device in this file."),
        Column("kind", NAME, "gpu, cpu, xpu, ..."),
        Column("name", NAME, "Name of the model."),
        Column("uuid", pl.String, "Unique id of the device."),
        Column("bus", NAME, "Address of the device on its bus."),
        Column("memory_bytes", I64, "Memory on the device.", "bytes"),
        Column("multiprocessors", I32, "Multiprocessors, or compute units."),
        Column("capability", NAME, "Compute capability, or architecture."),
        Column("clock_hz", I64, "Highest clock rate of the multiprocessors.", "Hz"),
        Column("bandwidth_bytes_per_s", I64, "Memory bandwidth.", "bytes/s"),
        Column("attributes_json", pl.String, "All other data that the tool recorded, as a JSON object."),
    ),
)

MEMORY = TableSchema(
    "memory",
    "Allocations, frees, transfers and page faults of memory.",
    (
        *_where(),
        Column("device_id", I32, "The device; null: memory of the host."),
        Column("time_ns", I64, "When it happened, or began.", "ns"),
        Column("end_ns", I64, "When it ended, for a transfer or a fault of a device.", "ns"),
        Column("event", MEMORY_EVENT, "What happened."),
        Column("bytes", I64, "Number of bytes.", "bytes"),
        Column("address", U64, "Address of the memory."),
        Column("total_bytes", I64, "Bytes in use after this event, if the tool reports them.", "bytes"),
        Column("kind", NAME, "Kind of memory: pageable, pinned, device, managed, ..."),
        Column("name", NAME, "What it was for."),
        Column(
            "correlation_id", I64, "Number by which the tool pairs calls and events; unique only within the process."
        ),
        Column("count", I64, "Number of events that the row combines; null means 1."),
        Column("payload_json", pl.String, "All other data that the tool recorded, as a JSON object."),
    ),
)

STACK_SEPARATOR = ";"  # between the functions of a sample's stack, and between their libraries

SAMPLES = TableSchema(
    "samples",
    "Samples of the functions that processors were executing.",
    (
        *_where(),
        Column("time_ns", I64, "When the sample was taken.", "ns"),
        Column("cpu", I32, "Processor that the thread was on."),
        Column("weight", I64, "Weight of the sample in the tool's unit (cycles, ns, 1)."),
        Column("event", NAME, "Event that the tool counts between samples, if it counts several kinds."),
        Column("stack", NAME, f"Functions from the outermost to the innermost, separated by '{STACK_SEPARATOR}'."),
        Column("libraries", NAME, "Library or program of each function in `stack`, in the same order and notation."),
    ),
)

COUNTERS = TableSchema(
    "counters",
    "Values over time: the program's counters, device metrics, whether the tool was collecting.",
    (
        *_where(),
        Column("device_id", I32, "Device of the value."),
        Column("time_ns", I64, "When the counter had the value.", "ns"),
        Column("name", NAME, "Name of the counter."),
        Column("domain", NAME, "Domain of the counter."),
        Column("value", pl.Float64, "The value; integers past 2^53 are rounded."),
    ),
)

METRICS = TableSchema(
    "metrics",
    "Numbers from a tool's reports, by name. Each is a sum over all events of that name, never a single event.",
    (
        Column("rank", I32, RANK),
        Column("name", NAME, "Name of the op, range or kernel."),
        Column("metric", NAME, "What was measured, by its title in the report."),
        Column("value", pl.Float64, "The value, in the report's unit."),
    ),
)

ISSUES = TableSchema(
    "issues",
    "What the reader skipped, repaired or found odd.",
    (
        Column("rank", I32, RANK),
        Column("code", NAME, "Name of the problem, which is equal in every trace."),
        Column(
            "severity", SEVERITY, "info: worth knowing; warning: something is missing; error: the rest may be wrong."
        ),
        Column("count", I64, "Number of times."),
        Column("message", pl.String, "What was found."),
        Column("advice", pl.String, "What to do about it."),
        Column("path", pl.String, "File that the problem was found in."),
    ),
)

TABLES: dict[str, TableSchema] = {
    table.name: table
    for table in (
        RANGES,
        RELATIONS,
        CALLS,
        WORK,
        FUNCTIONS,
        THREADS,
        PROCESSES,
        DEVICES,
        MEMORY,
        SAMPLES,
        COUNTERS,
        METRICS,
        PROVENANCE,
        COMPILATIONS,
        GRAPH_BREAKS,
        ISSUES,
    )
}


# If a process wrote several files, these tables have one more column at the end, `cycle` (Int32).
IN_CYCLES = ("ranges", "relations", "calls", "work", "functions", "memory", "samples", "counters")

# Columns that analyses add, by table. They hold row numbers, or values that were computed from the rows. So they are
# valid only in the frames that were analysed.
ADDED: dict[str, frozenset[str]] = {
    "ranges": frozenset(
        "parent depth self_ns is_open overlaps forward link function module step phase device_ns self_device_ns "
        "cpu_memory device_memory self_cpu_memory self_device_memory".split()
    ),
    "calls": frozenset({"range"}),
    "work": frozenset({"call", "ambiguous", "launch_range", "range"}),
}


def without_added(table: str, frame: pl.DataFrame) -> pl.DataFrame:
    """Returns the rows as they were before any analysis."""
    added = ADDED.get(table, frozenset()).intersection(frame.columns)
    if "is_open" in added:  # an analysis sets end_ns of open ranges, so this sets it to null again
        frame = frame.with_columns(pl.when(~pl.col("is_open").fill_null(value=False)).then("end_ns").alias("end_ns"))
    if "overlaps" in added:
        frame = frame.with_columns(pl.col("is_async") & ~pl.col("overlaps").fill_null(value=False))
    return frame.drop(added)


def empty(table: str) -> pl.DataFrame:
    return without_rows(TABLES[table].schema)


def without_rows(dtypes: Mapping[str, Dtype]) -> pl.DataFrame:
    """Returns an empty frame with these columns. Many tables of a file are empty, and building a frame takes longer
    than copying one."""
    return _without_rows(tuple(dtypes.items())).clone()


@lru_cache(1024)
def _without_rows(columns: tuple[tuple[str, Dtype], ...]) -> pl.DataFrame:
    return pl.DataFrame(schema=dict(columns))


def completed(frame: pl.DataFrame, dtypes: Mapping[str, Dtype]) -> pl.DataFrame:
    """Selects these columns in this order. Columns that the frame lacks become null."""
    have = frame.columns
    if have == list(dtypes):
        return frame
    return frame.select(*(name if name in have else null(name, dtype) for name, dtype in dtypes.items()))


@lru_cache(4096)  # the cache is limited, because names may come from files
def null(name: str, dtype: Dtype) -> pl.Expr:
    """Returns a column of nulls. As a literal it takes no memory, whatever the number of rows."""
    return pl.lit(None, dtype=dtype).alias(name)


def conform(table: str, frame: pl.DataFrame) -> pl.DataFrame:
    """Returns the frame with all columns of its table, in order and with the right types. Any other columns come
    last."""
    schema = TABLES[table].schema
    have = frame.schema
    if list(have.items())[: len(schema)] == list(schema.items()):
        return frame

    def column(name: str, dtype: Dtype) -> pl.Expr | str:
        if name not in have:
            return null(name, dtype)
        return name if have[name] == dtype else pl.col(name).cast(dtype)

    others: Iterable[str] = (name for name in have if name not in schema)
    return frame.select(*(column(name, dtype) for name, dtype in schema.items()), *others)
