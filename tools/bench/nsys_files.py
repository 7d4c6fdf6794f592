"""Makes nsys exports of any size, like the exports that a recent nsys writes of a torch program that trains.

    sqlite(path, Size(ranges=1_000_000, calls=1_000_000, work=1_000_000))
    parquet(path, size)                                a folder of Parquet files with the same tables
    training(folder, ranks=64, straggler=(17, 1.5))    a file for each rank of a run with a planted problem

A step has LAYERS layers. The forward ops of all layers run on one thread, then the backward ops run on another thread.
A layer has 24 ranges, which are nested as torch nests them. Calls and kernels are spread evenly over the ranges. A call
is inside its range, and a kernel starts shortly after its call. Nothing is copied from a file of a real tool.

`training` makes runs with problems that are put in on purpose. Tests check that opspan finds these problems. The
options of `training` are the fields of Plan in tests/builders/training_plan.py.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from builders import training as model
from builders import training_files
from builders.training_plan import Plan

PID, MAIN, AUTOGRAD = 4711, 4711, 4790
LAYERS = 50
LAYER_NS = 20_000
SLICE_LAYERS = LAYERS * 400

# The ranges of a layer, each as (thread, begin in the layer, end in the layer, name, sequence number, input sizes). The
# sequence numbers of a layer are counted from 0. None means that the range has no sequence number.
LAYER = (
    (MAIN, 0, 9_000, "aten::linear", 0, "[[{}, 768], [768, 768], [768]]"),
    (MAIN, 300, 2_600, "aten::t", 0, "[[768, 768]]"),
    (MAIN, 600, 2_300, "aten::transpose", None, "[[768, 768], [], []]"),
    (MAIN, 900, 1_500, "aten::as_strided", None, "[[768, 768], [], [], []]"),
    (MAIN, 3_000, 8_700, "aten::addmm", 1, "[[768], [{}, 768], [768, 768], [], []]"),
    (MAIN, 9_300, 12_000, "aten::gelu", 2, "[[{}, 768], []]"),
    (MAIN, 12_300, 18_000, "aten::layer_norm", 3, "[[{}, 768], [], [768], [768], [], []]"),
    (MAIN, 12_600, 17_700, "aten::native_layer_norm", 3, "[[{}, 768], [], [768], [768], []]"),
    (AUTOGRAD, 0, 4_000, "autograd::engine::evaluate_function: NativeLayerNormBackward0", None, None),
    (AUTOGRAD, 300, 3_700, "NativeLayerNormBackward0", 3, "[[{}, 768], [{}, 1], [{}, 1]]"),
    (AUTOGRAD, 600, 3_400, "aten::native_layer_norm_backward", None, "[[{}, 768], [{}, 768], [], [{}, 1], [{}, 1]]"),
    (AUTOGRAD, 4_300, 7_000, "autograd::engine::evaluate_function: GeluBackward0", None, None),
    (AUTOGRAD, 4_600, 6_700, "GeluBackward0", 2, "[[{}, 768]]"),
    (AUTOGRAD, 4_900, 6_400, "aten::gelu_backward", None, "[[{}, 768], [{}, 768], []]"),
    (AUTOGRAD, 7_300, 14_000, "autograd::engine::evaluate_function: AddmmBackward0", None, None),
    (AUTOGRAD, 7_600, 13_700, "AddmmBackward0", 1, "[[{}, 768]]"),
    (AUTOGRAD, 7_900, 10_400, "aten::mm", None, "[[{}, 768], [768, 768]]"),
    (AUTOGRAD, 10_700, 13_400, "aten::mm", None, "[[768, {}], [{}, 768]]"),
    (AUTOGRAD, 14_300, 16_000, "autograd::engine::evaluate_function: TBackward0", None, None),
    (AUTOGRAD, 14_600, 15_700, "TBackward0", 0, "[[768, 768]]"),
    (AUTOGRAD, 14_900, 15_400, "aten::t", None, "[[768, 768]]"),
    (AUTOGRAD, 16_300, 19_000, "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", None, None),
    (AUTOGRAD, 16_600, 18_700, "torch::autograd::AccumulateGrad", None, "[[768, 768]]"),
    (AUTOGRAD, 16_900, 18_400, "aten::add_", None, "[[768, 768], [768, 768], []]"),
)
SEQS = 4
BATCHES = 60  # the number of different batch sizes

STRINGS = ("cudaLaunchKernel_v7000", *(f"void kernel_{at}<float, {at}>(int, float const*, float*)" for at in range(60)))
STRINGS += tuple(f"kernel_{at}" for at in range(60))

# COLUMNS has the columns of each table, in the order of nsys. `name:type` gives the type of a column in Parquet files.
# The type of a column without `:type` is i64.
TYPES = {"": pl.Int64, "i32": pl.Int32, "u64": pl.UInt64, "f64": pl.Float64, "f32": pl.Float32, "text": pl.String}
COLUMNS = {
    "StringIds": "id:i32 value:text",
    "NVTX_EVENTS": (
        "start end eventType rangeId:u64 category:u64 color text:text globalTid:u64 endGlobalTid:u64 textId "
        "domainId:u64 uint64Value:u64 int64Value doubleValue:f64 uint32Value int32Value:i32 floatValue:f32 jsonTextId "
        "jsonText:text binaryData:text"
    ),
    "CUPTI_ACTIVITY_KIND_RUNTIME": ("start end eventClass globalTid:u64 correlationId nameId returnValue callchainId"),
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        "start end deviceId contextId greenContextId streamId correlationId globalPid:u64 demangledName shortName "
        "mangledName launchType cacheConfig registersPerThread gridX gridY gridZ blockX blockY blockZ "
        "staticSharedMemory dynamicSharedMemory localMemoryPerThread localMemoryTotal gridId sharedMemoryExecuted "
        "graphNodeId:u64 sharedMemoryLimitConfig"
    ),
}
SCHEMAS = {
    table: {name: TYPES[kind] for name, _, kind in (column.partition(":") for column in columns.split())}
    for table, columns in COLUMNS.items()
}
KEYS = {"StringIds": "id"}


@dataclass(frozen=True)
class Size:
    ranges: int
    calls: int
    work: int
    shapes: bool = False  # whether labels have sizes and input_op_ids, as with record_shapes=True

    @property
    def rows(self) -> int:
        return self.ranges + self.calls + self.work


def sqlite(path: Path, size: Size) -> Path:
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path)
    connection.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")
    for table, columns in SCHEMAS.items():
        key = KEYS.get(table)
        declared = (f'"{name}" {_declared(dtype)}{" PRIMARY KEY" * (name == key)}' for name, dtype in columns.items())
        connection.execute(f'CREATE TABLE "{table}" ({", ".join(declared)})')
    for table, frame in frames(size):
        names, holes = ", ".join(f'"{name}"' for name in frame.columns), ", ".join("?" * frame.width)
        connection.executemany(f'INSERT INTO "{table}" ({names}) VALUES ({holes})', frame.iter_rows())
    connection.commit()
    connection.close()
    return path


def training(folder: Path, **options: Any) -> list[Path]:
    return training_files.nsys_files(folder, model.run(Plan(**options)))


def _declared(dtype: type[pl.DataType]) -> str:
    return "TEXT" if dtype == pl.String else "REAL" if dtype.is_float() else "INTEGER"


def parquet(path: Path, size: Size) -> Path:
    path.mkdir(exist_ok=True)
    parts: dict[str, list[pl.DataFrame]] = {table: [] for table in SCHEMAS}
    for table, frame in frames(size):
        parts[table].append(frame)
    for table, columns in SCHEMAS.items():
        table_frame = pl.concat(parts[table])
        missing = [pl.lit(None).alias(name) for name in columns if name not in table_frame.columns]
        typed = table_frame.with_columns(missing).select(pl.col(name).cast(dtype) for name, dtype in columns.items())
        typed.write_parquet(path / f"{table}.parquet", compression="uncompressed")  # nsys does not compress, either
    return path


def frames(size: Size) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yields pairs: the name of a table, and the next rows of this table. The rows of a table come in order of time."""
    yield "StringIds", pl.DataFrame({"id": range(1, len(STRINGS) + 1), "value": STRINGS})
    done = calls = work = 0
    first_layer = 0
    while done < size.ranges:
        ranges = _ranges(first_layer, size.shapes).head(size.ranges - done)
        until = done + ranges.height
        # Make so many calls and kernels that they are in proportion to the ranges so far.
        last_call, last = until * size.calls // size.ranges, until * size.work // size.ranges
        yield "NVTX_EVENTS", ranges
        if last_call > calls:
            some_calls = _calls(ranges, done, range(calls, last_call), size)
            yield "CUPTI_ACTIVITY_KIND_RUNTIME", some_calls
        if last > work:
            yield "CUPTI_ACTIVITY_KIND_KERNEL", _kernels(some_calls, calls, range(work, last), size)
        done, calls, work = until, last_call, last
        first_layer += SLICE_LAYERS


