"""Makes the head of a Chrome trace: all top-level keys but `traceEvents`. They are torch.profiler's keys and
opspan's own, such as the tables that are not written as events."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

import polars as pl

from opspan.json_columns import object_of
from opspan.tables import Metadata, Tables, cycles, schema
from opspan.tables import chrome_keys as keys
from opspan.views.chrome_tracks import ChromeTracks

SERIES = ["name", "domain", "device_id"]
_OF_A_DEVICE = {"name": "name", "memory_bytes": "totalGlobalMem", "multiprocessors": "numSms"}


def head(trace: Tables, tracks: ChromeTracks, zero_ns: int) -> dict[str, Any]:
    members: dict[str, Any] = {keys.MARK: {"version": keys.VERSION, "zero_ns": zero_ns, "no_thread": tracks.no_thread}}
    members |= {"schemaVersion": 1, "displayTimeUnit": "ms"}
    if trace.origin_utc_ns is not None:
        members["baseTimeNanoseconds"] = trace.origin_utc_ns + zero_ns
    if len(trace.ranks) == 1:
        rank = trace.ranks[0]
        own = {*members, keys.TABLES, "traceEvents", "deviceProperties"}
        own -= {"displayTimeUnit"} if rank.source == "kineto" else set()
        members |= {name: value for name, value in _sound(_user_metadata(rank)).items() if name not in own}
        members["deviceProperties"] = _sound(list(_devices(trace.devices)))
    tables = {name: trace.frames[name].select(list(schema.TABLES[name].schema)) for name in keys.WHOLE}
    tables["places"] = tracks.by_process
    tables["series"] = series(trace.counters)
    if any(rank.cycles for rank in trace.ranks):
        tables[keys.CYCLES] = cycles.begins(trace.frames)
    members[keys.TABLES] = {"ranks": [_sound(dataclasses.asdict(rank)) for rank in trace.ranks]} | {
        name: _columns(frame) for name, frame in tables.items()
    }
    return members


def _user_metadata(rank: Metadata) -> Mapping[str, Any]:
    """Returns the metadata that a user or torch.profiler added to the run. HTA looks for distributedInfo in the
    metadata."""
    metadata = rank.options if rank.source == "kineto" else rank.options.get("metadata")
    return metadata if isinstance(metadata, Mapping) else {}


def _devices(devices: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """Yields the properties of devices under torch.profiler's keys, because other tools look for these keys."""
    for row in devices.filter(pl.col("device_id").is_not_null()).iter_rows(named=True):
        members = {key: row[column] for column, key in _OF_A_DEVICE.items() if row[column] is not None}
        major, _, minor = (row["capability"] or "").partition(".")
        if major.isdecimal() and minor.isdecimal():
            members |= {"computeMajor": int(major), "computeMinor": int(minor)}
        if members:
            yield {"id": row["device_id"], **members, **object_of(row["attributes_json"])}


def _sound(value: Any) -> Any:
    """Replaces values that Python's json module would write although JSON does not allow them: NaN, infinities, lone
    surrogates."""
    text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    return json.loads(text, parse_constant=str)


def _columns(frame: pl.DataFrame) -> dict[str, list[Any]]:
    """Returns a list for each column that has any value. Floats that JSON cannot express become texts."""
    columns: dict[str, list[Any]] = {}
    for column in frame.iter_columns():
        if column.dtype == pl.Float64:
            values = [value if value is None or isfinite(value) else str(value) for value in column]
        else:
            is_plain = column.dtype.is_numeric() or column.dtype == pl.Boolean
            values = (column if is_plain else column.cast(pl.String)).to_list()
        if column.count():
            columns[column.name] = values
    return columns


def series(counters: pl.DataFrame) -> pl.DataFrame:
    """Returns the name, domain and device of each counter. They are not args of the events, because viewers show all
    args of a counter as values."""
    return counters.select(SERIES).unique(maintain_order=True)
