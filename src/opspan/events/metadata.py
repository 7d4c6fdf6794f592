"""Defines EventMetadata, which stores kineto's data of a kernel, a copy or a collective as Python values. The names of
its fields are torch's."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple


class EventMetadata(NamedTuple):
    registers_per_thread: int | None = None
    shared_memory: int | None = None
    grid: list[int] | None = None
    block: list[int] | None = None
    priority: int | None = None
    blocks_per_sm: float | None = None
    warps_per_sm: float | None = None
    occupancy: dict[str, Any] | None = None
    est_occupancy_pct: float | None = None
    queued: int | None = None
    graph_id: int | None = None
    graph_node_id: int | None = None
    stream: int | None = None
    context: int | None = None
    channel: int | None = None
    channel_type: int | None = None
    hsa_queue: int | None = None
    bytes: int | None = None
    bandwidth_gb_s: float | None = None
    collective_name: str | None = None
    dtype: str | None = None
    in_msg_nelems: int | None = None
    out_msg_nelems: int | None = None
    in_split_size: str | None = None
    out_split_size: str | None = None
    global_rank_start: int | None = None
    global_rank_stride: int | None = None
    group_size: int | None = None
    process_group_name: str | None = None
    process_group_desc: str | None = None
    group_ranks: str | None = None
    rank: int | None = None
    src_rank: int | None = None
    dst_rank: int | None = None
    seq: int | None = None
    is_async: bool | None = None


def _text(value: str) -> str:
    return value.strip('"')


# Maps kineto's key to the field and to the function that parses kineto's text.
_FIELDS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "registers per thread": ("registers_per_thread", int),
    "shared memory": ("shared_memory", int),
    "grid": ("grid", json.loads),
    "block": ("block", json.loads),
    "priority": ("priority", int),
    "blocks per SM": ("blocks_per_sm", float),
    "warps per SM": ("warps_per_sm", float),
    "occupancy": ("occupancy", json.loads),
    "est. achieved occupancy %": ("est_occupancy_pct", float),
    "queued": ("queued", int),
    "graph id": ("graph_id", int),
    "graph node id": ("graph_node_id", int),
    "stream": ("stream", int),
    "context": ("context", int),
    "channel": ("channel", int),
    "channel_type": ("channel_type", int),
    "hsa_queue": ("hsa_queue", int),
    "bytes": ("bytes", int),
    "memory bandwidth (GB/s)": ("bandwidth_gb_s", float),
    "Collective name": ("collective_name", _text),
    "dtype": ("dtype", _text),
    "In msg nelems": ("in_msg_nelems", int),
    "Out msg nelems": ("out_msg_nelems", int),
    "In split size": ("in_split_size", _text),
    "Out split size": ("out_split_size", _text),
    "Global rank start": ("global_rank_start", int),
    "Global rank stride": ("global_rank_stride", int),
    "Group size": ("group_size", int),
    "Process Group Name": ("process_group_name", _text),
    "Process Group Description": ("process_group_desc", _text),
    "Process Group Ranks": ("group_ranks", _text),
    "Rank": ("rank", int),
    "Src Rank": ("src_rank", int),
    "Dst Rank": ("dst_rank", int),
    "Seq": ("seq", int),
    "Is asynchronized op": ("is_async", lambda text: text in ("1", "true")),
}


def metadata_of(texts: Mapping[str, str | None] | None) -> EventMetadata | None:
    """Converts kineto's metadata, a mapping from keys to texts. Returns None if no key is known. Leaves out texts that
    cannot be parsed."""
    known = {key: value for key, value in (texts or {}).items() if key in _FIELDS and value is not None}
    if not known:
        return None
    values: dict[str, Any] = {}
    for key, text in known.items():
        field, value_of = _FIELDS[key]
        with suppress(ValueError, RecursionError):
            values[field] = value_of(text)
    return EventMetadata(**values)
