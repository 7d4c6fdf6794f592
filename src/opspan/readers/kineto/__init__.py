"""Reads what torch.profiler exports: Kineto's Chrome traces (*.pt.trace.json, also compressed) of torch 1.8 and later.

docs/formats/kineto.md describes the events.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from opspan.formats import chrome
from opspan.formats.chrome import ChromeFile, gathered, is_utc
from opspan.printable import listed_counts
from opspan.readers.kineto import device, events, exported, host, owners
from opspan.tables import Issues, Metadata, Tables
from opspan.tables.metadata import from_distributed

_MEMBERS = {"schemaVersion", "deviceProperties", "distributedInfo", "baseTimeNanoseconds"}
_col = pl.col


def sniff(path: Path, head: bytes) -> bool:
    if path.is_dir():
        return False
    members, first_events = chrome.beginning(path, head)
    if _MEMBERS & set(members):
        return True
    return first_events.height > 0 and events.is_known(first_events["cat"].unique().to_list())


def read(path: Path) -> Tables:
    mark = exported.mark_of(path)
    return _read(path) if mark is None else exported.read(path, mark)


def _read(path: Path) -> Tables:
    issues = Issues(str(path))
    chrome_file = ChromeFile(path, issues)
    groups = gathered(chrome_file, events.GROUPS, issues)
    if chrome_file.is_open_ended:
        issues.add("truncated_file")
    labels = groups[events.NAMES].filter(_col("name") == "process_labels")
    devices = owners.devices_of_labels(labels)
    # A large group is removed from `groups` when it is used for the last time, so that its memory is freed as soon as
    # possible.
    others, called, launched = _split_others(groups.pop(events.OTHERS), devices["pid"])
    is_known = _col("cat").cast(pl.String).str.to_lowercase().is_in(events.ON_HOST)
    unknown = others.filter(~is_known.fill_null(value=False))
    issues.add("unknown_categories", unknown.height, _categories(unknown))
    figures = groups.pop(events.FIGURES)
    issues.add("counter_ranges", figures.height, _categories(figures))
    ranges = host.ranges(groups.pop(events.RANGES), others, groups.pop(events.MARKS))
    ranges, relations, unlinked = host.link(ranges, groups.pop(events.FLOWS))
    calls = host.calls(pl.concat([groups.pop(events.CALLS), called]))
    functions = host.functions(groups.pop(events.FUNCTIONS))
    threads = pl.concat([frame.select("pid", "tid") for frame in (ranges, calls, functions)])
    threads = threads.drop_nulls().unique().sort("pid", "tid")
    spans = pl.concat([groups.pop(events.WORK), launched])
    places = pl.concat([spans["pid"], devices["pid"]]).drop_nulls().unique()
    issues.add("unknown_work", (odd := device.of_unknown_kind(spans)).height, _categories(odd))
    work = device.work(spans, issues)
    del spans
    work = work.with_columns(owners.processes(work, calls, ranges, places))
    work = work.with_columns(owners.named_ranges(work, calls, ranges))
    nobodys = work.filter(_col("pid").is_null(), ~_col("is_overhead")).height if threads.height else 0
    issues.add("unknown_process", nobodys, "work on devices")
    # For an annotation of the host, Kineto also writes a second event, which spans the annotation's work on a device.
    # The second event is an issue only if the annotation itself is not in the file.
    windows = groups[events.WINDOWS].join(ranges.select("name").unique(), on="name", how="anti")
    issues.add("skipped_events", windows.height, "annotations of devices whose own events are not in the file")
    issues.add("dangling_relations", unlinked, "arrows from forward to backward")
    memory, reserved = device.memory(groups[events.MEMORY])
    names = _names(groups[events.NAMES])
    return Tables(
        (_metadata(path, chrome_file.members, ranges, calls, work),),
        ranges=ranges,
        relations=relations,
        calls=calls,
        work=work,
        functions=functions,
        memory=memory,
        counters=pl.concat([device.counters(groups[events.COUNTERS]), reserved], how="diagonal_relaxed"),
        threads=_with_names(threads, names["thread_name"], ["pid", "tid"]),
        processes=_with_names(threads.select("pid").unique().sort("pid"), names["process_name"], ["pid"]),
        devices=device.devices(work, chrome_file.members.get("deviceProperties"), _device_kind(calls, devices)),
        issues=issues.frame(),
    )


def _split_others(spans: pl.DataFrame, devices: pl.Series) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Splits complete events (phase X) of unknown categories into ranges, calls, and work on devices."""
    is_work = spans["pid"].is_in(devices.implode()).fill_null(value=False)
    is_call = spans["correlation_id"].is_not_null() & ~is_work
    parts = ((events.RANGES, ~is_work & ~is_call), (events.CALLS, is_call), (events.WORK, is_work))
    columns = events.GROUPS.columns
    others, calls, work = (
        chrome.put_back(spans.filter(chosen), events.ARGS, columns[group]).select(columns[group])
        for group, chosen in parts
    )
    return others, calls, work


def _categories(spans: pl.DataFrame) -> str:
    category = _col("cat").cast(pl.String).fill_null("no category")
    counts = spans.group_by(category.alias("cat")).len().sort("cat")
    return listed_counts(dict(counts.iter_rows()))


def _device_kind(calls: pl.DataFrame, devices: pl.DataFrame) -> str:
    """Returns the kind of the devices: gpu for CUDA and HIP, otherwise xpu, mtia, ... The kind is taken from the file's
    labels, or else from the library whose functions were called."""
    kinds = devices["kind"].drop_nulls().unique()
    if len(kinds) == 1:
        return str(kinds[0])
    library = calls["api"].unique().cast(pl.String).str.extract(r"^(.+)_(?:runtime|driver)$")
    others = library.filter(~library.is_in(["cuda", "hip"])).unique()
    return str(others[0]) if len(others) == 1 else "gpu"


def _names(rows: pl.DataFrame) -> dict[str, pl.DataFrame]:
    text = _col("given").cast(pl.String)
    # The text `thread 6583 (python)` describes a thread with the name python.
    name = pl.coalesce(text.str.extract(r"^thread -?[0-9]+ \((.*)\)$"), text).cast(pl.Categorical).alias("name")
    return {
        kind: rows.filter(_col("name") == kind).select("pid", "tid", name) for kind in ("thread_name", "process_name")
    }


def _with_names(places: pl.DataFrame, names: pl.DataFrame, key: list[str]) -> pl.DataFrame:
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
        told=from_distributed(members.get("distributedInfo")),
    )
