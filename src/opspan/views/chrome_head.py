"""What a Chrome trace has beside its events: what torch.profiler's files have there, and tables that are no events."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

import polars as pl

from opspan.tables import Metadata, Tables, cycles, schema
from opspan.tables import chrome_keys as keys
from opspan.views.chrome_tracks import Tracks

SERIES = ["name", "domain", "device_id"]
_OF_A_DEVICE = {"name": "name", "memory_bytes": "totalGlobalMem", "multiprocessors": "numSms"}


def head(trace: Tables, tracks: Tracks, zero_ns: int) -> dict[str, Any]:
    found: dict[str, Any] = {keys.MARK: {"version": keys.VERSION, "zero_ns": zero_ns, "no_thread": tracks.no_thread}}
    found |= {"schemaVersion": 1, "displayTimeUnit": "ms"}
    if trace.origin_utc_ns is not None:
        found["baseTimeNanoseconds"] = trace.origin_utc_ns + zero_ns
    if len(trace.ranks) == 1:
        rank = trace.ranks[0]
        own = {*found, keys.TABLES, "traceEvents", "deviceProperties"}
        own -= {"displayTimeUnit"} if rank.source == "kineto" else set()
        found |= {name: value for name, value in _sound(_said_of(rank)).items() if name not in own}
        found["deviceProperties"] = _sound(list(_devices(trace.devices)))
    tables = {name: trace.frames[name].select(list(schema.TABLES[name].schema)) for name in keys.WHOLE}
    tables["places"] = tracks.by_process
    tables["series"] = series(trace.counters)
    if any(rank.cycles for rank in trace.ranks):
        tables[keys.CYCLES] = cycles.begins(trace.frames)
    found[keys.TABLES] = {"ranks": [_sound(dataclasses.asdict(rank)) for rank in trace.ranks]} | {
        name: _columns(frame) for name, frame in tables.items()
    }
    return found


def _said_of(rank: Metadata) -> Mapping[str, Any]:
    """What a user has said of the run, or what torch.profiler has; HTA looks for distributedInfo."""
    said = rank.options if rank.source == "kineto" else rank.options.get("metadata")
    return said if isinstance(said, Mapping) else {}


def _devices(devices: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """As torch.profiler has them; other tools take sizes of devices from there."""
    for row in devices.filter(pl.col("device_id").is_not_null()).iter_rows(named=True):
        said = {key: row[column] for column, key in _OF_A_DEVICE.items() if row[column] is not None}
        major, _, minor = (row["capability"] or "").partition(".")
        if major.isdecimal() and minor.isdecimal():
            said |= {"computeMajor": int(major), "computeMinor": int(minor)}
        if said:
            yield {"id": row["device_id"], **said, **_object_of(row["attributes_json"])}


def _object_of(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _sound(value: Any) -> Any:
    """Without what Python's json module would write and JSON does not have: NaN, infinities, halves of a pair."""
    text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    return json.loads(text, parse_constant=str)


def _columns(frame: pl.DataFrame) -> dict[str, list[Any]]:
    """The columns that hold anything, as lists; numbers that JSON cannot hold become texts."""
    columns: dict[str, list[Any]] = {}
    for column in frame.iter_columns():
        if column.dtype == pl.Float64:
            values = [value if value is None or isfinite(value) else str(value) for value in column]
        else:
            values = (
                column if column.dtype.is_numeric() or column.dtype == pl.Boolean else column.cast(pl.String)
            ).to_list()
        if column.count():
            columns[column.name] = values
    return columns


def series(counters: pl.DataFrame) -> pl.DataFrame:
    """What is known of counters beside their values. Kept apart, as viewers take all args of a counter for values."""
    return counters.select(SERIES).unique(maintain_order=True)
