"""Shows a Trace in a notebook: its source, its size, and how much could be attributed (`Coverage`). Tables are not
shown by this module: they make their own HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import polars as pl

from opspan import html_columns
from opspan.analysis import Analysis
from opspan.analysis.averages import on_device
from opspan.printable import listed
from opspan.text_columns import TextColumn
from opspan.views.answer import issue_lines
from opspan.views.fields import time_text
from opspan.views.summary import tool_of

_FEW = 3
_NEXT = "trace.findings() says what is wrong with the run, trace.table() where its time went, trace.report() is a page"
_col = pl.col


def trace_html(analysis: Analysis) -> str:
    lines = [(title, line) for title, describe in _PARTS.items() for line in _lines(describe, analysis)]
    titles = [title if number == 0 or lines[number - 1][0] != title else "" for number, (title, _) in enumerate(lines)]
    columns = [TextColumn("", titles, least=0), TextColumn("", [line for _, line in lines], least=0, cut_end=True)]
    return html_columns.table(columns, "Trace", [_NEXT], html_columns.LONGEST_SENTENCE)


def _lines(describe: Callable[[Analysis], Iterator[str]], analysis: Analysis) -> list[str]:
    try:
        return list(describe(analysis))
    except Exception as error:  # noqa: BLE001  # a broken trace is shown as far as possible, with the error
        return [f"cannot be found. {type(error).__name__}: {error}"]


def _tools(analysis: Analysis) -> Iterator[str]:
    ranks = analysis.tables.ranks
    tools = listed(list(dict.fromkeys(map(tool_of, ranks))), _FEW)
    hosts = listed(list(dict.fromkeys(rank.host for rank in ranks if rank.host)), _FEW)
    yield f"{tools}{f' on {hosts}' if hosts else ''}"


def _files(analysis: Analysis) -> Iterator[str]:
    if analysis.tables.paths:
        yield listed(analysis.tables.paths, _FEW)


def _processes(analysis: Analysis) -> Iterator[str]:
    trace = analysis.tables
    frames = [frame.select("rank", "pid").unique() for frame in (trace.ranges, trace.calls, trace.work)]
    processes = pl.concat(frames).drop_nulls("pid").unique()
    ranks = f" in {len(trace.ranks):,} ranks" if len(trace.ranks) > 1 else ""
    yield f"{processes.height:,}{ranks}"


def _devices(analysis: Analysis) -> Iterator[str]:
    trace = analysis.tables
    used = on_device(trace.work).select("rank", "device_id").unique()
    if not used.height:
        yield "none"
        return
    named = trace.devices.select("rank", "device_id", _col("name").cast(pl.String)).unique(["rank", "device_id"])
    names = used.join(named, on=["rank", "device_id"])["name"].drop_nulls().unique().sort().to_list()
    yield f"{used.height:,}{f' ({listed(names, _FEW)})' if names else ''}"


def _span(analysis: Analysis) -> Iterator[str]:
    if (duration := analysis.tables.duration_ns()) is not None:
        yield time_text(duration)


def _rows(analysis: Analysis) -> Iterator[str]:
    heights = [f"{frame.height:,} {name}" for name, frame in analysis.tables.frames.items() if frame.height]
    yield ", ".join(heights) or "none"


def _issues(analysis: Analysis) -> Iterator[str]:
    issues = analysis.tables.issues.height
    yield from issue_lines(analysis.tables)[:_FEW] if issues else ["none"]
    if issues > _FEW:
        yield f"{issues - _FEW:,} more: trace.issues"


_PARTS: dict[str, Callable[[Analysis], Iterator[str]]] = {
    "Tool": _tools,
    "Files": _files,
    "Processes": _processes,
    "Devices": _devices,
    "Span": _span,
    "Rows": _rows,
    "Coverage": lambda analysis: iter(analysis.coverage.lines()),
    "Issues": _issues,
}
