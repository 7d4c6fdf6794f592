"""RPD, the form of rocmProfileData (schema 2): rocpd_api, rocpd_op and what belongs to them.

rocpd_api      an interval on a thread: a call of HIP, or a `UserMarker` (roctx) with its text in args_id
rocpd_op       an interval on a GPU; rocpd_api_ops says which call it came from: one call, many ops (graphs)
ext_autogradapi  beside a marker of torch's: its name, seq, op_id and sizes, taken from the text by RPD's own tools
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import polars as pl

from opspan.formats.columns import SIZES, constant, labelled, numbered
from opspan.formats.sqlite import Type
from opspan.readers.rocpd.database import Database
from opspan.tables import Metadata, Tables
from opspan.tables.schema import WORK_KIND

MARKER = "UserMarker"
KINDS = {"KernelExecution": "kernel", "CopyHostToDevice": "memcpy", "CopyDeviceToHost": "memcpy"}
KINDS |= {"CopyDeviceToDevice": "memcpy", "FillBuffer": "memset"}
SIDES = {"CopyHostToDevice": ("pinned", "device"), "CopyDeviceToHost": ("device", "pinned")}
SIDES |= {"CopyDeviceToDevice": ("device", "device")}
TASK = "Task"  # of a graph: a kernel, when it has a description

API: dict[str, Type] = dict.fromkeys(("id", "pid", "tid", "start", "end", "apiName_id", "args_id"), "int")
OP: dict[str, Type] = dict.fromkeys(("id", "gpuId", "queueId", "start", "end", "description_id", "opType_id"), "int")
# Texts of numbers, empty where there is none.
SAID = ("seq", "op_id")
AUTOGRAD: dict[str, Type] = {"api_ptr_id": "int", "autogradName_id": "int"}
AUTOGRAD |= dict.fromkeys((*SAID, "sizes", "input_op_ids"), "text")
GRID = ("gridX", "gridY", "gridZ", "workgroupX", "workgroupY", "workgroupZ")
KERNEL: dict[str, Type] = dict.fromkeys(("api_ptr_id", *GRID, "groupSegmentSize", "kernelName_id"), "int")
MONITOR: dict[str, Type] = {"deviceType": "text", "deviceId": "int", "monitorType": "text", "start": "int"}
MONITOR |= {"value": "float"}

_col = pl.col


def is_one(tables: Iterable[str]) -> bool:
    return {"rocpd_api", "rocpd_op", "rocpd_api_ops", "rocpd_string"} <= set(tables)


def read(database: Database, path: Path) -> Tables:
    strings = database.frame("rocpd_string", {"id": "int", "string": "text"}).unique("id", keep="first")
    api = database.timed("rocpd_api", API)
    api = _with_text(database, _with_text(database, api, strings, "apiName_id", "api_name"), strings, "args_id", "args")
    is_marker = (_col("api_name") == MARKER).fill_null(value=False)
    frames = {
        "ranges": _ranges(database, api.filter(is_marker), strings),
        "calls": numbered(
            api.filter(~is_marker).select(
                "pid",
                "tid",
                "start_ns",
                "end_ns",
                name=_col("api_name").cast(pl.Categorical),
                api=constant("hip"),
                correlation_id="id",
                payload_json=pl.when(_col("args") != "").then(pl.struct("args").struct.json_encode()),
            )
        ),
        "work": _work(database, api, strings),
        "counters": _counters(database),
    }
    frames["threads"] = api.select(pl.lit(0, pl.Int32).alias("rank"), "pid", "tid").unique().sort("pid", "tid")
    frames["processes"] = frames["threads"].select("rank", "pid").unique().sort("pid")
    frames["devices"] = (
        frames["work"].select("rank", "device_id").unique().sort("device_id").with_columns(kind=constant("gpu"))
    )
    tags = database.frame("rocpd_metadata", {"tag": "text", "value": "text"}).drop_nulls()
    options = dict(zip(tags["tag"], tags["value"], strict=True))
    schema = options.get("schema_version")
    return Tables((Metadata("rocpd", (str(path),), "rocmProfileData", schema, options=options),), **frames)


def _with_text(database: Database, frame: pl.DataFrame, strings: pl.DataFrame, number: str, name: str) -> pl.DataFrame:
    texts = strings.select(_col("id").alias(number), _col("string").alias(name))
    return database.written.join(frame, texts, [number])


def _ranges(database: Database, markers: pl.DataFrame, strings: pl.DataFrame) -> pl.DataFrame:
    said = database.frame("ext_autogradapi", AUTOGRAD)
    numbers = said.select(_col(SAID).cast(pl.Int64, strict=False))
    odd = said.select((_col(SAID) != "").sum()).row(0)
    issues = database.issues
    issues.add("odd_cells", sum(odd) - sum(numbers[name].count() for name in SAID), "ext_autogradapi")
    said = said.with_columns(numbers)
    issues.add("dangling_data", said.join(markers, left_on="api_ptr_id", right_on="id", how="anti").height)
    said = _with_text(database, said, strings, "autogradName_id", "op").unique("api_ptr_id", keep="first")
    rows = markers.join(said, left_on="id", right_on="api_ptr_id", how="left", maintain_order="left")
    labels = labelled(rows.select(pl.coalesce("op", "args")).to_series())
    frame = pl.concat(
        [rows.select(pl.exclude(labels.columns)), rows.select(own_seq="seq", own_id="op_id"), labels], how="horizontal"
    )
    sizes, inputs = rows["sizes"], rows["input_op_ids"]
    return numbered(
        frame.with_columns(own_sizes=sizes.cast(pl.Categorical), own_inputs=inputs).select(
            "pid",
            "tid",
            "start_ns",
            "end_ns",
            "name",
            "text",
            "kind",
            constant("roctx").alias("source"),
            pl.coalesce("own_seq", "seq").alias("seq"),
            pl.coalesce("own_id", "op_id").replace(0, None).alias("op_id"),
            pl.coalesce(pl.when(sizes != "").then("own_sizes"), "sizes").alias("sizes"),
            pl.coalesce(pl.when(inputs != "").then("own_inputs"), "input_op_ids").alias("input_op_ids"),
            "class_name",
            pl.lit(value=False).alias("is_async"),
            pl.lit(value=False).alias("is_mark"),
        )
    )


def _work(database: Database, api: pl.DataFrame, strings: pl.DataFrame) -> pl.DataFrame:
    ops = database.timed("rocpd_op", OP)
    ops = _with_text(
        database, _with_text(database, ops, strings, "opType_id", "type"), strings, "description_id", "description"
    )
    pairs = database.frame("rocpd_api_ops", {"api_id": "int", "op_id": "int"}).unique("op_id", keep="first")
    ops = ops.join(pairs, left_on="id", right_on="op_id", how="left", maintain_order="left")
    ops = ops.join(api.select("id", "pid"), left_on="api_id", right_on="id", how="left", maintain_order="left")
    kernels = _with_text(database, database.frame("rocpd_kernelapi", KERNEL), strings, "kernelName_id", "kernel")
    kernels = kernels.unique("api_ptr_id", keep="first")
    ops = ops.join(kernels, left_on="api_id", right_on="api_ptr_id", how="left", maintain_order="left")
    copies = database.frame("rocpd_copyapi", {"api_ptr_id": "int", "size": "int"}).unique("api_ptr_id", keep="first")
    ops = ops.join(copies, left_on="api_id", right_on="api_ptr_id", how="left", maintain_order="left")
    described = _col("description") != ""
    kind = (
        pl.when((_col("type") == TASK) & described)
        .then(pl.lit("kernel"))
        .otherwise(_col("type").replace_strict(KINDS, default="other", return_dtype=pl.String))
    )
    name = pl.when(described).then("description").otherwise(pl.coalesce("kernel", "type"))
    is_copy, alone = kind == "memcpy", pl.len().over("api_id") == 1
    processes = api["pid"].drop_nulls().unique()
    only = processes[0] if len(processes) == 1 else None
    frame = ops.with_columns(kind=kind, shown=pl.when(is_copy).then("type").otherwise(name))
    # What a call says of its kernel or copy is not said of the many of a graph.
    of_kernel = (_col("kind") == "kernel") & alone
    return numbered(
        frame.select(
            pl.coalesce("pid", pl.lit(only, pl.Int64)).alias("pid"),
            _col("gpuId").cast(pl.Int32, strict=False).alias("device_id"),
            _col("queueId").alias("stream_id"),
            "start_ns",
            "end_ns",
            _col("kind").cast(WORK_KIND),
            _col("shown").cast(pl.Categorical).alias("name"),
            pl.when(_col("kind") == "kernel").then("shown").cast(pl.Categorical).alias("full_name"),
            _col("api_id").alias("correlation_id"),
            pl.when((_col("kind") == "memcpy") & alone).then("size").alias("bytes"),
            *(
                pl.when(_col("kind") == "memcpy")
                .then(_col("type").replace_strict(sides, default=None, return_dtype=pl.String))
                .cast(pl.Categorical)
                .alias(column)
                for column, sides in (
                    ("copy_from", {key: one for key, (one, _) in SIDES.items()}),
                    ("copy_to", {key: other for key, (_, other) in SIDES.items()}),
                )
            ),
            *(
                pl.when(of_kernel).then(_col(column).cast(pl.Int32, strict=False)).alias(to)
                for column, to in zip(GRID, SIZES, strict=True)
            ),
            pl.when(of_kernel).then("groupSegmentSize").alias("dynamic_shared_bytes"),
        )
    )


def _counters(database: Database) -> pl.DataFrame:
    rows = database.timed("rocpd_monitor", MONITOR)
    name = pl.concat_str("deviceType", pl.lit(" "), _col("deviceId").cast(pl.String), pl.lit(" "), "monitorType")
    return rows.select(
        pl.lit(0, pl.Int32).alias("rank"),
        _col("start_ns").alias("time_ns"),
        name.cast(pl.Categorical).alias("name"),
        "value",
    )
