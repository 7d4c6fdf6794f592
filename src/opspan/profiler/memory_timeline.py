"""torch.profiler's memory timeline: how much memory was in use at each time, or each event of it, as JSON.

    .json, .json.gz     [times in microseconds, [[0, bytes of each category ...], ...]]
    .raw.json.gz        [[time in nanoseconds, action, bytes, category], ...]

Torch sorts memory into parameters, gradients, activations and so on by following every tensor; of a recording that is
not known, so all of it is of torch's last category, unknown.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import polars as pl

from opspan import private_files
from opspan.errors import WriteError

CATEGORIES = 8  # PARAMETER, OPTIMIZER_STATE, INPUT, TEMPORARY, ACTIVATION, GRADIENT, AUTOGRAD_DETAIL, unknown
UNKNOWN = CATEGORIES - 1
TAKEN, GIVEN_BACK = 1, 3  # torch's numbers of what happened
_col = pl.col


def write(memory: pl.DataFrame, device: str | None, path: Path) -> None:
    """`memory`: the table. `device`: "cpu", or "cuda:0" and the like; None is the host."""
    kind, _, number = (device or "cpu").partition(":")
    on_device = _col("device_id").is_null() if kind == "cpu" else _col("device_id") == int(number or 0)
    changes = memory.filter(on_device, _col("event").is_in(["alloc", "free"])).sort("time_ns", maintain_order=True)
    changes = changes.with_columns(signed=_col("bytes") * pl.when(_col("event") == "free").then(-1).otherwise(1))
    if path.suffixes[-3:] == [".raw", ".json", ".gz"]:
        _write(raw(changes), path)
    elif path.suffix in (".json", ".gz"):
        _write(in_use(changes), path)
    else:
        raise WriteError(f"{path}: a memory timeline is .json, .json.gz or .raw.json.gz")


def in_use(changes: pl.DataFrame) -> list[list[object]]:
    times = changes.select(time=_col("time_ns") // 1000, total=_col("signed").cum_sum())
    times = times.unique("time", keep="last", maintain_order=True)
    before = [0] * CATEGORIES
    return [times["time"].to_list(), [[*before, total] for total in times["total"].to_list()]]


def raw(changes: pl.DataFrame) -> list[list[int]]:
    action = pl.when(_col("event") == "free").then(GIVEN_BACK).otherwise(TAKEN)
    rows = changes.select("time_ns", action.alias("action"), "signed", pl.lit(UNKNOWN).alias("category"))
    return [list(row) for row in rows.iter_rows()]


def _write(content: object, path: Path) -> None:
    text = json.dumps(content).encode()
    try:
        with private_files.unfinished(path, overwrite=True) as made:
            made.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    except OSError as error:
        raise WriteError(f"cannot write {path}: {error.strerror or error}") from error
