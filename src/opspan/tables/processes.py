"""Splits a file with processes of several ranks into these ranks.

    in_ranks(trace, of_pid, of_all) -> the trace, split into the ranks that its processes belong to

`of_pid` maps a pid to the known rank of the process, and `of_all` is the rank of the whole file. If fewer than two
ranks are known, the trace is not split. Rows of the table devices belong to the ranks that used the device. Rows
without a process (issues, metrics of reports) belong to the first rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import polars as pl

from opspan.tables.metadata import NOTHING, Told
from opspan.tables.same import each_once
from opspan.tables.tables import Tables

_ACTIVE = ("ranges", "calls", "work", "functions", "memory", "samples")
_DEVICE = "device_id"


def in_ranks(trace: Tables, of_pid: Mapping[int, Told], of_all: Told = NOTHING) -> Tables:
    ranks = {one.rank: one for one in of_pid.values() if one.rank is not None}
    if len(ranks) < 2:
        only = replace(trace.metadata, told=next(iter(ranks.values()), of_all))
        return Tables((only,), **trace.frames)
    of_process = {pid: one.rank for pid, one in of_pid.items() if one.rank is not None}
    first = min(ranks)
    # All active processes of unknown rank together become one further rank, after the known ranks.
    others = set(active(trace)) - set(of_process)
    rest = max([max(ranks) + 1, *(one.world_size or 0 for one in ranks.values())])
    of_process |= dict.fromkeys(others, rest)
    frames = {name: _with_ranks(frame, of_process, first) for name, frame in trace.frames.items()}
    users = frames["work"].select(of="rank", device_id=_DEVICE).drop_nulls().unique().sort("of", _DEVICE)
    of_ranges = frames["ranges"].select(range_id="id", of="rank").unique("range_id", keep="first")
    frames["devices"] = _join_ranks(trace.devices, users, _DEVICE, first)  # a row for each rank that used the device
    frames["counters"] = _with_users(frames["counters"], users)
    frames["relations"] = _join_ranks(trace.relations, of_ranges, "range_id", first)
    known = [
        replace(trace.metadata, rank=rank, rank_by=ranks[rank].by or "", told=ranks[rank]) for rank in sorted(ranks)
    ]
    unknown = [replace(trace.metadata, rank=rest, told=of_all)] if others else []
    return Tables((*known, *unknown), **frames)


def active(trace: Tables) -> list[int]:
    """Returns the ids of the processes that have rows in a table of events."""
    pids = {pid for name in _ACTIVE for pid in each_once(trace.frames[name], "pid")}
    return sorted(pids - {None})


def _with_ranks(frame: pl.DataFrame, of_process: Mapping[int, int], first: int) -> pl.DataFrame:
    if "pid" not in frame.columns:
        return frame.with_columns(rank=pl.lit(first, dtype=pl.Int32))
    return frame.with_columns(
        rank=pl.col("pid").replace_strict(of_process, default=first, return_dtype=pl.Int32).fill_null(first)
    )


def _join_ranks(rows: pl.DataFrame, ranks: pl.DataFrame, key: str, first: int) -> pl.DataFrame:
    joined = rows.join(ranks, on=key, how="left", maintain_order="left")
    return joined.with_columns(rank=pl.col("of").fill_null(first)).drop("of")


def _with_users(counters: pl.DataFrame, users: pl.DataFrame) -> pl.DataFrame:
    """Sets the rank of counters without a process, if only one rank used their device."""
    joined = counters.join(users.filter(pl.len().over(_DEVICE) == 1), on=_DEVICE, how="left", maintain_order="left")
    of = pl.when(pl.col("pid").is_null()).then("of")
    return joined.with_columns(rank=pl.coalesce(of, "rank")).drop("of")
