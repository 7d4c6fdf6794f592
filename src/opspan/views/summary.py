"""The source of a trace, its times, and the command to type next, on one screen: `opspan summary`.

Each line is a short form of the answer of another verb, with the same figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from opspan.addresses import File
from opspan.analysis import Analysis, averages
from opspan.analysis.averages import RANGE_ORDER
from opspan.analysis.busy import overhead_outside_ns
from opspan.analysis.coverage import Share
from opspan.analysis.lanes import in_lanes
from opspan.analysis.parts import Part, Parts
from opspan.analysis.runs import pyroscope_runs
from opspan.analysis.spans import PROCESS
from opspan.analysis.step_lengths import lengths_of
from opspan.printable import plural
from opspan.questions import Options, Question
from opspan.tables import Metadata
from opspan.text_columns import Layout, cut, wrapped
from opspan.views import compiled_words, contents, step_phases, step_words
from opspan.views.answer import Answer
from opspan.views.fields import short_name, time_text
from opspan.views.findings import files_text
from opspan.views.findings import parts as finding_parts
from opspan.views.findings import rows as rows_of_findings
from opspan.views.findings import rows_of_one as findings_of_one
from opspan.views.idle import WHY_IDLE
from opspan.views.idle import parts as idle_parts
from opspan.views.missing import labelling_command

_col = pl.col
_MOST = 20  # maximum number of names on a line, however wide it is
_WIDTH = 80  # width of a line if the layout has no width; also of the notes in JSON
_ALL = 10_000
_TOP = {"Top ops": "name", "Top modules": "module"}
# The profiler's work before and after the run is not mentioned below this share of the run's time.
_MUCH_OVERHEAD = 0.01
_LITTLE = 0.01  # idle time before the first work is not mentioned below this share of the devices' time
_LABEL = 13  # width in characters of the label at the begin of a line


@dataclass(frozen=True)
class _Room:
    """The limits of a line, in characters. A wide terminal shows more and longer names."""

    width: int = _WIDTH
    name: int = 24
    tool: int = 40
    names: int = 4  # maximum number of names on a line

    @classmethod
    def of(cls, layout: Layout) -> _Room:
        width = layout.width
        if width is None:
            return cls(_ALL, _ALL, _ALL) if layout.whole_names else cls()
        return cls(width, max(12, width * 3 // 10), width // 2, max(1, width // 20))

    def fitted(self, line: str) -> list[str]:
        """Cuts the end of a line that is too long. On a narrow terminal, wraps the line instead."""
        if self.width < _WIDTH:
            return wrapped("", line, self.width, " " * _LABEL)
        return [cut(line, self.width, cut_end=True)]


@dataclass(frozen=True)
class _Facts:
    row: dict[str, Any]
    # The main reason for idle time, and its share of the idle time. If the reason is the host, also the op during which
    # devices waited longest for the host.
    idle: tuple[str, float, str | None] | None
    times: dict[str, list[tuple[str, int]]]  # title of the line -> names with their times, the longest first
    # For each finding, the costliest first: id, share of a time, name of this time (share_of), condition.
    costs: list[tuple[str, float, str, str | None]]
    steps: list[str]  # the lines about steps
    compiled: str  # what torch.compile compiled; "" if no log has a compilation or a graph break
    issues: int
    next: str
    see: str  # command that writes a report; "" if the report would be empty


_HOW = {
    "named": "named",
    "step": "ProfilerStep",
    "engine": "of a serving engine",
    "repeats": "ranges of one name",
    "optimizer": "found by the optimizer",
}


def answer_of_one(analysis: Analysis, options: Options) -> Answer:
    return _answer(_parts(analysis), findings_of_one(analysis, options), options.files)


def parts(analysis: Analysis, options: Options) -> Parts:
    return _parts(analysis) | {f"{_FINDINGS}{name}": part for name, part in finding_parts(analysis, options).items()}


def answer(parts: Parts, options: Options) -> Answer:
    of_findings = {name.removeprefix(_FINDINGS): part for name, part in parts.items() if name.startswith(_FINDINGS)}
    return _answer(parts, rows_of_findings(of_findings, options), options.files)


def _answer(parts: Parts, findings: pl.DataFrame, files: Sequence[File]) -> Answer:
    costs = findings.filter(_col("at_stake_ns").is_not_null())
    row = _row(parts, costs)
    sums = parts["sums"].rows
    facts = _Facts(
        row,
        _idle(parts) if row["idle_ns"] else None,
        {title: list(_most(parts[title].rows).head(_MOST).iter_rows()) for title in _TOP},
        list(costs.select("id", "share", "share_of", "condition").iter_rows()),
        _steps(parts, row),
        compiled_words.text(parts),
        int(sums["issues"][0]),
        _next(parts, row, files),
        f"opspan report {files_text(files)}" if sums["held"][0] else "",
    )
    notes = tuple(_lines(facts, _Room()))
    return Answer(
        "summary", pl.DataFrame([row]), (), notes, fitted_notes=lambda layout: _lines(facts, _Room.of(layout))
    )


def about(analysis: Analysis) -> str:
    """Returns the line that describes the trace: tool, ranks, processes, devices, ranges and time."""
    return _about(_head(analysis), _Room())


@in_lanes
def _parts(analysis: Analysis) -> Parts:
    trace, steps, share = analysis.complete, analysis.iterations, analysis.coverage.work_in_range
    devices, times = analysis.whole_devices, analysis.whole_breakdown
    ranks = pl.DataFrame({"rank": [metadata.rank for metadata in trace.ranks]}, schema={"rank": pl.Int32})
    ops = trace.ranges.filter(_col("kind") == "op")
    sums = {"ranges": trace.ranges.height}
    sums |= {"device_time_ns": int(devices["time_ns"].sum())}
    sums |= {f"{name}_ns": int(devices[f"{name}_ns"].sum()) for name in _OF_DEVICES}
    sums |= {f"{name}_ns": int(times[f"{name}_ns"].sum()) for name in _OF_HOST}
    if not devices.height:
        sums["communicating_ns"] = int(times["communicating_ns"].sum())
    sums |= {"overhead_outside_ns": overhead_outside_ns(analysis.attributed)}
    sums |= {"attributed": share.count, "work": share.of, "attributed_ns": share.ns, "work_ns": share.of_ns}
    sums |= {"backward": analysis.coverage.backward, "linked": analysis.coverage.linked}
    sums |= {"sized": ops["sizes"].count(), "ops": ops.height, "in_modules": trace.ranges["module"].count()}
    sums |= {"outliers": int(steps["is_outlier"].sum())}
    sums |= {"issues": int(analysis.tables.issues.filter(_col("severity") != "info")["count"].sum())}
    # `_next` needs these two sums: the number of ranges with a time, and the number of tables with rows.
    is_mark = _col("is_mark").fill_null(value=False)
    sums["lasting"] = trace.ranges.select((~is_mark & _col("start_ns").is_not_null()).sum()).item()
    sums["held"] = len(contents.parts(trace))
    idle = idle_parts(analysis, Options("op")) if devices["idle_ns"].sum() else _NO_IDLE
    sums["before_work_ns"] = int(idle["work"].rows["before_work_ns"][0])
    return {
        "sums": Part(pl.DataFrame([sums], schema=dict.fromkeys(sums, pl.Int64)), ()),
        "ranks": Part(ranks.with_columns(cycles=pl.lit(1, dtype=pl.Int64)), ("rank",)),
        "processes": Part(times.select(*PROCESS, "time_ns"), PROCESS),
        "devices": Part(devices.select("rank", "device_id").unique(maintain_order=True), ("rank", "device_id")),
        "pyroscope": Part(pl.DataFrame({"run": pyroscope_runs(trace.ranges)}, schema={"run": pl.String}), ("run",)),
        "tools": Part(pl.DataFrame({"tool": list(map(tool_of, trace.ranks))}).unique(maintain_order=True), ("tool",)),
        "again": Part(pl.DataFrame({"command": [labelling_command(trace)]}), ("command",)),
        "how": Part(steps.select("how").unique(maintain_order=True), ("how",)),
        "idle": idle["rows"],
        **step_words.parts(analysis),
        **compiled_words.parts(trace),
        **step_phases.parts(analysis.iterations_until_done),
        **{title: Part(_sums(analysis, by), (by,)) for title, by in _TOP.items()},
    }


_FINDINGS = "findings: "  # prefix for the names of parts that belong to findings
_ALONE = ("exposed_communicating", "exposed_copying")
_OF_DEVICES = ("busy", "computing", "communicating", "copying", *_ALONE, "idle")
_OF_HOST = ("calling", "loading", "ops", "other")
_NO_IDLE: Parts = {
    "rows": Part(pl.DataFrame(schema={"op": pl.String}), ("op",)),
    "work": Part(pl.DataFrame({"before_work_ns": [0]}), ()),
}


def _row(parts: Parts, costs: pl.DataFrame) -> dict[str, Any]:
    sums = parts["sums"].rows.row(0, named=True)
    row: dict[str, Any] = {"tools": ", ".join(parts["tools"].rows["tool"])}
    row |= {"ranks": parts["ranks"].rows.height, "cycles": parts["ranks"].rows["cycles"].max() or 1}
    row |= {name: parts[name].rows.height for name in ("processes", "devices")}
    row |= {"time_ns": parts["processes"].rows["time_ns"].max() or 0, "ranges": sums["ranges"]}
    row["pyroscope_run"] = ", ".join(parts["pyroscope"].rows["run"]) or None
    kinds = ("device_time", *_OF_DEVICES, "before_work", *_OF_HOST, "overhead_outside")
    row |= {f"{kind}_ns": sums[f"{kind}_ns"] for kind in kinds}
    attributed = Share(sums["attributed"], sums["work"], sums["attributed_ns"], sums["work_ns"]).fraction
    steps = lengths_of(parts)
    return row | {
        "attributed": attributed if sums["device_time_ns"] or row["devices"] else None,
        "backward": sums["backward"],
        "linked": sums["linked"],
        "sized": sums["sized"] / sums["ops"] if sums["ops"] else None,
        "steps": steps.steps,
        "steps_are": parts["how"].rows["how"][0] if steps.steps else None,
        "step_ns": steps.median_ns,
        "step_mean_ns": steps.mean_ns,
        "outliers": sums["outliers"],
        **step_words.columns(parts),
        **compiled_words.columns(parts),
        "findings": costs.height,
        "at_stake_ns": costs["at_stake_ns"].max(),
    }


def _head(analysis: Analysis) -> dict[str, Any]:
    trace = analysis.complete
    times = analysis.whole_breakdown.group_by(PROCESS).agg(_col("time_ns").sum())
    return {
        "tools": ", ".join(dict.fromkeys(tool_of(rank) for rank in trace.ranks)),
        "ranks": len(trace.ranks),
        "cycles": max((len(rank.cycles) for rank in trace.ranks), default=0),
        "processes": times.height,
        "devices": analysis.whole_devices.select("rank", "device_id").unique().height,
        "time_ns": int(times["time_ns"].max() or 0),  # type: ignore[arg-type]  # whole nanoseconds
        "ranges": trace.ranges.height,
    }


def tool_of(rank: Metadata) -> str:
    return " ".join(part for part in (rank.source, rank.tool_version) if part)


def _about(row: dict[str, Any], room: _Room) -> str:
    texts = [
        short_name(row["tools"], room.tool),
        plural(row["ranks"], "rank") if row["ranks"] > 1 or row["cycles"] > 1 else "",
        plural(row["cycles"], "cycle") if row["cycles"] > 1 else "",
        plural(row["processes"], "process", "processes"),
        plural(row["devices"], "device") if row["devices"] else "no device",
        plural(row["ranges"], "range"),
        time_text(row["time_ns"]),
    ]
    return " · ".join(part for part in texts if part)


def _lines(facts: _Facts, room: _Room) -> list[str]:
    row = facts.row
    lines = [_about(row, room)]
    lines += _device(facts, room) if row["devices"] else _host(row)
    if row["overhead_outside_ns"] >= _MUCH_OVERHEAD * row["time_ns"] > 0:
        lines.append(
            f"Profiler     {time_text(row['overhead_outside_ns'])} at work before and after the run: not counted"
        )
    lines.append(f"Known        {' · '.join(_known(row))}")
    lines += facts.steps
    lines += [f"Compiled     {facts.compiled}"] if facts.compiled else []
    lines += [_names(title, times, room) for title, times in facts.times.items() if times]
    lines += _findings(facts.costs, room)
    if row["pyroscope_run"]:
        lines.append(f"Pyroscope    run_id {row['pyroscope_run']}")
    if facts.issues:
        lines.append(f"Issues       {facts.issues:,}: opspan table FILE says which")
    # Commands are never cut or wrapped.
    commands = [f"Next         {facts.next}", *([f"See it       {facts.see}"] if facts.see else [])]
    return [*(fit for line in lines for fit in room.fitted(line)), *commands]


def _device(facts: _Facts, room: _Room) -> list[str]:
    row = facts.row
    busy = row["busy_ns"]
    # The times do not overlap: at each moment only the first of these kinds that is active counts.
    titles = zip(("computing", *_ALONE), ("computing", "collectives", "copies"), strict=True)
    times = {title: row[f"{name}_ns"] for name, title in titles}
    times["other"] = busy - sum(times.values())
    parts = [f"{title} {ns / busy:.1%}" for title, ns in times.items() if ns]
    parts[1:2] = [f"else {part}" for part in parts[1:2]]
    lines = [f"Device busy  {time_text(busy)}: {', '.join(parts)}"]
    if facts.idle:
        reason, most, op = facts.idle
        where = f", most in {short_name(op, room.name)}" if op else ""
        total_ns = row["device_time_ns"]
        time = f"{time_text(row['idle_ns'])} of {time_text(total_ns)} ({row['idle_ns'] / total_ns:.1%})"
        lines.append(f"Device idle  {time}, {most:.0%} of it {reason}{where}")
        before = row["before_work_ns"]
        if before >= _LITTLE * total_ns:
            share = f"{time_text(before)} ({before / row['idle_ns']:.1%})"
            lines.append(f"{'':{_LABEL}}of that {share} before the first work of each device")
    return lines


def _idle(parts: Parts) -> tuple[str, float, str | None]:
    rows = parts["idle"].rows.sort("time_ns", descending=True, maintain_order=True)
    times = {title: int(rows[f"{why}_ns"].sum()) for why, title in WHY_IDLE.items()}
    reason = max(times, key=lambda title: (times[title], title))
    ops = rows.filter(_col("host_ns") > 0).sort("host_ns", descending=True)["op"].drop_nulls()
    op = ops[0] if len(ops) and reason == WHY_IDLE["host"] else None
    return reason, times[reason] / int(parts["sums"].rows["idle_ns"][0]), op


def _host(row: dict[str, Any]) -> list[str]:
    parts = (("ops", "ops of torch"), ("loading", "loading data"), ("communicating", "collectives"), ("other", "other"))
    total = sum(row[f"{name}_ns"] for name in ("calling", *(name for name, _ in parts)))
    shares = [f"{words} {row[f'{name}_ns'] / total:.1%}" for name, words in parts if total and row[f"{name}_ns"]]
    return [f"Host         {time_text(total)}: {', '.join(shares)}"] if shares else []


def _known(row: dict[str, Any]) -> list[str]:
    attributed = [] if row["attributed"] is None else [f"{row['attributed']:.1%} of device time attributed"]
    backward = f"{row['linked']:,} of {row['backward']:,} linked" if row["backward"] else "none"
    sized = f"of {row['sized']:.0%} of ops" if row["sized"] else "none"
    return [*attributed, f"backward: {backward}", f"sizes: {sized}"]


def _steps(parts: Parts, row: dict[str, Any]) -> list[str]:
    lengths = lengths_of(parts)
    if not lengths.steps:
        none = "Steps        none: name them with prof.step() or a range, and say --step NAME"
        pattern = step_words.pattern_text(parts)
        return [none, f"Kernels      {pattern}, be it steps or layers"] if pattern else [none]
    outliers = f", {plural(row['outliers'], 'outlier')}" if row["outliers"] else ""
    lines = [f"Steps        {step_words.lengths_text(lengths)} ({_HOW[row['steps_are']]}){outliers}"]
    lines += [f"{phase.capitalize():<12} {text}" for phase, text in step_phases.phases_texts(parts).items()]
    others = step_words.outside_texts(parts)
    return [*lines, f"No step      {', '.join(others)}"] if others else lines


def top(analysis: Analysis, by: str) -> pl.DataFrame:
    """Returns ops (if `by` is name) or modules with their self times, the longest first. These are times on devices or,
    if there are none, times on the host. Rows without time are left out."""
    return _most(_sums(analysis, by))


def _sums(analysis: Analysis, by: str) -> pl.DataFrame:
    trace = analysis.complete
    rows = averages(trace.ranges, trace.work, by).filter(_col(by).is_not_null())
    if by == "name":
        is_op = trace.ranges["kind"].is_in(["op", "backward", "script"])
        rows = rows.filter(_col("name").is_in(trace.ranges["name"].filter(is_op).unique().implode()))
    return rows.select(_col(by).cast(pl.String), *RANGE_ORDER)


def _most(rows: pl.DataFrame) -> pl.DataFrame:
    by = rows.columns[0]
    time = "self_device_ns" if int(rows["self_device_ns"].sum()) else "self_cpu_ns"
    rows = rows.filter(_col(time) > 0).sort(
        time, *RANGE_ORDER, by, descending=[True] * (1 + len(RANGE_ORDER)) + [False]
    )
    return rows.select(by, time)


def _names(title: str, times: list[tuple[str, int]], room: _Room) -> str:
    line = f"{title:<{_LABEL}}"
    for number, (name, ns) in enumerate(times[: room.names]):
        more = f"{short_name(name.removeprefix('aten::'), room.name)} {time_text(ns)}"
        if number and len(line) + len(more) > room.width - 2:
            break
        line += f"{more}  "
    return line.rstrip()


def _findings(costs: list[tuple[str, float, str, str | None]], room: _Room) -> list[str]:
    if not costs:
        return []
    line = f"Findings     {len(costs):,}:"
    for number, (id_, share, share_of, condition) in enumerate(costs):
        more = f", {id_} {share:.1%}" if number else f" {id_} {share:.1%} of {share_of}"
        more += f" {condition}" if condition else ""
        if number and len(line) + len(more) > room.width - 2:
            return [f"{line}, ..."]
        line += more
    return [line]


def _next(parts: Parts, row: dict[str, Any], files: Sequence[File]) -> str:
    """Returns a command whose output is not empty for this trace. If there is none, says how to record again."""
    name, sums = files_text(files), parts["sums"].rows.row(0, named=True)
    if row["findings"]:
        return f"opspan findings {name}"
    if sums["lasting"] or sums["work"]:
        by = "module" if sums["in_modules"] else "shape" if row["sized"] else "kernel" if sums["work"] else "name"
        return f"opspan table --by {by} {name}"
    again = parts["again"].rows["command"][0]
    return f"opspan export {name} out.sqlite" if sums["held"] else f"record again: `{again}`"


QUESTION = Question(
    "summary", parts, lambda parts, options: answer(parts, options).rows, answer, answer_of_one=answer_of_one
)
