"""Reads the description of the program and its machine: metadata, processes, threads, devices.

NAME: objectKind 1, objectId x'7B710000...' , name -> 'python train.py --epochs 1'         the command line
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars as pl

from opspan.formats.columns import narrow
from opspan.readers.nvprof import tables
from opspan.readers.nvprof.profile import Profile
from opspan.tables import Metadata


def metadata(profile: Profile, path: Path, origin_ns: int, names: pl.DataFrame) -> Metadata:
    versions = profile.frame(tables.VERSION, tables.VERSION_COLUMNS)["version"].drop_nulls().to_list()
    options: dict[str, Any] = {"db_version": versions[0] if versions else None}
    commands = _of(names, tables.PROCESS)["name"].drop_nulls().to_list()
    if commands:
        options["command_line"] = commands[0]
    return Metadata("nvprof", (str(path),), tool="nvprof", origin_utc_ns=origin_ns, options=options)


# --- processes and threads


def names(profile: Profile) -> pl.DataFrame:
    """Returns kind, pid, tid and name of the file's named processes and threads."""
    frame = profile.frame(tables.NAME, tables.NAME_COLUMNS)
    known = pl.col("objectKind").is_in([tables.PROCESS, tables.THREAD]).fill_null(value=False)
    # A trace has no column for names that the program gave to devices, contexts and streams.
    profile.issues.add("skipped_tables", frame.filter(~known).height, f"{tables.NAME}, other objects")
    frame = frame.filter(known)
    texts, at = profile.texts(frame["name"], tables.NAME)
    return profile.owners(frame, tables.NAME).with_columns(kind=frame["objectKind"], name=texts.gather(at))


def _of(names: pl.DataFrame, kind: int) -> pl.DataFrame:
    return names.filter(pl.col("kind") == kind).drop("kind")


def pids(names: pl.DataFrame, frames: Iterable[pl.DataFrame]) -> list[int]:
    columns = [frame["pid"].unique() for frame in frames] + [names["pid"]]
    return pl.concat(columns).drop_nulls().unique().sort().to_list()


def processes(names: pl.DataFrame, pids: list[int]) -> pl.DataFrame:
    named = _of(names, tables.PROCESS).unique("pid", keep="first").drop("tid")
    command = pl.col("name")
    return (
        pl.DataFrame({"pid": pids}, schema={"pid": pl.Int64})
        .join(named, on="pid", how="left", maintain_order="left")
        .select(
            pl.lit(0, dtype=pl.Int32).alias("rank"),
            "pid",
            command.str.extract(r"^(?:\S*/)?([^/\s]+)").cast(pl.Categorical).alias("name"),
            command.alias("command_line"),
        )
    )


def threads(names: pl.DataFrame, frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    seen = [frame.select("pid", "tid").unique() for frame in frames if "tid" in frame.columns]
    named = _of(names, tables.THREAD).unique(["pid", "tid"], keep="last")
    places = pl.concat([*seen, named.select("pid", "tid")]).drop_nulls("tid").unique().sort("pid", "tid")
    threads = places.join(named, on=["pid", "tid"], how="left", nulls_equal=True, maintain_order="left")
    return threads.select(pl.lit(0, dtype=pl.Int32).alias("rank"), "pid", "tid", pl.col("name").cast(pl.Categorical))


# --- devices


def contexts(profile: Profile) -> pl.DataFrame:
    """Returns the contexts, with the columns context_id, device_id and default_stream_id."""
    names = {"contextId": "context_id", "deviceId": "device_id", "nullStreamId": "default_stream_id"}
    return (
        profile.frame(tables.CONTEXT, tables.CONTEXT_COLUMNS)
        .drop_nulls("contextId")
        .rename(names)
        .select(*names.values())
    )


def devices(profile: Profile, seen: pl.Series, contexts: pl.DataFrame) -> pl.DataFrame:
    """Returns the GPUs that the file describes, and GPUs that only occur in events."""
    frame = profile.frame(tables.DEVICE, tables.DEVICE_COLUMNS)
    frame = frame.with_columns(profile.names(frame["name"], tables.DEVICE).alias("name"))
    frame = frame.drop_nulls("id").unique("id", keep="first")
    major, minor = (pl.col(f"computeCapability{part}").cast(pl.String) for part in ("Major", "Minor"))
    frame = frame.select(
        pl.lit(0, dtype=pl.Int32).alias("rank"),
        pl.col("id").alias("device_id"),
        pl.lit("gpu").cast(pl.Categorical).alias("kind"),
        "name",
        pl.Series("uuid", [_uuid(raw) for raw in frame["uuid"]], dtype=pl.String),
        pl.col("globalMemorySize").alias("memory_bytes"),
        pl.col("numMultiprocessors").alias("multiprocessors"),
        (major + "." + minor).cast(pl.Categorical).alias("capability"),
        (pl.col("coreClockRate") * 1000).alias("clock_hz"),  # the file has kHz
        (pl.col("globalMemoryBandwidth") * 1000).alias("bandwidth_bytes_per_s"),  # the file has kB/s
    )
    frame = narrow(frame, tables.DEVICE, {"device_id": pl.Int32, "multiprocessors": pl.Int32}, profile.issues)
    frame = frame.drop_nulls("device_id")
    others = pl.DataFrame({"device_id": seen.drop_nulls().unique()}).join(frame, on="device_id", how="anti")
    others = others.with_columns(rank=pl.lit(0, dtype=pl.Int32), kind=pl.lit("gpu").cast(pl.Categorical))
    gpus = pl.concat([frame, others], how="diagonal").sort("device_id")
    return gpus.with_columns(_attributes(profile, contexts, gpus["device_id"]))


def _attributes(profile: Profile, contexts: pl.DataFrame, device_ids: pl.Series) -> pl.Series:
    """Returns contexts and streams of each device as JSON, because no table has columns for them."""
    streams = profile.frame(tables.STREAM, tables.STREAM_COLUMNS).drop_nulls("contextId")
    of_context = streams.partition_by("contextId", as_dict=True, include_key=False)
    written: dict[int | None, list[dict[str, Any]]] = {}
    for context, device, default in contexts.iter_rows():
        its_streams = of_context.get((context,))
        rows = [] if its_streams is None else its_streams.rename({"streamId": "stream_id", "flag": "flags"}).to_dicts()
        written.setdefault(device, []).append({"context_id": context, "default_stream_id": default, "streams": rows})
    texts = [json.dumps({"contexts": written[device]}) if device in written else None for device in device_ids]
    return pl.Series("attributes_json", texts, dtype=pl.String)


def _uuid(raw: bytes | None) -> str | None:
    return f"GPU-{uuid.UUID(bytes=raw)}" if raw is not None and len(raw) == 16 else None
