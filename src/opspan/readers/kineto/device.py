"""Translates work on devices, memory events, counters, and descriptions of devices into tables.

{"ph": "X", "cat": "kernel", "name": "void add<float>(float*)", "pid": 0, "tid": 7, "ts": 24.1, "dur": 3.0,
 "args": {"device": 0, "context": 1, "stream": 7, "correlation": 66, "grid": [8, 1, 1], "block": [256, 1, 1],
          "registers per thread": 26, "shared memory": 0, "est. achieved occupancy %": 3}}
{"ph": "X", "cat": "mtia_ccp_events", "name": "dma_request", "pid": 17, "tid": 3536, "ts": 24.1, "dur": 3.0,
 "args": {"correlation": 66, "stream": 101, "direction": "HOST_TO_DEVICE", "size": 4096, "sqid": 4}}

Kineto writes the device's number into `pid`, the field for the process. owners.py finds the real process.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import polars as pl

from opspan.formats.chrome import times
from opspan.formats.columns import SIZES, constant, narrow, numbered
from opspan.formats.kernel_names import kernel_name
from opspan.readers.kineto.events import COUNTERS_OF_DEVICES
from opspan.tables import Issues
from opspan.tables.schema import MEMORY_EVENT, WORK_KIND

_col = pl.col
_KINDS = {"kernel": "kernel", "gpu_memcpy": "memcpy", "memcpy": "memcpy", "gpu_memset": "memset", "memset": "memset"}
_KINDS |= {"cuda_sync": "sync", "xpu_sync": "sync", "cuda_event": "sync", "overhead": "other"}
# Categories of work on devices, besides those in _KINDS. In these categories, the category and name of an event tell
# whether the event is a copy, a fill or a wait; otherwise the event is a kernel. An event of any other category gets
# the kind "other". Some events of this kind are counters, and did not use the device.
_OF_DEVICES = r"_ccp_events$|^mtia_workload|(^|_)kernels?$|(^|_)mem(cpy|set)$"
_COPY = r"(?i)(^|_|\b)(dma|mem_?cpy|copy|h2d|d2h|d2d|dtoh|htod|dtod)(_|\b|$)|memcpy"
_FILL = r"(?i)mem_?set|(^|_|\b)fill(_|\b|$)"
_WAIT = r"(?i)(^|_|\b)(event|wait|sync|synchronize|barrier|fence)(_|\b|$)|_sync$"
_SIZE = r'"size": ([0-9]+)'
_AXES = ("x", "y", "z")
_HOST = (0, 2, 5)  # numbers of torch's device types CPU, MKLDNN and IDEEP
# The columns memory_bytes and multiprocessors have the values of these keys of deviceProperties.
_MEMORY_BYTES, _MULTIPROCESSORS = "totalGlobalMem", ("numSms", "multiProcessorCount")


def work(spans: pl.DataFrame, issues: Issues) -> pl.DataFrame:
    """Returns the table work, without its column pid."""
    spans = _with_kinds(spans)
    is_transfer = _col("kind").is_in(["memcpy", "memset"])
    frame = spans.with_columns(
        *_axes(spans["grid"]),
        *_axes(spans["block"]),
        device_id=pl.coalesce("device_id", pl.when(_col("pid") >= 0).then("pid")),
        bytes=pl.coalesce(
            "bytes", pl.when(is_transfer).then(_col("rest").str.extract(_SIZE).cast(pl.Int64, strict=False))
        ),
    )
    frame = narrow(frame, "kernels", dict.fromkeys(("device_id", "registers", *SIZES), pl.Int32), issues)
    return numbered(
        frame.select(
            *times(),
            "kind",
            *("device_id", "context_id", "stream_id", "correlation_id", "bytes", "registers"),
            *SIZES,
            _col("shown").alias("name"),
            _col("name").alias("full_name"),
            "copy_from",
            "copy_to",
            (_col("cat") == "overhead").fill_null(value=False).alias("is_overhead"),
            _col("rest").alias("payload_json"),
        )
    )


def of_unknown_kind(spans: pl.DataFrame) -> pl.DataFrame:
    """Returns the events whose category is not one of the known categories of work on devices."""
    is_known = _category().is_in(list(_KINDS)) | _category().str.contains(_OF_DEVICES)
    unknown = spans.select(_col("cat").unique()).filter(~is_known.fill_null(value=False))
    return spans.join(unknown, on="cat", nulls_equal=True) if unknown.height else spans.clear()


def _category() -> pl.Expr:
    return _col("cat").cast(pl.String).str.to_lowercase()


def _with_kinds(spans: pl.DataFrame) -> pl.DataFrame:
    """Adds the kind, the name to show, and the source and target of copies. Parses each distinct name once."""
    label, kind = _col("name").cast(pl.String), _category()
    distinct = spans.select("cat", "name").unique()
    named = pl.concat_str(kind, pl.lit(" "), label, ignore_nulls=True)
    guessed = pl.lit("kernel")
    for what, pattern in (("sync", _WAIT), ("memset", _FILL), ("memcpy", _COPY)):
        guessed = pl.when(named.str.contains(pattern)).then(pl.lit(what)).otherwise(guessed)
    guessed = pl.when(kind.str.contains(_OF_DEVICES)).then(guessed).otherwise(pl.lit("other"))
    parsed = distinct.with_columns(
        kind=kind.replace_strict(_KINDS, default=guessed, return_dtype=pl.String).cast(WORK_KIND),
        short=label.map_elements(kernel_name, return_dtype=pl.String),
        # Extracts the text in brackets from "Memcpy HtoD (Pageable -> Device)" and "Memset (Device)".
        where=label.str.extract(r"\(([^()]*)\)$"),
    )
    is_kernel, is_copy, is_fill = (_col("kind") == kind for kind in ("kernel", "memcpy", "memset"))
    side = _col("where").str.split(" -> ")
    is_function = is_kernel & (kind == "kernel")
    shown = pl.when(is_function).then("short").when(is_copy | is_fill).then(label.str.replace(r" \([^()]*\)$", ""))
    copy_to = pl.when(is_copy).then(side.list.get(1, null_on_oob=True)).when(is_fill).then("where")
    parsed = parsed.select(
        "cat",
        "name",
        "kind",
        pl.coalesce(shown, label).cast(pl.Categorical).alias("shown"),
        _memory_kind(pl.when(is_copy & (side.list.len() == 2)).then(side.list.first())).alias("copy_from"),
        _memory_kind(copy_to).alias("copy_to"),
    )
    return spans.join(parsed, on=["cat", "name"], how="left", nulls_equal=True, maintain_order="left")


def _memory_kind(text: pl.Expr) -> pl.Expr:
    return text.str.to_lowercase().cast(pl.Categorical)


def _axes(sizes: pl.Series) -> list[pl.Series]:
    """Splits [8, 1, 1] into three columns."""
    distinct = sizes.unique()
    parts = distinct.cast(pl.String).str.strip_chars("[]").str.split(", ")
    numbers = [parts.list.get(at, null_on_oob=True).cast(pl.Int64, strict=False) for at in range(len(_AXES))]
    return [
        sizes.replace_strict(distinct, number, default=None, return_dtype=pl.Int64).alias(f"{sizes.name}_{axis}")
        for number, axis in zip(numbers, _AXES, strict=True)
    ]


def memory(events: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns the table memory, and counters of the bytes that torch's allocators have reserved."""
    device = pl.when(~_col("device_type").is_in(_HOST)).then("of_device").cast(pl.Int32, strict=False)
    rows = events.with_columns(rank=pl.lit(0, dtype=pl.Int32), device_id=device)
    change = rows.select(
        "rank",
        "pid",
        "tid",
        "device_id",
        "total_bytes",
        _col("ts_ns").alias("time_ns"),
        pl.when(_col("change") < 0).then(pl.lit("free")).otherwise(pl.lit("alloc")).cast(MEMORY_EVENT).alias("event"),
        _col("change").abs().alias("bytes"),
        _col("address").cast(pl.UInt64, strict=False),
        _with_reserved().alias("payload_json"),
    )
    reserved = rows.filter(_col("reserved") > 0).select(
        "rank",
        "pid",
        "tid",
        "device_id",
        _col("ts_ns").alias("time_ns"),
        constant("reserved bytes").alias("name"),
        constant("torch allocator").alias("domain"),
        _col("reserved").cast(pl.Float64).alias("value"),
    )
    return change, reserved