def _ranges(first_layer: int, shapes: bool) -> pl.DataFrame:
    col = pl.col
    template = pl.DataFrame(
        {
            "tid": [row[0] for row in LAYER],
            "begin": [row[1] for row in LAYER],
            "until": [row[2] for row in LAYER],
            "name": [row[3] for row in LAYER],
            "nth": [row[4] for row in LAYER],
            "sizes": [row[5] for row in LAYER],
            "at": range(len(LAYER)),
        },
        schema_overrides={"nth": pl.Int64},
    )
    layers = pl.DataFrame({"layer": pl.int_range(first_layer, first_layer + SLICE_LAYERS, eager=True)})
    step, within = col("layer") // LAYERS, col("layer") % LAYERS
    # Backward follows forward, and goes through the layers of a step from the last to the first.
    turn = pl.when(col("tid") == MAIN).then(within).otherwise(2 * LAYERS - 1 - within)
    zero = 1_000_000_000 + (step * 2 * LAYERS + turn) * LAYER_NS
    text = [col("name"), pl.format(", seq = {}", col("layer") * SEQS + col("nth")).fill_null("")]
    text.append(pl.format(", op_id = {}", col("op_id")))
    if shapes:
        batch = (16 + 8 * (col("layer") % BATCHES)).cast(pl.String)
        written = col("sizes").str.replace_all("{}", batch, literal=True)
        text.append(pl.format(", sizes = {}, input_op_ids = [({},0), (0,-1)]", written, col("op_id") - 1).fill_null(""))
    return (
        layers.join(template, how="cross")
        .with_columns(op_id=col("layer") * len(LAYER) + col("at") + 1)
        .select(
            start=zero + col("begin"),
            end=zero + col("until"),
            eventType=pl.lit(59),
            text=pl.concat_str(text),
            globalTid=(1 << 48) + (PID << 24) + col("tid"),
            domainId=pl.lit(0),
        )
        .sort("start", "end")
    )


