"""The first section: the source of the trace, its times, and its findings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl

from opspan.analysis.busy import overhead_outside_ns, use, whole_times
from opspan.analysis.idle import WHY
from opspan.analysis.kernels import is_told
from opspan.analysis.spans import DEVICE, PROCESS
from opspan.analysis.step_lengths import lengths
from opspan.questions import Options
from opspan.views import idle
from opspan.views.answer import coverage_lines
from opspan.views.fields import DEVICE_ID, HOST, MEMORY, NAME, OCCUPANCY, PID, RANK, TIME, Field, with_values
from opspan.views.missing import device_command, lines
from opspan.views.page.columns import table, text, values
from opspan.views.page.overview_findings import findings
from opspan.views.page.overview_steps import steps
from opspan.views.page.section import Section, Subject
from opspan.views.summary import top

_col = pl.col
_TOP = 8
_MOST_ISSUES = 200
_RANKS = (
    RANK,
    Field("tool", "Recorded by", "text"),
    HOST,
    Field("began", "Began", "text", "UTC"),
    Field("time_ns", "Lasted", "ns"),
    Field("processes", "Processes", "count"),
    Field("cycles", "Cycles", "count", "Files that the process wrote one after the other"),
    Field("files", "Files", "text"),
)
_DEVICES = (
    RANK,
    replace(PID, unit="name"),
    DEVICE_ID,
    NAME,
    MEMORY,
    Field("capability", "Capability", "text", "Compute capability, or architecture"),
    replace(TIME, help="Of the process"),
    Field("busy_ns", "Busy", "ns", "In which anything ran on the device"),
    Field("idle_ns", "Idle", "ns"),
    Field("utilisation", "Utilisation", "share", "How much of the time a kernel ran"),
    Field(
        "sm_efficiency",
        "Est. SM efficiency",
        "share",
        "Share of the multiprocessors that kernels had blocks for: mean over the time",
    ),
    replace(
        OCCUPANCY, help="Of the warps that a multiprocessor can hold: mean of the kernels by their time; not measured"
    ),
    Field("tensor_core_share", "Tensor cores", "share", "Share of the time of kernels; nothing: not known"),
)
_ISSUES = (
    Field("severity", "Severity", "text"),
    Field("message", "What was found", "name"),
    Field("advice", "What to do", "name"),
    Field("count", "Times", "count"),
    Field("path", "File", "name"),
)


def section(subject: Subject) -> Section:
    analysis = subject.analysis
    return Section(
        "Overview",
        {
            "cards": _cards(subject),
            "ranks": _ranks(subject),
            "devices": _devices(subject),
            "steps": steps(analysis),
            "idle": _idle(subject),
            "findings": findings(subject),
            "ops": _top(subject, "name"),
            "modules": _top(subject, "module"),
            "coverage": [text(line) for line in (*coverage_lines(analysis.coverage), *lines(analysis, "name"))],
            "issues": _issues(subject),
        },
    )


def _cards(subject: Subject) -> list[dict[str, Any]]:
    """Returns the figures that are shown at the top of the page."""
    analysis = subject.analysis
    devices, steps = analysis.whole_devices, lengths(analysis)
    time = int(devices["time_ns"].sum())
    work, on_cores, unknown = (int(devices[f"{name}_ns"].sum()) for name in ("work", "tensor_core", "unknown_core"))
    peaks = analysis.memory_peaks.filter(_col("device_id").is_not_null())
    cards = [
        ("Recorded time", analysis.whole_breakdown["time_ns"].max(), "ns"),
        ("Profiler at work before and after it", overhead_outside_ns(analysis.attributed) or None, "ns"),
        ("Steps", steps.steps or None, "count"),
        ("Median step", steps.median_ns, "ns"),
        ("Mean step", steps.mean_ns if steps.steps > 1 else None, "ns"),
        ("Busy, of the whole time of devices", devices["busy_ns"].sum() / time if time else None, "share"),
        ("Kernel time on tensor cores", on_cores / work if work and is_told(unknown, work) else None, "share"),
        ("Kernel time that may be on tensor cores", unknown / work if not is_told(unknown, work) else None, "share"),
        ("Most memory of a device", peaks["allocated_bytes"].max(), "bytes"),
    ]
    return [{"title": title, "value": value, "unit": unit} for title, value, unit in cards if value is not None]


def _ranks(subject: Subject) -> dict[str, Any]:
    analysis = subject.analysis
    times = whole_times(analysis.by_lane.attributed)
    by_lane = times.group_by("rank").agg(
        _col("start_ns").min(), time_ns=_col("end_ns").max() - _col("start_ns").min(), processes=pl.len()
    )
    by_rank = by_lane if analysis.lanes is None else analysis.lanes.back(by_lane)
    by_rank = by_rank.group_by("rank").agg(
        _col("start_ns").min(), _col("time_ns").sum(), _col("processes").max(), cycles=pl.len()
    )
    if analysis.lanes is None:
        by_rank = by_rank.drop("cycles")
    rows = pl.DataFrame(
        [
            {
                "rank": metadata.rank,
                "tool": " ".join(part for part in (metadata.tool or metadata.source, metadata.tool_version) if part),
                "host": metadata.host,
                "files": ", ".join(metadata.paths),
            }
            for metadata in analysis.tables.ranks
        ],
        schema={"rank": pl.Int32, "tool": pl.String, "host": pl.String, "files": pl.String},
    )
    rows = rows.join(by_rank, on="rank", how="left", maintain_order="left")
    utc_ns = _col("start_ns") + pl.lit(analysis.tables.origin_utc_ns, dtype=pl.Int64)
    rows = rows.with_columns(began=utc_ns.cast(pl.Datetime("ns")).dt.strftime("%Y-%m-%d %H:%M:%S"))
    return table(rows, with_values(_RANKS, rows))


def _devices(subject: Subject) -> dict[str, Any]:
    analysis = subject.analysis
    times = analysis.whole_devices
    if not times.height:
        why = "Nothing ran on a device in this trace"
        return {"rows": None, "why": why, "command": device_command(analysis.tables)}
    properties = analysis.tables.devices.select("rank", "device_id", "name", "memory_bytes", "capability")
    properties = properties.unique(["rank", "device_id"], keep="first", maintain_order=True)
    rows = times.join(use(times, DEVICE), on=[*DEVICE, "step"], nulls_equal=True, maintain_order="left")
    rows = rows.join(properties, on=["rank", "device_id"], how="left", maintain_order="left")
    rows = rows.with_columns(_col("pid").cast(pl.String))
    rows = rows.drop(name for name in PROCESS if rows[name].n_unique() == 1)
    return {"rows": table(rows, with_values(_DEVICES, rows))}


def _idle(subject: Subject) -> dict[str, Any] | None:
    """Returns how long devices were idle, the reasons, and the ops that ran on the host meanwhile."""
    parts = idle.parts(subject.analysis, Options("device"))
    rows = idle.rows(parts, Options("device"))
    if not rows.height:
        return None
    ops = idle.QUESTION.rows_of(subject.analysis, Options()).head(_TOP)
    return {
        "device_ns": int(subject.analysis.whole_devices["time_ns"].sum()),
        "before_work_ns": int(parts["work"].rows["before_work_ns"][0]),
        "causes": [
            {"name": why, "title": idle.WHY_IDLE[why].capitalize(), "ns": int(rows[f"{why}_ns"].sum())} for why in WHY
        ],
        "ops": {"name": values(ops["op"]), "ns": values(ops["time_ns"])},
    }


def _top(subject: Subject, by: str) -> dict[str, Any]:
    rows = top(subject.analysis, by)
    time = rows.columns[1]
    shown = rows.head(_TOP)
    return {
        "is_device": time == "self_device_ns",
        "total_ns": int(rows[time].sum()),
        "name": values(shown[by]),
        "ns": values(shown[time]),
    }


def _issues(subject: Subject) -> dict[str, Any] | None:
    issues = subject.analysis.tables.issues
    worst = issues.sort(_col("severity").to_physical(), descending=True, maintain_order=True)
    shown = worst.head(_MOST_ISSUES)
    more = worst.height - shown.height
    notes = [f"{more:,} more issues: `opspan summary {subject.typed} --format json` has all"] if more > 0 else []
    return table(shown, with_values(_ISSUES, shown), notes) if worst.height else None