def _with_reserved() -> pl.Expr:
    """Returns the event's args with the reserved bytes added. These bytes also become a counter."""
    first = pl.concat_str(pl.lit('{"Total Reserved": '), _col("reserved").cast(pl.String))
    rest = pl.when(_col("rest").is_null()).then(pl.lit("}")).otherwise(", " + _col("rest").str.slice(1))
    return pl.coalesce(first + rest, "rest")


def counters(events: pl.DataFrame) -> pl.DataFrame:
    """Makes a counter from each number in the args of counter events. In counters of a device, `pid` is the
    device's number, or a name such as GPU 0 Counters."""
    of_device = _category().is_in(COUNTERS_OF_DEVICES).fill_null(value=False)
    named = _col("pid_text").cast(pl.String).str.extract(r"^[A-Za-z]\w* ([0-9]{1,9}) [Cc]ounters$", 1).cast(pl.Int64)
    number = pl.coalesce("pid", named)
    events = events.select(
        "name",
        pl.when(~of_device).then("pid").alias("pid"),
        pl.when(~of_device).then("tid").alias("tid"),
        pl.when(of_device & (number >= 0)).then(number).cast(pl.Int32, strict=False).alias("device_id"),
        pl.when(of_device).then(_category()).alias("domain"),
        "ts_ns",
        "rest",
    )
    rows = []
    for name, *place, rest in events.iter_rows():
        for key, value in _numbers(rest):
            rows.append((0, *place, f"{name} {key}" if name else key, value))
    schema = {"rank": pl.Int32, "pid": pl.Int64, "tid": pl.Int64, "device_id": pl.Int32, "domain": pl.String}
    schema |= {"time_ns": pl.Int64, "name": pl.String, "value": pl.Float64}
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    return frame.with_columns(_col("name", "domain").cast(pl.Categorical))


