"""Tables of the ops in several groupings, and of the lines of the program, with times and costs. Also the stacks that
called ops, and pairs of a forward op and its backward op."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import polars as pl

from opspan.analysis import Analysis
from opspan.analysis.averages import averages
from opspan.analysis.backward import pairs
from opspan.analysis.call_stacks import call_stacks
from opspan.analysis.kernels import is_told
from opspan.analysis.source_lines import knows_lines
from opspan.analysis.tensor_cores import tensor_cores
from opspan.events.event_frames import event_frames
from opspan.questions import Options
from opspan.tables import Tables
from opspan.views.fields import (
    BOUND,
    BYTE_RATE,
    CALLS,
    FLOP_RATE,
    LINE,
    MODULE,
    PHASE,
    RANK,
    SIZES,
    SOURCE_OP,
    STEP,
    Field,
    with_values,
)
from opspan.views.flops import tables_of
from opspan.views.missing import FUNCTIONS, labelling_command
from opspan.views.page.columns import MOST_ROWS, numbered, renumbered, table, text, values
from opspan.views.page.section import Section, Subject
from opspan.views.table import table_of

_BY = {
    "name": "op",
    "shape": "op and sizes",
    "stack": "op and stack",
    "module": "module",
    "phase": "phase",
    "step": "step",
}
# Groupings that only some traces have. They need stacks, or what torch.compile wrote about its kernels.
_BY_SOURCE = {"line": "line of the program", "source-op": "op that the program called"}
# Table -> the grouping of `opspan flops` with the same rows, and how its key columns are called in the table.
_COST = {
    "name": ("op", {"op": "name"}),
    "shape": ("shape", {"op": "name", "sizes": "sizes"}),
    "module": ("module", {"module": "module"}),
    "phase": ("phase", {"phase": "phase"}),
}
_OF_OPS = {"name": ["name"], "shape": ["name", "sizes"]}
_OUTSIDE = {"module": "(in no module)", "phase": "(in no phase)", "step": "(in no step)"}
_SELF = "without what runs inside it"
_COLUMNS = (
    Field("name", "Op", "name"),
    replace(SIZES, unit="text"),
    Field("called", "Called in", "text", "The innermost functions of Python, the innermost first"),
    MODULE,
    PHASE,
    STEP,
    replace(LINE, help="The time of a compiled kernel is divided into equal parts for its lines"),
    replace(SOURCE_OP, help="The time of a compiled kernel is divided into equal parts for its ops"),
    RANK,
    CALLS,
    Field("kernels", "Kernels", "count", "Kernels, copies and fills that it has a part of"),
    Field("ranges", "Ranges", "count", "How many ranges lie in it"),
    Field("self_device_ns", "Device, self", "ns", f"Time on devices {_SELF}", bar=True),
    Field("device_ns", "Device, total", "ns", "Time on devices with all that runs inside it"),
    Field("self_cpu_ns", "Host, self", "ns", f"Time on the host {_SELF}", bar=True),
    Field("cpu_ns", "Host, total", "ns", "Time on the host with all that runs inside it"),
    Field("backward_device_ns", "Backward, device", "ns", "Time on devices of the backward of these ops"),
    Field("backward_cpu_ns", "Backward, host", "ns", "Time on the host of the backward of these ops"),
    Field("tensor_cores", "Tensor cores", "share", "Share of Device, total; nothing: no products, or not known"),
    FLOP_RATE,
    replace(BYTE_RATE, unit="rate"),
    BOUND,
)
_NONE = "There are no ops or ranges in this trace"
_MOST_BARS = 10
MOST_STACKS = 1_000
_LONGEST_FRAME = 200  # in characters; paths are usually shorter
_SIDES = {"self_device_ns": ("kernel", "Device, self"), "self_cpu_ns": ("ops", "Host, self")}
_col = pl.col


def section(subject: Subject) -> Section:
    analysis = subject.analysis
    has_sizes = bool(analysis.attributed.ranges["sizes"].count())  # costs are only known for ops with sizes
    costs = tables_of(analysis, [by for by, _ in _COST.values()]) if has_sizes else {}
    events = event_frames(analysis)
    titles = _titles(analysis.attributed)
    tables = {by: table_of(analysis, Options(by), events) for by in titles}
    ops = tables["name"].rows
    if tables["name"].notes:  # the notes say that the trace has no ops, or only kernels
        return Section("Operators", None, _NONE, labelling_command(analysis.tables))
    has_device = bool(ops["self_device_ns"].sum())
    shown: list[dict[str, Any]] = []
    for by, by_table in tables.items():
        if by_table.notes:  # the notes say that all rows would be in a single group
            shown.append({"by": by, "title": titles[by], "why": by_table.notes[0]})
            continue
        rows = _with_cost(by, _with_backward(analysis, by, by_table.rows), costs)
        if has_device and by in _OF_OPS:
            rows = _with_tensor_cores(analysis, by, rows)
        if by in _OUTSIDE:
            rows = rows.with_columns(_col(by).cast(pl.String).fill_null(_OUTSIDE[by]))
        if by in _BY_SOURCE:
            rows = rows.rename({"count": "kernels"}).drop("ranges")
        if by == "stack":
            rows = rows.with_columns(called=pl.Series(map(_called, rows["stack"]), dtype=pl.String))
        columns = [column for column in _COLUMNS if has_device or "device" not in column.name]
        shown.append(
            {
                "by": by,
                "title": titles[by],
                "why": "",
                "sort": "self_device_ns" if has_device else "self_cpu_ns",
                "rows": table(rows, with_values(columns, rows)),
            }
        )
    return Section(
        "Operators",
        {"bars": _bars(ops, has_device), "tables": shown, "pairs": _pairs(analysis), "stacks": _stacks(analysis)},
    )


def _titles(trace: Tables) -> dict[str, str]:
    """Returns the groupings that the trace has, with their titles."""
    known = {"line": knows_lines(trace), "source-op": trace.provenance.height > 0}
    return _BY | {by: title for by, title in _BY_SOURCE.items() if known[by]}


def _with_backward(analysis: Analysis, by: str, rows: pl.DataFrame) -> pl.DataFrame:
    """Adds the times of the backward of each op, which torch's table lacks. Leaves a table unchanged if it is not by
    op, or if each rank has rows of its own in it."""
    if by not in _OF_OPS or "rank" in rows.columns:
        return rows
    sums = averages(analysis.attributed.ranges, analysis.attributed.work, by)
    columns = [name for name in ("backward_cpu_ns", "backward_device_ns") if name in sums.columns]
    keys = _OF_OPS[by]
    sums = sums.select(_col(keys).cast(pl.String), *columns)
    return rows.join(sums, on=keys, how="left", maintain_order="left").with_columns(
        pl.when(_col(columns) > 0).then(_col(columns)).name.keep() if columns else []
    )


def _with_cost(by: str, rows: pl.DataFrame, costs: dict[str, pl.DataFrame]) -> pl.DataFrame:
    if by not in _COST or not costs:
        return rows
    of, keys = _COST[by]
    cost = costs[of].select(*keys, "flops_per_s", "bytes_per_s", "bound").rename(keys)
    names = list(keys.values())
    return rows.with_columns(_col(names).cast(pl.String)).join(cost, on=names, how="left", maintain_order="left")


def _with_tensor_cores(analysis: Analysis, by: str, rows: pl.DataFrame) -> pl.DataFrame:
    keys = [*_OF_OPS[by], *(["rank"] if "rank" in rows.columns else [])]
    used = tensor_cores(analysis.attributed.ranges, analysis.attributed.work, keys)
    used = used.with_columns(_col(_OF_OPS[by]).cast(pl.String)).cast({"rank": pl.Int64} if "rank" in keys else {})
    share = _col("tensor_cores_ns") / _col("device_ns")
    multiplies = (_col("device_ns") > 0) & (_col("is_eligible") | (_col("tensor_cores_ns") > 0))
    return rows.join(used, on=keys, how="left", maintain_order="left").with_columns(
        tensor_cores=pl.when(multiplies & is_told(_col("unknown_ns"), _col("device_ns"))).then(share)
    )


def _called(stack: str) -> str:
    return " ← ".join(text(frame, _LONGEST_FRAME) for frame in json.loads(stack))


def _bars(ops: pl.DataFrame, has_device: bool) -> list[dict[str, Any]]:
    """Returns the ops with the most self time over all ranks, and the sum of the others."""
    bars = []
    for column, (kind, title) in _SIDES.items():
        sums = ops.group_by("name", maintain_order=True).agg(_col(column).sum()).filter(_col(column) > 0)
        sums = sums.sort(column, descending=True, maintain_order=True)
        if not sums.height or (kind == "kernel" and not has_device):
            continue
        top, rest = sums.head(_MOST_BARS), sums.slice(_MOST_BARS)
        bars.append(
            {
                "kind": kind,
                "title": title,
                "total": sums[column].sum(),
                "names": values(top["name"]),
                "ns": values(top[column]),
                "others": rest.height,
                "others_ns": rest[column].sum(),
            }
        )
    return bars


def _pairs(analysis: Analysis) -> dict[str, Any]:
    rows = pairs(analysis.attributed.ranges).drop("sizes")
    rows = rows.group_by("op", "backward", maintain_order=True).sum()
    return {name: values(rows.head(MOST_ROWS)[name]) for name in rows.columns}


def _stacks(analysis: Analysis) -> dict[str, Any]:
    trace = analysis.attributed
    frames, rows = call_stacks(trace.ranges, trace.functions)
    if not rows.height:
        return {"why": f"No op has a stack: {FUNCTIONS}"}
    shown, more = rows.head(MOST_STACKS), max(rows.height - MOST_STACKS, 0)
    used = shown["frame"].unique()
    above = frames["parent"].gather(used).drop_nulls().unique()
    while above.len():
        above = above.filter(~above.is_in(used.implode()))
        used = pl.concat([used, above])
        above = frames["parent"].gather(above).drop_nulls().unique()
    shown_frames = renumbered(frames.with_row_index("row").filter(_col("row").is_in(used.implode())))
    place = shown_frames.select(frame="row").with_row_index("place")
    shown = shown.join(place, on="frame", how="left", maintain_order="left")
    names, number = numbered(shown_frames["name"].cast(pl.String).fill_null(""))
    columns = ("count", "self_cpu_ns", "self_device_ns", "cpu_ns", "device_ns")
    return {
        "why": "",
        "names": [text(name or "(no name)", _LONGEST_FRAME) for name in names],
        "frames": {"name": number.to_list(), "parent": shown_frames["parent"].to_list()},
        "rows": {"name": values(shown["name"]), "frame": shown["place"].to_list()}
        | {column: values(shown[column]) for column in columns},
        "more": more,
    }
