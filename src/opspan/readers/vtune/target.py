"""Reads the description of the program and its machine: metadata, processes, threads. If there are no tasks, adds the
cause as an issue."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import polars as pl

from opspan.formats.sqlite import ROWID
from opspan.readers.vtune import tables
from opspan.readers.vtune.database import ResultClock, ResultDatabase, utc_ns
from opspan.readers.vtune.result_files import ResultFiles, collects_tasks
from opspan.tables import Metadata
from opspan.tables.metadata import MICROARCHITECTURE
from opspan.tables.same import rows_once

TOOL = "Intel VTune Profiler"
# Finds the version in 'Intel® VTune™ Amplifier XE 2013 Update 15'.
VERSION = re.compile(r"\b(20\d\d\b.*|\d+\.\d.*)$")
SCHEMA_MAJOR = "__internal@internalSchemaMinor@version"
SCHEMA_MINOR = "__internal@schemaMinor@version"
# Tag of the descriptor -> key in the options of the trace's metadata
FACTS = {
    "product": "product",
    "buildNumber": "build",
    "os": "os",
    "at": "analysis",
    "collectionTimeBegin": "collection_start_s",
    "collectionTimeEnd": "collection_end_s",
    "CPUBrandName": "processor",
    "logicalCPUCount": "logical_processors",
}
# In context_values.cfg: the name of the microarchitecture, and a sentence that may have it:
# 'Intel(R) Xeon(R) Processor code named Skylake'. 'Unknown' means that VTune does not know it.
EVENTS_OF, CODE_NAMED = "PMU", "CPU_NAME"
NOT_KNOWN = ("", "Unknown")
CODE_NAME = re.compile(r"code named (.+)$")
# Matches the suffix of names such as 'worker 3 (TID: 1520739)', or 'worker 3 (0x8655)' in version 2013. The suffix
# only repeats the thread id.
NUMBERED = r" \((?:TID: \d+|0x[0-9a-fA-F]+)\)$"
UNNAMED = "Thread"


def metadata(database: ResultDatabase, files: ResultFiles, clock: ResultClock) -> Metadata:
    product = files.facts.get("product", "")
    version = VERSION.search(product)
    options: dict[str, Any] = {
        name: int(value) if value.isdecimal() else value
        for tag, name in FACTS.items()
        if (value := files.facts.get(tag))
    }
    schema = dict(database.frame(tables.CONTEXT, tables.CONTEXT_COLUMNS).drop_nulls().iter_rows())
    options["schema_version"] = ".".join(schema.get(key, "?") for key in (SCHEMA_MAJOR, SCHEMA_MINOR))
    if files.command_line:
        options["command_line"] = files.command_line
    packages = database.frame(tables.PACKAGE, tables.PACKAGE_COLUMNS)["brand_name"].drop_nulls().unique()
    if len(packages) == 1:
        options.setdefault("processor", packages[0])
    if name := _microarchitecture(files):
        options[MICROARCHITECTURE] = name
    systems = database.frame(tables.SYSTEM, tables.SYSTEM_COLUMNS).drop_nulls("name")
    if systems.height:
        options["system"] = " ".join(text for text in systems.row(0) if text)
    nodes = database.frame(tables.NODE, tables.NODE_COLUMNS)["machine_name"].drop_nulls()
    return Metadata(
        source="vtune",
        paths=(files.shown,),
        tool=TOOL,
        tool_version=version[0] if version else None,
        host=files.facts.get("hostname") or (nodes[0] if len(nodes) == 1 else None),
        clock=clock.name,
        origin_utc_ns=clock.zero_utc_ns,
        options=options,
    )


def _microarchitecture(files: ResultFiles) -> str | None:
    """Returns the name of the microarchitecture in VTune's words, such as broadwell_server; None if VTune has none."""
    if (name := files.machine.get(EVENTS_OF, "")) not in NOT_KNOWN:
        return name
    match = CODE_NAME.search(files.machine.get(CODE_NAMED, ""))
    return match[1] if match else None


def processes(database: ResultDatabase, files: ResultFiles, zero_utc_ns: int) -> pl.DataFrame:
    """Returns one row for each pid. VTune's runner becomes the program, so both have the same pid."""
    pids = database.pids
    is_programs = pl.col("pid").is_in(pids.implode())
    command = pl.lit(files.command_line, dtype=pl.String) if len(pids) == 1 else pl.lit(None, dtype=pl.String)
    # The last row of a pid is the program that was loaded into the process.
    processes = database.processes.drop_nulls("pid").sort(ROWID).unique("pid", keep="last", maintain_order=True)
    return processes.select(
        pl.lit(0, dtype=pl.Int32).alias("rank"),
        "pid",
        pl.col("name").cast(pl.Categorical),
        pl.when(is_programs).then(command).alias("command_line"),
        (utc_ns("start_tsc") - zero_utc_ns).alias("start_ns"),
        (utc_ns("end_tsc") - zero_utc_ns).alias("end_ns"),
    )


def threads(database: ResultDatabase, frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    plain = pl.col("name").str.replace(NUMBERED, "")
    name = pl.coalesce("user_name", pl.when(plain != UNNAMED).then(plain))
    listed = database.threads.with_columns(name=name).sort(
        pl.col("ignored").fill_null(0), ROWID, descending=[True, False]
    )
    seen = [rows_once(frame, "pid", "tid") for frame in frames if "tid" in frame.columns]
    rows = pl.concat(
        [listed.select("pid", "name", tid="thread_id"), *(part.drop_nulls("tid") for part in seen)], how="diagonal"
    )
    # A thread's last name counts, because earlier names are those of VTune's runner.
    named = rows.drop_nulls("tid").group_by("pid", "tid").agg(pl.col("name").drop_nulls().last()).sort("pid", "tid")
    return named.select(pl.lit(0, dtype=pl.Int32).alias("rank"), "pid", "tid", pl.col("name").cast(pl.Categorical))


def note_no_tasks(database: ResultDatabase, files: ResultFiles, tasks: int) -> None:
    if tasks:
        return
    reasons = {
        True: "the collector was asked for tasks, and the program reported none",
        False: "the collector was not asked for tasks",
        None: "it does not say how it was collected",
    }
    database.issues.add("no_tasks", 1, reasons[collects_tasks(files.options)])
