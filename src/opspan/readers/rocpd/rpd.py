"""Reads RPD, the form of rocmProfileData (schema 2): rocpd_api, rocpd_op and their companion tables.

rocpd_api      an interval on a thread: a call of HIP, or a `UserMarker` (roctx) with its text in args_id
rocpd_op       an interval on a GPU; rocpd_api_ops has its call. A call may have many ops (graphs).
ext_autogradapi  the fields of a torch marker's text (name, seq, op_id, sizes), extracted by RPD's own tools
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl

from opspan.formats.columns import SIZES, constant, labelled, numbered
from opspan.formats.kernel_names import kernel_names
from opspan.formats.keys import looked_up, once, places
from opspan.formats.sqlite import Type
from opspan.readers.rocpd.database import RocpdDatabase
from opspan.tables import Metadata, Tables
from opspan.tables.same import rows_once
from opspan.tables.schema import WORK_KIND

MARKER = "UserMarker"
KINDS = {"KernelExecution": "kernel", "CopyHostToDevice": "memcpy", "CopyDeviceToHost": "memcpy"}
KINDS |= {"CopyDeviceToDevice": "memcpy", "FillBuffer": "memset"}
# The file does not say whether the host's memory is pinned: rocpd_copyapi.pinned is 0 for pinned memory too.
SIDES = {"CopyHostToDevice": ("host", "device"), "CopyDeviceToHost": ("device", "host")}
SIDES |= {"CopyDeviceToDevice": ("device", "device")}
TASK = "Task"  # a task of a graph; a task with a description is a kernel

STRING: dict[str, Type] = {"id": "int", "string": "text"}
API: dict[str, Type] = dict.fromkeys(("id", "pid", "tid", "start", "end", "apiName_id", "args_id"), "int")
OP: dict[str, Type] = dict.fromkeys(("id", "gpuId", "queueId", "start", "end", "description_id", "opType_id"), "int")
# These columns hold numbers as text. The text is empty if there is no number.
TEXT_NUMBERS = ("seq", "op_id")
AUTOGRAD: dict[str, Type] = {"api_ptr_id": "int", "autogradName_id": "int"}
AUTOGRAD |= dict.fromkeys((*TEXT_NUMBERS, "sizes", "input_op_ids"), "text")
GRID = ("gridX", "gridY", "gridZ", "workgroupX", "workgroupY", "workgroupZ")
KERNEL: dict[str, Type] = dict.fromkeys(("api_ptr_id", *GRID, "groupSegmentSize", "kernelName_id"), "int")
PAIRS: dict[str, Type] = {"api_id": "int", "op_id": "int"}
MONITOR: dict[str, Type] = {"deviceType": "text", "deviceId": "int", "monitorType": "text", "start": "int"}
MONITOR |= {"value": "float"}
_LARGE = {"rocpd_string": STRING, "rocpd_api": API, "ext_autogradapi": AUTOGRAD, "rocpd_op": OP, "rocpd_api_ops": PAIRS}

_col = pl.col


def matches(tables: Iterable[str]) -> bool:
    return {"rocpd_api", "rocpd_op", "rocpd_api_ops", "rocpd_string"} <= set(tables)


def read(database: RocpdDatabase, path: Path) -> Tables:
    for table, columns in _LARGE.items():
        database.ahead(table, columns)
    strings = once(database.frame("rocpd_string", STRING), "id")
    api = database.timed("rocpd_api", API)
    names = _names(strings, api, "apiName_id", "name")
    marker = names.filter(_col("name") == MARKER)["apiName_id"]
    is_marker = api["apiName_id"].is_in(marker.implode()).fill_null(value=False)
    calls = looked_up(api.filter(~is_marker), "apiName_id", names, "apiName_id")
    calls = _with_text(database, calls, strings, "args_id", "args")
    markers = _with_text(database, api.filter(is_marker), strings, "args_id", "args")
    fields = _autograd_fields(database, markers, strings)
    with ThreadPoolExecutor(1) as beside:
        ranges = beside.submit(_ranges, markers, fields)
        frames = {
            "calls": _calls(calls),
            "work": _work(database, api, strings),
            "counters": _counters(database),
        }
        frames["ranges"] = ranges.result()
    threads = rows_once(api, "pid", "tid").sort("pid", "tid")
    frames["threads"] = threads.select(pl.lit(0, pl.Int32).alias("rank"), "pid", "tid")
    frames["processes"] = frames["threads"].select("rank", "pid").unique().sort("pid")
    frames["devices"] = (
        rows_once(frames["work"], "rank", "device_id").sort("device_id").with_columns(kind=constant("gpu"))
    )
    tags = database.frame("rocpd_metadata", {"tag": "text", "value": "text"}).drop_nulls()
    options = dict(zip(tags["tag"], tags["value"], strict=True))
    schema = options.get("schema_version")
    return Tables((Metadata("rocpd", (str(path),), "rocmProfileData", schema, options=options),), **frames)


def _with_text(
    database: RocpdDatabase, frame: pl.DataFrame, strings: pl.DataFrame, number: str, name: str
) -> pl.DataFrame:
    texts = strings.select(_col("id").alias(number), _col("string").alias(name))
    return database.written.join(frame, texts, [number])


def _names(strings: pl.DataFrame, rows: pl.DataFrame, number: str, name: str) -> pl.DataFrame:
    """Returns the distinct text ids in a column of `rows`, and their texts. `number`: the name of the column with the
    ids. `name`: the name of the new column with the texts."""
    used = rows_once(rows, number).to_series().drop_nulls().sort()
    at = places(used.to_frame("id"), strings.select("id"))
    return pl.DataFrame([used, strings["string"][at].cast(pl.Categorical).alias(name)])


def _calls(calls: pl.DataFrame) -> pl.DataFrame:
    has_args = (calls["args"] != "").any()
    return numbered(
        calls.select(
            "pid",
            "tid",
            "start_ns",
            "end_ns",
            "name",
            api=constant("hip"),
            correlation_id="id",
            payload_json=pl.when(_col("args") != "").then(pl.struct("args").struct.json_encode())
            if has_args
            else pl.lit(None, dtype=pl.String),
        )
    )


def _autograd_fields(database: RocpdDatabase, markers: pl.DataFrame, strings: pl.DataFrame) -> pl.DataFrame:
    """Returns the fields that the table ext_autogradapi has for torch's markers."""
    fields = database.frame("ext_autogradapi", AUTOGRAD)
    numbers = fields.select(_col(TEXT_NUMBERS).cast(pl.Int64, strict=False))
    filled = fields.select((_col(TEXT_NUMBERS) != "").sum()).row(0)
    issues = database.issues
    issues.add("odd_cells", sum(filled) - sum(numbers[name].count() for name in TEXT_NUMBERS), "ext_autogradapi")
    fields = fields.with_columns(numbers)
    of = places(fields.select(id="api_ptr_id"), once(markers.select("id"), "id"))
    issues.add("dangling_data", of.null_count())
    return once(_with_text(database, fields, strings, "autogradName_id", "op"), "api_ptr_id")


