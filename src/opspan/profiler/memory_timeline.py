"""Writes torch.profiler's memory timeline: the memory in use over time, or each event that changes it.

    .json, .json.gz     [times in microseconds, [[0, bytes of each category ...], ...]]
    .raw.json.gz        [[time in nanoseconds, action, bytes, category], ...]
    .html               a picture of the memory in use (timeline_page.py)

torch sorts memory into parameters, gradients, activations and so on by following every tensor. opspan finds the
category from the ranges around an event (analysis/categories.py). Without such ranges the category is unknown.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import polars as pl

from opspan import forked, private_files
from opspan.errors import WriteError
from opspan.profiler.timeline_page import page
from opspan.row_numbers import ROW_NUMBER
from opspan.trace import Trace

# The categories in the order of torch's numbers. In the JSON, the bytes of the categories have the same order.
CATEGORIES = (
    "parameter",
    "optimizer_state",
    "input",
    "temporary",
    "activation",
    "gradient",
    "autograd_detail",
    "unknown",
)
# Torch's numbers of the actions; BEFORE marks memory that was taken before the recording.
BEFORE, TAKEN, GIVEN_BACK = 1, 2, 4
NO_TIME = -1
_col = pl.col


@forked.elsewhere
def write(trace: Trace, device: str | None, path: Path) -> None:
    """Writes the form that the suffix of `path` selects. `device` is "cpu" or a name such as "cuda:0"; None means the
    CPU."""
    changes = changes_of(trace, device or "cpu")
    if path.suffixes[-3:] == [".raw", ".json", ".gz"]:
        _write(json.dumps([list(row) for row in changes.iter_rows()]), path)
    elif path.suffix in (".json", ".gz"):
        used = in_use(changes)
        sizes = used.select(pl.concat_list(pl.lit(0), *CATEGORIES)).to_series()
        _write(json.dumps([used["time_us"].to_list(), sizes.to_list()]), path)
    elif path.suffix == ".html":
        _write(page(in_use(changes), CATEGORIES, device or "cpu"), path)
    else:
        raise WriteError(f"{path}: a memory timeline is .html, .json, .json.gz or .raw.json.gz")


def changes_of(trace: Trace, device: str) -> pl.DataFrame:
    """Returns a row for each change of memory, in order of time. The columns are time_ns, action, bytes (negative if
    given back) and category."""
    kind, _, number = device.partition(":")
    on_device = _col("device_id").is_null() if kind == "cpu" else _col("device_id") == int(number or 0)
    blocks = trace.analysed.allocations
    before = blocks.filter(_col("alloc_row").is_null(), _col("address").is_not_null())["free_row"]
    memory = trace.memory.with_columns(
        trace.analysed.memory_categories.cast(pl.String).fill_null("unknown"),
        was_there=pl.int_range(pl.len(), dtype=ROW_NUMBER).is_in(before.implode()),
    )
    memory = memory.filter(on_device, _col("event").is_in(["alloc", "free"]), _col("time_ns").is_not_null())
    memory = memory.sort("time_ns", maintain_order=True)
    is_free = _col("event") == "free"
    category = _col("category").replace_strict({name: number for number, name in enumerate(CATEGORIES)})
    columns = ("time_ns", "action", "bytes", "category")
    events = memory.with_columns(
        _col("time_ns") + (trace.origin_utc_ns or 0),
        category.cast(pl.Int64),
        action=pl.when(is_free).then(GIVEN_BACK).otherwise(TAKEN),
        bytes=pl.when(is_free).then(-_col("bytes")).otherwise("bytes"),
    )
    there = events.filter("was_there").with_columns(-_col("bytes"), time_ns=pl.lit(NO_TIME), action=pl.lit(BEFORE))
    return pl.concat([there.select(columns), events.select(columns)], how="vertical_relaxed")


def in_use(changes: pl.DataFrame) -> pl.DataFrame:
    """Returns a row for each microsecond with an event: time_us, and the bytes of each category at the end of this
    microsecond. As in torch, memory from before the recording gets a separate first row."""
    happened = changes.filter(_col("time_ns") != NO_TIME)["time_ns"]
    first = happened.min()
    is_before = _col("time_ns") == NO_TIME
    sums = [
        pl.when(_col("category") == number).then("bytes").otherwise(0).cum_sum().alias(name)
        for number, name in enumerate(CATEGORIES)
    ]
    time_us = pl.when(is_before).then(pl.lit(first)).otherwise("time_ns") // 1000
    used = changes.select(time_us.alias("time_us"), is_before.alias("is_before"), *sums)
    return used.unique(["time_us", "is_before"], keep="last", maintain_order=True).drop("is_before")


def _write(text: str, path: Path) -> None:
    content = text.encode()
    try:
        with private_files.unfinished(path, overwrite=True) as file:
            file.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    except OSError as error:
        raise WriteError(f"cannot write {path}: {error.strerror or error}") from error
