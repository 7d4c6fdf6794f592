"""Reads the description of an export and its machine: metadata, processes, threads, ranks, devices, tool messages.

One of these states the rank of a process:

MPI_RANKS             globalTid, rank: a row for each thread that called MPI_Init
META_DATA_CAPTURE     PROCESS_0:ENVIRONMENT_VARIABLE  RANK="3": a row for the program that nsys started
ncclCommInitRank      {"NCCL communicator ID": ..., "No. of ranks": 8, "Rank": 3}: a range for each member of a group
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from opspan import printable
from opspan.formats.columns import Columns, ints
from opspan.readers.nsys.export import ID_MASK, PID_UNIT, Export, pid_of
from opspan.tables import Metadata, Tables, Told
from opspan.tables.metadata import VARIABLES, from_environment, told
from opspan.tables.processes import active, in_ranks
from opspan.tables.same import each_once, is_one

EXPORT_FACTS = ("META_DATA_EXPORT", "EXPORT_META_DATA")
CAPTURE_FACTS = "META_DATA_CAPTURE"
FACT_COLUMNS: Columns = {"name": "text", "value": "text"}

# Facts about the user's environment are not shown, because an environment holds secrets.
PRIVATE = "(?i)ENVIRONMENT"
ARGUMENT = r"PROCESS_0:ARGUMENT_(?P<place>[0-9]+)"

DIAGNOSTICS = "DIAGNOSTIC_EVENT"
# Severity -> code of the issue, for files without ENUM_DIAGNOSTIC_SEVERITY_LEVEL
SEVERITIES = {2: "tool_warnings", 3: "tool_errors"}
SHOWN_MESSAGES = 3

THREAD_MASK = PID_UNIT * PID_UNIT - 1  # the bits of process and thread in a globalTid

RANKS = "MPI_RANKS"
VARIABLE = "PROCESS_0:ENVIRONMENT_VARIABLE"
_ASSIGNMENT = r'(?P<name>[A-Z_]+)="?(?P<value>[^"]*)"?'
_NUMBER = ': ?"?([0-9]{1,8})'

GPUS = "TARGET_INFO_GPU"
GPU_COLUMNS: Columns = {
    **ints("id deviceId totalMemory memoryBandwidth clockRate smCount computeMajor computeMinor"),
    **ints("cuDevice pwGpuId"),
    **dict.fromkeys(("name", "busLocation", "uuid", "chipName"), "text"),
}
CUDA_GPUS = "TARGET_INFO_CUDA_GPU"  # in files of 2019-2020
CUDA_GPU_COLUMNS: Columns = {
    **ints("deviceId globalMemorySize coreClockRate numMultiprocessors computeCapabilityMajor computeCapabilityMinor"),
    "name": "text",
}


def metadata(export: Export, path: Path) -> Metadata:
    written = {name: value for table in EXPORT_FACTS for name, value in _facts(export, table)}
    captured = list(_facts(export, CAPTURE_FACTS))
    shown: dict[str, list[str | None]] = {}
    for name, value in captured:
        if not re.search(PRIVATE, name) and not re.fullmatch(ARGUMENT, name):
            shown.setdefault(name, []).append(value)
    options: dict[str, Any] = {name: values if len(values) > 1 else values[0] for name, values in shown.items()}
    options["schema_version"] = written.get("EXPORT_SCHEMA_VERSION")
    if command := _command_line(captured):
        options["command_line"] = command
    return Metadata(
        source="nsys",
        paths=(str(path),),
        tool=written.get("EXPORT_PRODUCT_NAME") or "NVIDIA Nsight Systems",
        tool_version=written.get("EXPORT_PRODUCT_VERSION"),
        host=_system_facts(export).get("Hostname") or written.get("EXPORT_HOST"),
        clock=None,  # each session has a separate clock, so two sessions can only be compared in UTC
        origin_utc_ns=_origin_utc_ns(export, written),
        options=options,
    )


def _facts(export: Export, table: str) -> Iterable[tuple[str, str | None]]:
    frame = export.frame(table, FACT_COLUMNS)
    return ((name, value) for name, value in frame.iter_rows() if name is not None)


def _system_facts(export: Export) -> dict[str, str]:
    if "TARGET_INFO_SYSTEM_ENV" not in export:
        return {}
    # Read as bytes, because some of the other values are not text.
    frame = export.frame("TARGET_INFO_SYSTEM_ENV", {"name": "text", "value": "bytes"})
    rows = frame.filter(pl.col("name") == "Hostname").drop_nulls().iter_rows()
    return {name: value.decode("utf-8", "replace") for name, value in rows}


def _command_line(captured: list[tuple[str, str | None]]) -> str | None:
    facts = dict(captured)
    if not facts.get("PROCESS_0:COMMAND"):
        return None
    arguments = {int(match["place"]): value for name, value in captured if (match := re.fullmatch(ARGUMENT, name))}
    return shlex.join([facts["PROCESS_0:COMMAND"] or "", *(arguments[place] or "" for place in sorted(arguments))])


def _origin_utc_ns(export: Export, written: dict[str, str | None]) -> int | None:
    """Returns the UTC time at which the trace's time is 0: the start of the session, unless the export shifted the
    times."""
    starts = export.frame("TARGET_INFO_SESSION_START_TIME", {"utcEpochNs": "int"})["utcEpochNs"].drop_nulls()
    if not len(starts):
        return None
    # The export added this number of ns to every time, if it was made with --ts-shift or --ts-normalize.
    shift = written.get("EXPORT_CONFIG_TIME_SHIFT") or "0"
    return int(starts[0]) - (int(shift) if re.fullmatch("-?[0-9]{1,19}", shift) else 0)


# --- processes and threads


def processes(export: Export, frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Returns the processes in the file's list, and processes that only occur in events."""
    pids = {pid for frame in frames if "pid" in frame.columns for pid in each_once(frame, "pid")} - {None}
    names: dict[int, str | None] = {}
    keys_of: dict[int, set[int]] = {}
    for key, number, name in export.frame("PROCESSES", {"globalPid": "int", "pid": "int", "name": "text"}).iter_rows():
        pid = number if key is None else key // PID_UNIT
        if pid is None:
            continue
        pid &= ID_MASK
        names.pop(pid, None)  # if a pid is listed twice, its last name and its last position count
        names[pid] = name
        if key is not None and pid in pids:
            keys_of.setdefault(pid, set()).add(key)
    shared = sorted(pid for pid, keys in keys_of.items() if len(keys) > 1)
    export.issues.add("shared_pids", len(shared), printable.listed(shared))
    names |= dict.fromkeys(sorted(pids - names.keys()))
    return _of_rank_0(pid=list(names), name=list(names.values()))