def _ranges(markers: pl.DataFrame, fields: pl.DataFrame) -> pl.DataFrame:
    rows = looked_up(markers, "id", fields, "api_ptr_id")
    has_ops = rows["op"].null_count() < rows.height  # true only for the few files that have ext_autogradapi
    labels = labelled(rows.select(pl.coalesce("op", "args")).to_series() if has_ops else rows["args"])
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


def _work(database: RocpdDatabase, api: pl.DataFrame, strings: pl.DataFrame) -> pl.DataFrame:
    ops = database.timed("rocpd_op", OP)
    for column, text in (("opType_id", "type"), ("description_id", "description")):
        ops = looked_up(ops, column, _names(strings, ops, column, text), column)
    pairs = once(database.frame("rocpd_api_ops", PAIRS), "op_id")
    ops = looked_up(ops, "id", pairs, "op_id")
    ops = looked_up(ops, "api_id", once(api.select("id", "pid"), "id"), "id")
    kernels = database.frame("rocpd_kernelapi", KERNEL)
    kernels = looked_up(kernels, "kernelName_id", _names(strings, kernels, "kernelName_id", "kernel"), "kernelName_id")
    ops = looked_up(ops, "api_id", once(kernels, "api_ptr_id"), "api_ptr_id")
    copies = once(database.frame("rocpd_copyapi", {"api_ptr_id": "int", "size": "int"}), "api_ptr_id")
    ops = looked_up(ops, "api_id", copies, "api_ptr_id")
    ops = looked_up(ops, "opType_id", _kinds(strings, rows_once(ops, "opType_id").to_series()), "id")
    described = _col("description") != ""
    is_task = ((_col("type") == TASK) & described).fill_null(value=False)
    kind = pl.when(is_task).then(pl.lit("kernel", WORK_KIND)).otherwise(pl.coalesce("kind", pl.lit("other", WORK_KIND)))
    name = pl.when(described).then("description").otherwise(pl.coalesce("kernel", "type"))
    first, last = api["pid"].min(), api["pid"].max()
    only = first if first == last else None
    frame = ops.with_columns(kind=kind, alone=_alone(ops["api_id"]))
    is_copy = _col("kind") == "memcpy"
    shown = pl.when(is_copy).then("type").otherwise(name)
    # The sizes in the row of a call are right only if the call started one op. For the ops of a graph they are wrong.
    frame = frame.with_columns(shown=shown, of_kernel=(_col("kind") == "kernel") & _col("alone"))
    of_kernel = _col("of_kernel")
    short = kernel_names(frame["shown"].cast(pl.Categorical))
    return numbered(
        frame.select(
            pl.coalesce("pid", pl.lit(only, pl.Int64)).alias("pid"),
            _col("gpuId").cast(pl.Int32, strict=False).alias("device_id"),
            _col("queueId").alias("stream_id"),
            "start_ns",
            "end_ns",
            "kind",
            pl.when(_col("kind") == "kernel").then(short).otherwise(_col("shown").cast(pl.Categorical)).alias("name"),
            pl.when(_col("kind") == "kernel").then("shown").alias("full_name"),
            _col("api_id").alias("correlation_id"),
            pl.when(is_copy & _col("alone")).then("size").alias("bytes"),
            "copy_from",
            "copy_to",
            *(
                pl.when(of_kernel).then(_col(column).cast(pl.Int32, strict=False)).alias(to)
                for column, to in zip(GRID, SIZES, strict=True)
            ),
            pl.when(of_kernel).then("groupSegmentSize").alias("dynamic_shared_bytes"),
        )
    )