def _numbers(rest: str | None) -> Iterator[tuple[str, float]]:
    try:
        args = json.loads(rest or "{}")
    except (ValueError, RecursionError):  # thousands of digits in a number, or thousands of nested brackets
        return
    for key, value in args.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            with suppress(OverflowError):
                yield key, float(value)


def devices(work: pl.DataFrame, properties: Any, kind: str) -> pl.DataFrame:
    """Returns the devices on which work ran, and the devices that the file describes.

    On ROCm, work has the device's number in the machine, but a description has the number that the program uses for the
    device. For example, with HIP_VISIBLE_DEVICES=2 the file describes device 0, but work ran on device 2. So if no used
    device is described, and all described devices are of one model, all used devices get the first description.
    """
    described = {
        entry["id"]: entry
        for entry in (properties if isinstance(properties, list) else [])
        if isinstance(entry, Mapping) and type(entry.get("id")) is int and 0 <= entry["id"] < 1 << 31
    }
    used = work.filter(~_col("is_overhead"))["device_id"].drop_nulls().unique().to_list()
    if (
        described
        and described.keys().isdisjoint(used)
        and len({entry.get("name") for entry in described.values()}) == 1
    ):
        described |= dict.fromkeys(used, next(iter(described.values())))
    rows = [_device(number, described.get(number, {}), kind) for number in sorted({*used, *described})]
    texts = dict.fromkeys(("kind", "name", "capability", "attributes_json"), pl.String)
    schema = {"rank": pl.Int32, "device_id": pl.Int32, "memory_bytes": pl.Int64, "multiprocessors": pl.Int32, **texts}
    return pl.DataFrame(rows, schema=schema, strict=False)


def _device(number: int, entry: Mapping[str, Any], kind: str) -> dict[str, Any]:
    taken = {"id", "name", _MEMORY_BYTES, "computeMajor", "computeMinor", *_MULTIPROCESSORS}
    major, minor = entry.get("computeMajor"), entry.get("computeMinor")
    rest = {key: value for key, value in entry.items() if key not in taken}
    return {
        "rank": 0,
        "device_id": number,
        "kind": kind,
        "name": str(entry["name"]) if entry.get("name") else None,
        "memory_bytes": _integer(entry, (_MEMORY_BYTES,), 63),
        "multiprocessors": _integer(entry, _MULTIPROCESSORS, 31),
        "capability": f"{major}.{minor}" if major is not None and minor is not None else None,
        "attributes_json": json.dumps(rest) if rest else None,
    }


def _integer(entry: Mapping[str, Any], keys: Sequence[str], bits: int) -> int | None:
    values = (entry[key] for key in keys if type(entry.get(key)) is int)
    return next((value for value in values if 0 <= value < 1 << bits), None)