def _calls(ranges: pl.DataFrame, first_range: int, numbers: range, size: Size) -> pl.DataFrame:
    number = pl.int_range(numbers.start, numbers.stop, eager=True)
    # Assign the calls evenly to the ranges, in the order of the ranges. Calls of one range follow each other.
    owner = (number + 1) * size.ranges
    owner = (owner + size.calls - 1) // size.calls - 1
    start = ranges["start"].gather(owner - first_range) + 50 + (number * 7) % 50
    return pl.DataFrame(
        {
            "start": start,
            "end": start + 100,
            "eventClass": 0,
            "globalTid": ranges["globalTid"].gather(owner - first_range),
            "correlationId": number + 1,
            "nameId": 1,
            "returnValue": 0,
        }
    )


def _kernels(calls: pl.DataFrame, first_call: int, numbers: range, size: Size) -> pl.DataFrame:
    number = pl.int_range(numbers.start, numbers.stop, eager=True)
    owner = (number + 1) * size.calls
    owner = (owner + size.work - 1) // size.work - 1
    start = calls["start"].gather(owner - first_call) + 5_000
    one = dict.fromkeys(("gridY", "gridZ", "blockY", "blockZ", "contextId"), 1)
    none = dict.fromkeys(("deviceId", "launchType", "cacheConfig", "staticSharedMemory", "dynamicSharedMemory"), 0)
    none |= dict.fromkeys(("localMemoryPerThread", "localMemoryTotal", "sharedMemoryExecuted"), 0)
    return pl.DataFrame(
        {
            "start": start,
            "end": start + 300 + (number * 13) % 400,
            "streamId": 7,
            "correlationId": calls["correlationId"].gather(owner - first_call),
            "globalPid": (1 << 48) + (PID << 24),
            "demangledName": 2 + number % 60,
            "shortName": 62 + number % 60,
            "registersPerThread": 32,
            "gridX": 1 + number % 200,
            "blockX": 128,
            **one,
            **none,
        }
    )
