"""One file with the processes of several ranks: whose is which row.

    in_ranks(trace, told, of_all) -> the trace with a rank for each that its processes are of

`told`: what is known of processes, by pid; `of_all`: of the whole file. Where that is fewer than two ranks, the trace
is one rank. Rows of a device are of the ranks that used it; what is of no process (issues, figures of reports) of the
first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import polars as pl

from opspan.tables.same import each_once
from opspan.tables.tables import Tables
from opspan.tables.told import NOTHING, Told

_ACTIVE = ("ranges", "calls", "work", "functions", "memory", "samples")
_DEVICE = "device_id"


def in_ranks(trace: Tables, told: Mapping[int, Told], of_all: Told = NOTHING) -> Tables:
    ranks = {one.rank: one for one in told.values() if one.rank is not None}
    if len(ranks) < 2:
        only = replace(trace.metadata, told=next(iter(ranks.values()), of_all))
        return Tables((only,), **trace.frames)
    of_process = {pid: one.rank for pid, one in told.items() if one.rank is not None}
    first = min(ranks)
    # Processes that nobody told of are a rank of their own, after the others, if they did anything.
    others = set(active(trace)) - set(of_process)
    rest = max([max(ranks) + 1, *(one.world_size or 0 for one in ranks.values())])
    of_process |= dict.fromkeys(others, rest)
    frames = {name: _with_ranks(frame, of_process, first) for name, frame in trace.frames.items()}
    frames["devices"] = _devices(trace.devices, frames["work"], first)
    frames["counters"] = _of_devices(frames["counters"], frames["work"])
    frames["relations"] = _of_ranges(trace.relations, frames["ranges"], first)
    known = [
        replace(trace.metadata, rank=rank, rank_by=ranks[rank].by or "", told=ranks[rank]) for rank in sorted(ranks)
    ]
    unknown = [replace(trace.metadata, rank=rest, told=of_all)] if others else []
    return Tables((*known, *unknown), **frames)


def active(trace: Tables) -> list[int]:
    """The processes that did something."""
    pids = {pid for name in _ACTIVE for pid in each_once(trace.frames[name], "pid")}
    return sorted(pids - {None})


def _with_ranks(frame: pl.DataFrame, of_process: Mapping[int, int], first: int) -> pl.DataFrame:
    if "pid" not in frame.columns:
        return frame.with_columns(rank=pl.lit(first, dtype=pl.Int32))
    return frame.with_columns(
        rank=pl.col("pid").replace_strict(of_process, default=first, return_dtype=pl.Int32).fill_null(first)
    )


def _of_ranges(relations: pl.DataFrame, ranges: pl.DataFrame, first: int) -> pl.DataFrame:
    of = ranges.select(range_id="id", of="rank").unique("range_id", keep="first")
    found = relations.join(of, on="range_id", how="left", maintain_order="left")
    return found.with_columns(rank=pl.col("of").fill_null(first)).drop("of")


def _users(work: pl.DataFrame) -> pl.DataFrame:
    return work.select(of="rank", device_id=_DEVICE).drop_nulls().unique().sort("of", _DEVICE)


def _devices(devices: pl.DataFrame, work: pl.DataFrame, first: int) -> pl.DataFrame:
    """A row for each rank that used the device."""
    found = devices.join(_users(work), on=_DEVICE, how="left", maintain_order="left")
    return found.with_columns(rank=pl.col("of").fill_null(first)).drop("of")


def _of_devices(counters: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """What is of no process, but of a device that one rank alone used."""
    users = _users(work).filter(pl.len().over(_DEVICE) == 1)
    found = counters.join(users, on=_DEVICE, how="left", maintain_order="left")
    of = pl.when(pl.col("pid").is_null()).then("of")
    return found.with_columns(rank=pl.coalesce(of, "rank")).drop("of")
