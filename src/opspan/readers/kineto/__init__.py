"""Reads what torch.profiler exports: Kineto's Chrome traces (*.pt.trace.json, also compressed) of torch 1.8 and later.

docs/formats/kineto.md describes the events.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from opspan.readers import _chrome
from opspan.readers._chrome import ChromeFile, gathered, is_utc
from opspan.readers.kineto import device, events, host
from opspan.trace import Issues, Metadata, Trace

_MEMBERS = {"schemaVersion", "deviceProperties", "distributedInfo", "baseTimeNanoseconds"}
_col = pl.col


def sniff(path: Path, head: bytes) -> bool:
    if path.is_dir():
        return False
    members, found = _chrome.beginning(path, head)
    if _MEMBERS & set(members):
        return True
    return found.height > 0 and events.is_known(found["cat"].unique().to_list())


def read(path: Path) -> Trace:
    issues = Issues(str(path))
    file = ChromeFile(path, issues)
    found = gathered(file, events.GROUPS, issues)
    if file.is_open_ended:
        issues.add("truncated_file")
    ranges = host.ranges(found[events.RANGES], found[events.MARKS])
    ranges, relations = host.linked(ranges, found[events.FLOWS])
    calls = host.calls(found[events.CALLS])
    functions = host.functions(found[events.FUNCTIONS])
    threads = pl.concat([frame.select("pid", "tid") for frame in (ranges, calls, functions)])
    threads = threads.drop_nulls().unique().sort("pid", "tid")
    pids = threads["pid"].unique()
    work = device.work(found[events.WORK], pids[0] if pids.len() == 1 else None, issues)
    issues.add("unknown_process", work.height if pids.len() > 1 else 0, "work on devices")
    # Arrows from a call to its work say what correlation ids say; these have an end that is not in the file.
    backward = found[events.FLOWS].filter(_col("ph") == "f", _col("cat").is_in(host.ARROWS))
    issues.add("dangling_relations", backward.height - relations.height, "arrows from forward to backward")
    memory, reserved = device.memory(found[events.MEMORY])
    names = _names(found[events.NAMES])
    is_xpu = bool(found[events.CALLS]["cat"].cat.starts_with("xpu").any())
    return Trace(
        (_metadata(path, file.members, ranges, calls, work),),
        ranges=ranges,
        relations=relations,
        calls=calls,
        work=work,
        functions=functions,
        memory=memory,
        counters=pl.concat([device.counters(found[events.COUNTERS]), reserved], how="diagonal_relaxed"),
        threads=_named(threads, names["thread_name"], ["pid", "tid"]),
        processes=_named(threads.select("pid").unique().sort("pid"), names["process_name"], ["pid"]),
        devices=device.devices(work, file.members.get("deviceProperties"), is_xpu),
        issues=issues.frame(),
    )


def _names(rows: pl.DataFrame) -> dict[str, pl.DataFrame]:
    return {
        what: rows.filter(_col("name") == what).select("pid", "tid", _shown().alias("name"))
        for what in ("thread_name", "process_name")
    }


def _shown() -> pl.Expr:
    """`thread 6583 (python)` is the thread called python."""
    text = _col("given").cast(pl.String)
    return pl.coalesce(text.str.extract(r"^thread -?[0-9]+ \((.*)\)$"), text).cast(pl.Categorical)


def _named(places: pl.DataFrame, names: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    names = names.select(*key, "name").unique(key, keep="last", maintain_order=True)
    named = places.join(names, on=key, how="left", maintain_order="left")
    return named.with_columns(rank=pl.lit(0, dtype=pl.Int32))


def _metadata(path: Path, members: dict[str, Any], *frames: pl.DataFrame) -> Metadata:
    base = members.get("baseTimeNanoseconds")
    origin = base if type(base) is int else 0 if is_utc(*frames) else None
    host_name = members.get("host_name")
    return Metadata(
        "kineto",
        (str(path),),
        tool="torch.profiler",
        host=host_name if isinstance(host_name, str) else None,
        origin_utc_ns=origin,
        options={name: value for name, value in members.items() if name not in ("deviceProperties", "traceEvents")},
    )
