"""Adds the samples that perf took, while captures were written, to the trace of these captures.

    with_samples(host, part) -> the tables of `host`, with the samples, threads, processes and issues of `part` added

Both read the same clock, so no time is changed. A sample gets the rank of its process. A process without a capture,
such as a launcher, gets the lowest rank, as in a folder of captures.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import polars as pl

from opspan.tables import Issues, Metadata, Tables

_KEYS = {"threads": ["rank", "pid", "tid"], "processes": ["rank", "pid"]}


def with_samples(host: Tables, part: Tables, *, all_processes: bool) -> Tables:
    """Returns the tables of both. Unless `all_processes`, samples of processes without a capture are left out."""
    own, other = host.metadata, part.metadata
    issues = Issues(other.paths[0])
    if own.clock is None or own.clock != other.clock:
        issues.add("unreadable_file", detail=_other_clock(own, other))
        return host.replace(issues=pl.concat([host.issues, issues.frame()], how="diagonal"))
    if other.host is not None and any(rank.host not in (None, other.host) for rank in host.ranks):
        issues.add("unreadable_file", detail=f"its samples are of the host {other.host}, and captures are of others")
        return host.replace(issues=pl.concat([host.issues, issues.frame()], how="diagonal"))
    lowest = min(rank.rank for rank in host.ranks)
    ranks = host.processes.select("pid", "rank").drop_nulls().unique("pid", keep="first", maintain_order=True)
    frames = {"issues": pl.concat([host.issues, part.issues, issues.frame()], how="diagonal")}
    how: Literal["left", "inner"] = "left" if all_processes else "inner"
    for name in ("samples", "threads", "processes"):
        rows = part.frames[name].drop("rank").join(ranks, on="pid", how=how, maintain_order="left")
        rows = rows.with_columns(pl.col("rank").fill_null(lowest).cast(pl.Int32))
        frames[name] = pl.concat([host.frames[name], rows], how="diagonal")
    for name, keys in _KEYS.items():  # what the captures tell of a thread or process comes first
        known = pl.all().exclude(keys).drop_nulls().first()
        frames[name] = frames[name].group_by(keys, maintain_order=True).agg(known)
    options = {"perf": dict(other.options)}
    first, *rest = host.ranks
    first = replace(first, options={**first.options, **options})
    return type(host)((first, *rest), **{**host.frames, **frames})


def _other_clock(own: Metadata, other: Metadata) -> str:
    return (
        f"its times are of {other.clock or 'an unknown clock'}, those of the captures of {own.clock}: "
        "`perf record -k CLOCK_MONOTONIC` and `perf script --header` say which"
    )
