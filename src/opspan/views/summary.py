"""What a trace is, where its time went, and what to type next, on one screen: `opspan summary`.

Every line is an answer of its own verb, in short: the figures are theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from opspan.analysis import Analysed, averages
from opspan.analysis.runs import pyroscope_runs
from opspan.tables import Metadata
from opspan.text_columns import Layout, cut, wrapped
from opspan.views.answer import Answer, short_name, time_text
from opspan.views.findings import files_text
from opspan.views.findings import rows_of as finding_rows
from opspan.views.idle import rows_of as idle_rows

_col = pl.col
_MOST = 20  # names on a line
_WIDTH = 80  # where nothing says how wide a line may be, and of the JSON's notes
_ALL = 10_000
_TOP = {"Top ops": "name", "Top modules": "module"}
_LABEL = 13  # characters in front of a line


@dataclass(frozen=True)
class _Room:
    """How much can be said on a line, in characters: the wider the terminal, the more names and of each name."""

    width: int = _WIDTH
    name: int = 24
    tool: int = 40
    names: int = 4  # on a line

    @classmethod
    def of(cls, layout: Layout) -> _Room:
        width = layout.width
        if width is None:
            return cls(_ALL, _ALL, _ALL) if layout.whole_names else cls()
        return cls(width, max(12, width * 3 // 10), width // 2, max(1, width // 20))

    def fitted(self, line: str) -> list[str]:
        """The line without its end; on a narrow terminal all of it, in several lines."""
        if self.width < _WIDTH:
            return wrapped("", line, self.width, " " * _LABEL)
        return [cut(line, self.width, cut_end=True)]


@dataclass(frozen=True)
class _Facts:
    row: dict[str, Any]
    idle: tuple[str, float, str | None] | None  # why devices were idle most, in what share of it, and the op then
    times: dict[str, list[tuple[str, int]]]  # by the title of the line: names with their times, the longest first
    costs: list[tuple[str, float]]  # findings with their share, the largest first
    issues: int
    next: str
    see: str


_HOW = {
    "named": "named",
    "step": "ProfilerStep",
    "repeats": "found by repetition",
    "optimizer": "found by the optimizer",
    "kernels": "found by repeating kernels",
}


def answer(found: Analysed, files: Sequence[Path] = ()) -> Answer:
    costs = finding_rows(found).filter(_col("at_stake_ns").is_not_null())
    row = _row(found, costs)
    facts = _Facts(
        row,
        _idle(found) if row["idle_ns"] else None,
        {title: list(top(found, by).head(_MOST).iter_rows()) for title, by in _TOP.items()},
        list(costs.select("id", "share").iter_rows()),
        int(found.tables.issues.filter(_col("severity") != "info")["count"].sum()),
        _next(found, row, files),
        f"opspan report {files_text(files)}",
    )
    notes = tuple(_lines(facts, _Room()))
    return Answer(
        "summary", pl.DataFrame([row]), (), notes, fitted_notes=lambda layout: _lines(facts, _Room.of(layout))
    )


def about(found: Analysed) -> str:
    """What the trace is, in a line."""
    return _about(_head(found), _Room())


def _row(found: Analysed, costs: pl.DataFrame) -> dict[str, Any]:
    trace, steps = found.complete, found.iterations
    whole = found.whole_devices
    times = found.whole_breakdown
    ops = trace.ranges.filter(_col("kind") == "op")
    lengths = steps["end_ns"] - steps["start_ns"]
    row = _head(found) | {"device_time_ns": int(whole["time_ns"].sum())}
    for name in ("busy", "computing", "communicating", "copying", "idle"):
        row[f"{name}_ns"] = int(whole[f"{name}_ns"].sum())
    for name in ("calling", "loading", "ops", "other"):
        row[f"{name}_ns"] = int(times[f"{name}_ns"].sum())
    return row | {
        "attributed": found.coverage.work_in_range.fraction if whole.height else None,
        "backward": found.coverage.backward,
        "linked": found.coverage.linked,
        "sized": ops["sizes"].count() / ops.height if ops.height else None,
        "steps": steps.height,
        "steps_are": steps["how"][0] if steps.height else None,
        "step_ns": int(lengths.median() or 0) if steps.height else None,  # type: ignore[arg-type]
        "outliers": int(steps["is_outlier"].sum()),
        "findings": costs.height,
        "at_stake_ns": costs["at_stake_ns"].max(),
    }


def _head(found: Analysed) -> dict[str, Any]:
    trace, times = found.complete, found.whole_breakdown
    return {
        "tools": ", ".join(dict.fromkeys(tool_of(rank) for rank in trace.ranks)),
        "ranks": len(trace.ranks),
        "processes": times.height,
        "devices": found.whole_devices.select("rank", "device_id").unique().height,
        "time_ns": int(times["time_ns"].max() or 0),  # type: ignore[arg-type]  # whole nanoseconds
        "ranges": trace.ranges.height,
        "pyroscope_run": ", ".join(pyroscope_runs(trace.ranges)) or None,
    }


def tool_of(rank: Metadata) -> str:
    return " ".join(part for part in (rank.source, rank.tool_version) if part)


def _about(row: dict[str, Any], room: _Room) -> str:
    said = [
        short_name(row["tools"], room.tool),
        _count(row["ranks"], "rank") if row["ranks"] > 1 else "",
        _count(row["processes"], "process", "processes"),
        _count(row["devices"], "device") if row["devices"] else "no device",
        f"{row['ranges']:,} ranges",
        time_text(row["time_ns"]),
    ]
    return " · ".join(part for part in said if part)


def _lines(facts: _Facts, room: _Room) -> list[str]:
    row = facts.row
    lines = [_about(row, room)]
    lines += _device(facts, room) if row["devices"] else _host(row)
    lines.append(f"Known        {' · '.join(_known(row))}")
    lines += _steps(row)
    lines += [_names(title, times, room) for title, times in facts.times.items() if times]
    lines += _findings(facts.costs, room)
    if row["pyroscope_run"]:
        lines.append(f"Pyroscope    run_id {row['pyroscope_run']}")
    if facts.issues:
        lines.append(f"Issues       {facts.issues:,}: opspan table FILE says which")
    # What is to be typed stays whole, however long it is.
    typed = [f"Next         {facts.next}", f"See it       {facts.see}"]
    return [*(fit for line in lines for fit in room.fitted(line)), *typed]


def _device(facts: _Facts, room: _Room) -> list[str]:
    row = facts.row
    busy = row["busy_ns"]
    names = (("computing", "computing"), ("communicating", "collectives"), ("copying", "copies"))
    parts = [f"{said} {row[f'{name}_ns'] / busy:.1%}" for name, said in names if busy and row[f"{name}_ns"]]
    lines = [f"Device busy  {time_text(busy)}: {', '.join(parts)}"]
    if facts.idle:
        reason, most, op = facts.idle
        who = f", most in {short_name(op, room.name)}" if op else ""
        share = row["idle_ns"] / row["device_time_ns"]
        lines.append(f"Device idle  {time_text(row['idle_ns'])} ({share:.1%}): {most:.0%} {reason}{who}")
    return lines


def _idle(found: Analysed) -> tuple[str, float, str | None]:
    rows = idle_rows(found)
    times = {said: int(rows[f"{why}_ns"].sum()) for why, said in WHY_IDLE.items()}
    reason = max(times, key=lambda said: (times[said], said))
    ops = rows.filter(_col("host_ns") > 0).sort("host_ns", descending=True)["op"].drop_nulls()
    op = ops[0] if len(ops) and reason == WHY_IDLE["host"] else None
    return reason, times[reason] / int(found.whole_devices["idle_ns"].sum()), op


WHY_IDLE = {
    "host": "until the host launched",
    "launch": "in launches",
    "queued": "though it was launched",
    "unknown": "for unknown reasons",
}


def _host(row: dict[str, Any]) -> list[str]:
    total = sum(row[f"{name}_ns"] for name in ("calling", "loading", "ops", "other"))
    parts = (("ops", "ops of torch"), ("loading", "loading data"), ("other", "other"))
    said = [f"{words} {row[f'{name}_ns'] / total:.1%}" for name, words in parts if total and row[f"{name}_ns"]]
    return [f"Host         {time_text(total)}: {', '.join(said)}"] if said else []


def _known(row: dict[str, Any]) -> list[str]:
    found = [] if row["attributed"] is None else [f"{row['attributed']:.1%} of device time attributed"]
    backward = f"{row['linked']:,} of {row['backward']:,} linked" if row["backward"] else "none"
    sized = f"of {row['sized']:.0%} of ops" if row["sized"] else "none"
    return [*found, f"backward: {backward}", f"sizes: {sized}"]


def _steps(row: dict[str, Any]) -> list[str]:
    if not row["steps"]:
        return ["Steps        none: name them with prof.step() or a range, and say --step NAME"]
    outliers = f", {_count(row['outliers'], 'outlier')}" if row["outliers"] else ""
    return [f"Steps        {row['steps']:,} ({_HOW[row['steps_are']]}), {time_text(row['step_ns'])} each{outliers}"]


def top(found: Analysed, by: str) -> pl.DataFrame:
    """The ops (by name) or modules with time of their own on devices, or else on the host, and that time: the most
    first."""
    trace = found.complete
    rows = averages(trace.ranges, trace.work, by).filter(_col(by).is_not_null())
    if by == "name":
        ops = trace.ranges.filter(_col("kind").is_in(["op", "backward", "script"]))["name"].unique()
        rows = rows.filter(_col("name").is_in(ops.implode()))
    time = "self_device_ns" if int(rows["self_device_ns"].sum()) else "self_cpu_ns"
    rows = rows.filter(_col(time) > 0).sort(time, descending=True, maintain_order=True)
    return rows.select(_col(by).cast(pl.String), time)


def _names(title: str, times: list[tuple[str, int]], room: _Room) -> str:
    line = f"{title:<{_LABEL}}"
    for number, (name, ns) in enumerate(times[: room.names]):
        more = f"{short_name(name.removeprefix('aten::'), room.name)} {time_text(ns)}"
        if number and len(line) + len(more) > room.width - 2:
            break
        line += f"{more}  "
    return line.rstrip()


def _findings(costs: list[tuple[str, float]], room: _Room) -> list[str]:
    if not costs:
        return []
    line = f"Findings     {len(costs):,}:"
    for number, (id_, share) in enumerate(costs):
        more = f"{',' if number else ''} {id_} {share:.1%}"
        if number and len(line) + len(more) > room.width - 2:
            return [f"{line}, ..."]
        line += more
    return [line]


def _next(found: Analysed, row: dict[str, Any], files: Sequence[Path]) -> str:
    name = files_text(files)
    if row["findings"]:
        return f"opspan findings {name}"
    by_module = found.complete.ranges["module"].count()
    return f"opspan table --by {'module' if by_module else 'shape' if row['sized'] else 'kernel'} {name}"


def _count(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"
