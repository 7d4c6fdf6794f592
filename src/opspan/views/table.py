"""The table of a trace by one of `analysis.BY`: rows as a frame, and those as text, JSON or CSV.

By name and by shape they are the rows of torch's key_averages(), ops and kernels, and the text is torch's. The others
are the analysis' averages in the same style. Times in rows are integer nanoseconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from opspan import analysis
from opspan.analysis.averages import BY
from opspan.errors import UsageError
from opspan.events.kinds import DeviceType
from opspan.events.table import sort_attribute
from opspan.printable import listed, printable
from opspan.trace import Trace
from opspan.views import contents, missing, spreadsheet, text_table
from opspan.views.findings import coverage_values, printable_names
from opspan.views.metric_columns import beside, with_metrics

__all__ = ["BY", "Table", "as_csv", "as_json", "as_text", "lean", "prepared", "table_of"]

_EVENTS = ("name", "shape")  # by these, rows are of events
_CONTEXTS = ("module", "step", "phase")
# Column of a row -> torch's attribute of an average.
_TORCH = {
    "name": "key",
    "cpu_ns": "cpu_time_total",
    "self_cpu_ns": "self_cpu_time_total",
    "average_cpu_ns": "cpu_time",
    "device_ns": "device_time_total",
    "self_device_ns": "self_device_time_total",
    "average_device_ns": "device_time",
}
_OF_TORCH = {attribute: column for column, attribute in _TORCH.items()}
# Tables that may have one group only -> its key, and what that is of no group. `missing` says how to have more.
_WITHOUT = {"module": ("module", "[]"), "step": ("step", "[]"), "shape": ("input_shapes", "[]")}
_TOTALS = ("cpu_ns", "self_cpu_ns", "device_ns", "self_device_ns")
_SORTED_UP = ("name", "input_shapes", "device", "kind", "module", "step", "phase", "rank")
_DEFAULT_SORT = ("self_device_ns", "device_ns", "self_cpu_ns")  # the first that has any time


@dataclass(frozen=True)
class Table:
    by: str
    rows: pl.DataFrame  # all of them, in order
    text: Callable[[int], str]  # of the first so many; -1: of all
    notes: tuple[str, ...] = ()  # what there is instead of rows, or of what they should be by


# Columns of ranges that no table shows, and no analysis that it needs looks at.
_UNSEEN = (
    "id",
    "source",
    "category",
    "color",
    "input_op_ids",
    "payload_int",
    "payload_uint",
    "payload_float",
    "payload_json",
    "parent_id",
)


def lean(trace: Trace) -> Trace:
    """The trace without what its table does not need. Of a large one that is a third of the memory."""
    ranges = trace.ranges.drop(_UNSEEN)
    # Of the op's number only whether there is one is ever asked, and only where the sequence number is 0.
    if not ranges.select((pl.col("op_id").is_null() & (pl.col("seq") == 0)).any()).item():
        ranges = ranges.with_columns(op_id=pl.lit(0, dtype=pl.Int64))
    return trace.replace(ranges=ranges)


def prepared(trace: Trace, by: str) -> Trace:
    """The trace with what its table by that needs."""
    return analysis.analyse(trace) if by in _CONTEXTS else analysis.attribute(trace)


def table_of(trace: Trace, by: str, sort_by: str | None = None) -> Table:
    """Of a trace that is `prepared`. `sort_by`: a column, or torch's name of one; numbers go the largest first."""
    if by not in BY:
        raise UsageError(f"no table is by {by!r}; expected one of {', '.join(BY)}")
    table = _of_events(trace, by, sort_by) if by in _EVENTS else _of_averages(trace, by, sort_by)
    return replace(table, notes=_notes(trace, table))


def _notes(trace: Trace, table: Table) -> tuple[str, ...]:
    if not table.rows.height:
        return (contents.nothing_by(trace, table.by),)
    column, none = _WITHOUT.get(table.by, ("", None))
    is_one = column and (table.rows[column].fill_null("[]") == none).all()
    return (missing.without(trace, table.by),) if is_one else ()


def as_text(table: Table, limit: int) -> str:
    notes = "".join(f"{printable(note)}\n" for note in table.notes)
    if not table.rows.height:
        return notes
    hidden = table.rows.height - limit if limit >= 0 else 0
    more = f"{hidden:,} more rows: --limit -1 shows all\n" if hidden > 0 else ""
    return table.text(limit) + more + notes