def _alone(numbers: pl.Series) -> pl.Series:
    """Returns True for numbers that occur only once."""
    if numbers.null_count() or not numbers.is_sorted():
        return numbers.to_frame().select(pl.len().over(numbers.name) == 1).to_series()
    is_first = (numbers != numbers.shift()).fill_null(value=True)
    return is_first & is_first.shift(-1, fill_value=True)


def _kinds(strings: pl.DataFrame, types: pl.Series) -> pl.DataFrame:
    """Returns id, kind, copy_from and copy_to of each type of op."""
    used = strings.filter(_col("id").is_in(types.implode()))
    copy_from, copy_to = (
        _col("string")
        .replace_strict({kind: ends[side] for kind, ends in SIDES.items()}, default=None, return_dtype=pl.String)
        .cast(pl.Categorical)
        for side in (0, 1)
    )
    kind = _col("string").replace_strict(KINDS, default="other", return_dtype=pl.String).cast(WORK_KIND)
    return used.select("id", kind=kind, copy_from=copy_from, copy_to=copy_to)


def _counters(database: RocpdDatabase) -> pl.DataFrame:
    rows = database.timed("rocpd_monitor", MONITOR)
    name = pl.concat_str("deviceType", pl.lit(" "), _col("deviceId").cast(pl.String), pl.lit(" "), "monitorType")
    return rows.select(
        pl.lit(0, pl.Int32).alias("rank"),
        _col("start_ns").alias("time_ns"),
        name.cast(pl.Categorical).alias("name"),
        "value",
    )
