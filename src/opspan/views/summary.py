"""What a trace is, where its time went, and what to type next, on one screen: `opspan summary`.

Every line is an answer of its own verb, in short: the figures are theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from opspan.analysis import Analysed, averages
from opspan.text_columns import cut
from opspan.views.answer import Answer, short_name, time_text
from opspan.views.findings import files_text
from opspan.views.findings import rows_of as finding_rows
from opspan.views.idle import rows_of as idle_rows

_col = pl.col
_TOP = 4
_NAME = 24  # characters
_WIDTH = 80
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
    return Answer("summary", pl.DataFrame([row]), (), tuple(_lines(found, row, costs, files)))


def _row(found: Analysed, costs: pl.DataFrame) -> dict[str, Any]:
    trace, steps = found.complete, found.iterations
    whole = found.whole_devices
    times = found.whole_breakdown
    ops = trace.ranges.filter(_col("kind") == "op")
    lengths = steps["end_ns"] - steps["start_ns"]
    row: dict[str, Any] = {
        "tools": ", ".join(dict.fromkeys(_tool(rank) for rank in trace.ranks)),
        "ranks": len(trace.ranks),
        "processes": times.height,
        "devices": whole.select("rank", "device_id").unique().height,
        "time_ns": int(times["time_ns"].max() or 0),  # type: ignore[arg-type]  # whole nanoseconds
        "ranges": trace.ranges.height,
        "device_time_ns": int(whole["time_ns"].sum()),
    }
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


def _tool(rank: Any) -> str:
    return " ".join(part for part in (rank.source, rank.tool_version) if part)


def _lines(found: Analysed, row: dict[str, Any], costs: pl.DataFrame, files: Sequence[Path]) -> list[str]:
    said = [
        short_name(row["tools"], 40),
        _count(row["ranks"], "rank") if row["ranks"] > 1 else "",
        _count(row["processes"], "process", "processes"),
        _count(row["devices"], "device") if row["devices"] else "no device",
        f"{row['ranges']:,} ranges",
        time_text(row["time_ns"]),
    ]
    lines = [" · ".join(part for part in said if part)]
    lines += _device(found, row) if row["devices"] else _host(row)
    lines.append(f"Known        {' · '.join(_known(row))}")
    lines += _steps(row)
    lines += _top(found, "name", "Top ops") + _top(found, "module", "Top modules")
    lines += _findings(costs)
    issues = found.tables.issues.filter(_col("severity") != "info")
    if issues.height:
        lines.append(f"Issues       {int(issues['count'].sum()):,}: opspan table FILE says which")
    lines = [cut(line, _WIDTH, cut_end=True) for line in lines]
    return [*lines, f"Next         {_next(found, row, files)}"]  # which is to be typed, however long it is


def _device(found: Analysed, row: dict[str, Any]) -> list[str]:
    busy = row["busy_ns"]
    names = (("computing", "computing"), ("communicating", "collectives"), ("copying", "copies"))
    parts = [f"{said} {row[f'{name}_ns'] / busy:.1%}" for name, said in names if busy and row[f"{name}_ns"]]
    lines = [f"Device busy  {time_text(busy)}: {', '.join(parts)}"]
    if row["idle_ns"]:
        rows = idle_rows(found)
        reasons = [(int(rows[f"{why}_ns"].sum()), said) for why, said in _WHY.items()]
        most, reason = max(reasons)
        op = rows.filter(_col("host_ns") > 0).sort("host_ns", descending=True)["op"].drop_nulls().to_list()
        who = f", most in {short_name(op[0], _NAME)}" if op and reason == _WHY["host"] else ""
        share = row["idle_ns"] / row["device_time_ns"]
        lines.append(
            f"Device idle  {time_text(row['idle_ns'])} ({share:.1%}): {most / row['idle_ns']:.0%} {reason}{who}"
        )
    return lines


_WHY = {
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


def _top(found: Analysed, by: str, title: str) -> list[str]:
    trace = found.complete
    rows = averages(trace.ranges, trace.work, by).filter(_col(by).is_not_null())
    if by == "name":
        ops = trace.ranges.filter(_col("kind").is_in(["op", "backward", "script"]))["name"].unique()
        rows = rows.filter(_col("name").is_in(ops.implode()))
    time = "self_device_ns" if int(rows["self_device_ns"].sum()) else "self_cpu_ns"
    rows = rows.filter(_col(time) > 0).sort(time, descending=True, maintain_order=True)
    line = f"{title:<13}"
    for name, ns in rows.select(_col(by).cast(pl.String), time).head(_TOP).iter_rows():
        more = f"{short_name(name.removeprefix('aten::'), _NAME)} {time_text(ns)}"
        if len(line) + len(more) > _WIDTH - 2:
            break
        line += f"{more}  "
    return [line.rstrip()] if rows.height else []


def _findings(costs: pl.DataFrame) -> list[str]:
    if not costs.height:
        return []
    line = f"Findings     {costs.height:,}:"
    for number, (id_, share) in enumerate(costs.select("id", "share").iter_rows()):
        more = f"{',' if number else ''} {id_} {share:.1%}"
        if len(line) + len(more) > _WIDTH - 2:
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