def threads(export: Export, named_threads: pl.DataFrame, frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Returns the threads in the file's list, and threads that only occur in events. A name that the program gave
    (NVTX) replaces the name from the operating system."""
    keys = {key for frame in frames if {"pid", "tid"} <= set(frame.columns) for key in _thread_keys(frame)} - {None}
    names = dict.fromkeys(keys)
    listed = export.frame("ThreadNames", {"nameId": "int", "globalTid": "int"})
    of_system = zip(listed["globalTid"], export.strings.texts(listed["nameId"], "ThreadNames"), strict=True)
    of_program = named_threads.select(pl.col("pid") * PID_UNIT + pl.col("tid"), "name")
    # In this loop, a later name replaces an earlier name. The program's names are in reverse order, because the first
    # name that the program gave counts.
    for key, name in (*of_system, *reversed(of_program.rows())):
        if key is not None:
            key &= THREAD_MASK
            names[key] = names.get(key) if name is None else name
    rows = sorted(names)
    return _of_rank_0(
        pid=[key // PID_UNIT for key in rows], tid=[key & ID_MASK for key in rows], name=[names[key] for key in rows]
    )


def _of_rank_0(name: list[str | None], **numbers: list[int]) -> pl.DataFrame:
    columns = {column: pl.Series(values, dtype=pl.Int64) for column, values in numbers.items()}
    names = pl.Series(name, dtype=pl.String).cast(pl.Categorical)
    return pl.DataFrame({**columns, "name": names}).with_columns(rank=pl.lit(0, dtype=pl.Int32))


def _thread_keys(frame: pl.DataFrame) -> pl.Series:
    """Returns the distinct values of pid * PID_UNIT + tid. Usually all rows are of one process, which is faster."""
    if is_one(frame, "pid"):
        pid: int = frame.head(1)["pid"].item()
        return each_once(frame, "tid") + pid * PID_UNIT
    return each_once(frame.select(key=pl.col("pid") * PID_UNIT + pl.col("tid")), "key")


# --- ranks


def split_by_rank(export: Export, trace: Tables) -> Tables:
    """Splits the trace by rank. The environment belongs to the program that nsys started, and that program may have
    started other processes. So the environment gives a rank only if the trace has events of a single process."""
    started = from_environment(_variables(export))
    pids = active(trace)
    is_alone = len(pids) == 1
    ranks = _of_mpi(export) or ({pids[0]: started} if started.rank is not None and is_alone else {})
    ranks = ranks or _of_nccl(trace.ranges)
    run = Told(run=started.run)
    of_pids = {pid: replace(rank, run=run.run) for pid, rank in ranks.items() if pid in pids}
    if is_alone and [rank.rank for rank in of_pids.values()] == [started.rank]:
        of_pids = {pids[0]: started}  # the environment gives the rank and more fields
    return in_ranks(trace, of_pids, run)


def _variables(export: Export) -> Mapping[str, str]:
    """Returns only the variables of launchers, because a user's environment holds secrets."""
    if CAPTURE_FACTS not in export:
        return {}
    frame = export.frame(CAPTURE_FACTS, FACT_COLUMNS).filter(pl.col("name").str.contains(VARIABLE)).drop_nulls()
    matches = [match for text in frame["value"] if (match := re.fullmatch(_ASSIGNMENT, text))]
    return {match["name"]: match["value"] for match in matches if match["name"] in VARIABLES}


def _of_mpi(export: Export) -> dict[int, Told]:
    if RANKS not in export:
        return {}
    rows = export.frame(RANKS, ints("globalTid rank")).select(pid=pid_of("globalTid"), rank="rank")
    rows = rows.drop_nulls().unique()
    if rows["pid"].is_duplicated().any():
        return {}
    return {pid: told(RANKS, rank) for pid, rank in rows.iter_rows()}


def _of_nccl(ranges: pl.DataFrame) -> dict[int, Told]:
    """Returns each process's rank in the largest NCCL group (communicator). Returns nothing if several groups have the
    largest size, or if the largest group does not have every process exactly once."""
    is_init = ranges["name"].cat.starts_with("ncclCommInitRank")
    if not is_init.any():
        return {}
    payload = pl.col("payload_json").str
    rows = (
        ranges.filter(is_init)
        .select(
            "pid",
            group=payload.extract('"NCCL communicator ID": ?"?([^",}]+)'),
            size=payload.extract(f'"No. of ranks"{_NUMBER}').cast(pl.Int64),
            rank=payload.extract(f'"Rank"{_NUMBER}').cast(pl.Int64),
        )
        .drop_nulls()
        .unique()
        .sort("size", "group", descending=[True, False])
    )
    if not rows.height:
        return {}
    largest = rows.filter(pl.col("group") == rows["group"][0])
    is_whole = largest["pid"].n_unique() == rows["pid"].n_unique() and not largest["pid"].is_duplicated().any()
    others = rows.filter(pl.col("size") == rows["size"][0])["group"].n_unique()
    if not is_whole or others > 1:
        return {}
    by = f"NCCL communicator {rows['group'][0]}"
    return {pid: told(by, rank, size) for pid, size, rank in largest.select("pid", "size", "rank").iter_rows()}


# --- devices


def devices(export: Export, seen: pl.Series) -> pl.DataFrame:
    """Returns the GPUs that the file describes, and GPUs that only occur in events."""
    others = pl.DataFrame({"device_id": seen.drop_nulls().unique().sort()}).with_columns(
        rank=pl.lit(0, dtype=pl.Int32), kind=pl.lit("gpu", dtype=pl.Categorical)
    )
    if GPUS not in export and CUDA_GPUS not in export:
        return others
    gpus = export.frame(GPUS, GPU_COLUMNS).with_columns(device_id=pl.coalesce("id", "deviceId"))
    cuda = export.frame(CUDA_GPUS, CUDA_GPU_COLUMNS).unique("deviceId", keep="first", maintain_order=True)
    frame = gpus.join(cuda, left_on="device_id", right_on="deviceId", how="full", coalesce=True, suffix="_cuda")
    major = pl.coalesce("computeMajor", "computeCapabilityMajor").cast(pl.String)
    minor = pl.coalesce("computeMinor", "computeCapabilityMinor").cast(pl.String)
    frame = frame.select(
        pl.lit(0, dtype=pl.Int32).alias("rank"),
        "device_id",
        pl.lit("gpu").cast(pl.Categorical).alias("kind"),
        pl.coalesce("name", "name_cuda").cast(pl.Categorical).alias("name"),
        "uuid",
        pl.col("busLocation").cast(pl.Categorical).alias("bus"),
        # globalMemorySize, in files of 2019-2020, is in MiB.
        pl.coalesce("totalMemory", pl.col("globalMemorySize") * (1 << 20)).alias("memory_bytes"),
        pl.coalesce("smCount", "numMultiprocessors").alias("multiprocessors"),
        (major + "." + minor).cast(pl.Categorical).alias("capability"),
        # coreClockRate, in files of 2019-2020, is in kHz.
        pl.coalesce("clockRate", pl.col("coreClockRate") * 1000).alias("clock_hz"),
        pl.col("memoryBandwidth").alias("bandwidth_bytes_per_s"),
        _attributes(frame).alias("attributes_json"),
    )
    frame = export.narrow(GPUS, frame, {"device_id": pl.Int32, "multiprocessors": pl.Int32}).drop_nulls("device_id")
    others = others.join(frame, on="device_id", how="anti")
    return pl.concat([frame, others], how="diagonal").sort("device_id")


def _attributes(frame: pl.DataFrame) -> pl.Series:
    rows = frame.select(chip="chipName", cuda_device="cuDevice", metrics_gpu="pwGpuId").iter_rows(named=True)
    written = [{name: value for name, value in row.items() if value is not None} for row in rows]
    return pl.Series([json.dumps(row) if row else None for row in written], dtype=pl.String)


# --- the tool's own messages


def note_diagnostics(export: Export) -> None:
    if DIAGNOSTICS not in export:
        return
    levels = export.labels("ENUM_DIAGNOSTIC_SEVERITY_LEVEL")
    known = {"Warning": "tool_warnings", "Error": "tool_errors"}
    codes = {number: known[label] for number, label in levels.items() if label in known} or SEVERITIES
    messages = export.frame(DIAGNOSTICS, {"severity": "int", "text": "text"})
    code = pl.col("severity").replace_strict(codes, default="tool_messages", return_dtype=pl.String)
    messages = messages.with_columns(code=code.fill_null("tool_messages"))
    for (name,), group in messages.group_by("code", maintain_order=True):
        texts = [" ".join(text.split())[:200] for text in group["text"].drop_nulls().unique(maintain_order=True)]
        more = f"; and {len(texts) - SHOWN_MESSAGES:,} more" if len(texts) > SHOWN_MESSAGES else ""
        export.issues.add(str(name), group.height, "; ".join(texts[:SHOWN_MESSAGES]) + more)