def as_json(trace: Trace, table: Table, limit: int = -1) -> str:
    rows = _limited(table.rows, limit).to_dicts()
    for row in rows:
        if "input_shapes" in row:
            row["input_shapes"] = json.loads(row["input_shapes"])
    found = {
        "by": table.by,
        "rows": rows,
        "issues": trace.issues.to_dicts(),
        "coverage": coverage_values(trace.coverage),
    }
    return json.dumps(found, indent=1) + "\n"


def as_csv(table: Table, limit: int) -> str:
    return spreadsheet.as_csv(_limited(table.rows, limit))


def _limited(rows: pl.DataFrame, limit: int) -> pl.DataFrame:
    return rows.head(limit) if limit >= 0 else rows


def _sort_column(rows: pl.DataFrame, by: str, asked: str | None) -> str:
    if asked is None:
        return next((name for name in _DEFAULT_SORT if name in rows.columns and rows[name].sum()), "count")
    column = _OF_TORCH.get(sort_attribute(asked), asked)
    if column not in rows.columns:
        column = column.removeprefix("self_")  # what runs on a device has nothing inside it
    if column not in rows.columns:
        raise UsageError(
            f"the table by {by} has no column {asked!r} to sort by; expected one of {listed(rows.columns)} "
            "(or torch's name of one, such as self_cpu_time_total)"
        )
    return column


# --- by name and shape


def _of_events(trace: Trace, by: str, sort_by: str | None) -> Table:
    averages = trace.events().key_averages(group_by_input_shapes=by == "shape")
    rows = pl.DataFrame([_row(average, by) for average in averages], schema=_event_schema(by))
    own = rows.columns
    if by == "name":
        rows = with_metrics(rows, trace)
    column = _sort_column(rows, by, sort_by)
    # The same order for both: as torch sorts, those alike stay in order of time.
    order = rows.with_row_index("place").sort(column, descending=column not in _SORTED_UP, maintain_order=True)["place"]
    places = order.to_list()
    made = list(averages)
    averages[:] = [made[place] for place in places]
    if len(trace.ranks) == 1:
        rows = rows.drop("rank")

    def text(limit: int) -> str:
        for average in averages:
            average.key = printable(average.key)
        return beside(averages.table(row_limit=limit), rows[places].select(pl.exclude(own)))

    return Table(by, rows[places], text)


def _event_schema(by: str) -> dict[str, Any]:
    texts = ("name", "input_shapes", "device") if by == "shape" else ("name", "device")
    numbers = ("rank", "count", *_TOTALS)
    averages = ("average_cpu_ns", "average_device_ns")
    return {
        **dict.fromkeys(texts, pl.String),
        **dict.fromkeys(numbers, pl.Int64),
        **dict.fromkeys(averages, pl.Float64),
    }


def _row(average: Any, by: str) -> dict[str, Any]:
    totals = {name: getattr(average, _TORCH[name]).ns for name in _TOTALS}
    row = {
        "name": average.key,
        "device": "cpu" if average.device_type == DeviceType.CPU else average.use_device,
        "rank": max(average.node_id, 0),
        "count": average.count,
        **totals,
        "average_cpu_ns": totals["cpu_ns"] / average.count,
        "average_device_ns": totals["device_ns"] / average.count,
    }
    return {**row, "input_shapes": json.dumps(average.input_shapes)} if by == "shape" else row


# --- by the rest


def _of_averages(trace: Trace, by: str, sort_by: str | None) -> Table:
    rows = analysis.averages(trace.ranges, trace.work, by)
    if by in _CONTEXTS:
        # A range inside another of its group would count twice in a sum of whole times.
        rows = rows.drop("cpu_ns", "device_ns")
    if by in ("stream", "kernel"):
        rows = rows.with_columns(average_device_ns=pl.col("device_ns") / pl.col("count"))
    column = _sort_column(rows, by, sort_by)
    rows = rows.sort(column, descending=column not in _SORTED_UP, nulls_last=True, maintain_order=True)
    device = "XPU" if (trace.devices["kind"].cast(pl.String) == "xpu").any() else "CUDA"
    shown = printable_names(rows, *(name for name in ("name", "module", "step") if name in rows.columns))
    return Table(by, rows, lambda limit: text_table.render(_limited(shown, limit), shown, device))
