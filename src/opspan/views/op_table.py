"""The table of ops by name, shape or stack: the rows of torch's key_averages() as a frame, and torch's text of them.

With rows for kernels it is torch's table, character for character. Without them, the totals below the table, and the
shares of these totals, are still those of the whole trace.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import polars as pl

from opspan.analysis import Analysis
from opspan.events import EventList
from opspan.events.event_rows import shown_name
from opspan.events.kinds import DeviceType
from opspan.events.table import Facts, Options, facts_of, filled, render, totals_of
from opspan.printable import printable
from opspan.text_columns import Column, Layout, fitted
from opspan.views.metric_columns import as_text, with_metrics

OF_EVENTS = ("name", "shape", "stack")  # tables by these have rows of events
STACK_DEPTH = 5  # how many of the innermost functions of a stack are compared to group by stack

# Column of a row -> torch's attribute of an average.
TORCH = {
    "name": "key",
    "sizes": "input_shapes",
    "cpu_ns": "cpu_time_total",
    "self_cpu_ns": "self_cpu_time_total",
    "average_cpu_ns": "cpu_time",
    "device_ns": "device_time_total",
    "self_device_ns": "self_device_time_total",
    "average_device_ns": "device_time",
    "cpu_memory_bytes": "cpu_memory_usage",
    "self_cpu_memory_bytes": "self_cpu_memory_usage",
    "device_memory_bytes": "device_memory_usage",
    "self_device_memory_bytes": "self_device_memory_usage",
}
_TOTALS = ("cpu_ns", "self_cpu_ns", "device_ns", "self_device_ns")
_MEMORY = tuple(name for name in TORCH if name.endswith("_bytes"))

# Title -> how early the column is dropped if there is little room ({}: the device); columns not listed here stay.
_RANKS = {
    "Self {}": 1,
    "# of Calls": 1,
    "Self CPU Mem": 1,
    "Self {} Mem": 1,
    "Self CPU": 2,
    "{} total": 3,
    "CPU total": 3,
    "Self {} %": 4,
    "Self CPU %": 5,
    "CPU Mem": 6,
    "{} Mem": 6,
    "{} time avg": 7,
    "CPU time avg": 8,
    "CPU total %": 9,
}
# Columns whose texts may be cut -> how many characters are worth more than another column.
_TEXTS = {"Name": 24, "Input Shapes": 24, "Source Location": 40}


class OpRows:
    """The averages of a trace, in the order in which they are shown."""

    def __init__(
        self, analysis: Analysis, events: EventList, by: str, names: Sequence[str] | None, kernels: bool
    ) -> None:
        averages = events.key_averages(
            group_by_input_shapes=by == "shape", group_by_stack_n=STACK_DEPTH if by == "stack" else 0
        )
        self.facts = facts_of(list(averages)) if len(averages) else None
        chosen = [one for one in averages if one.device_type == DeviceType.CPU]
        # If a tool saw only devices, rows of kernels are all there is to show.
        self.has_ops = bool(chosen) or names is not None
        if kernels or not self.has_ops:
            chosen = list(averages)
        if names is not None:
            wanted = {shown_name(name) for name in names}
            chosen = [one for one in chosen if one.key in wanted]
        self._averages: list[Any] = chosen
        self._has_memory = averages._profile_memory
        self._metrics: list[str] = []
        rows = pl.DataFrame([_row(one, by, self._has_memory) for one in chosen], schema=schema_of(by, self._has_memory))
        self.frame = rows
        if by == "name":
            self.frame = with_metrics(rows, analysis.tables)
            self._metrics = self.frame.columns[rows.width :]

    @property
    def _whole(self) -> Options:
        """Options that show whole names, however long."""
        return Options(
            max_name_column_width=None,
            max_shapes_column_width=None,
            max_src_column_width=None,
            profile_memory=self._has_memory,
        )

    def order(self, column: str, descending: bool) -> None:
        # As in torch, rows with equal values stay in order of time.
        rows = self.frame.with_row_index("place").sort(column, descending=descending, maintain_order=True)
        self._averages = [self._averages[place] for place in rows["place"].to_list()]
        self.frame = rows.drop("place")

    def text(self, limit: int, layout: Layout) -> tuple[str, list[str]]:
        if self.facts is None or not self._averages:
            return "", []
        shown, facts, metrics = self._shown(limit, self.facts)
        if layout.width is None:
            options = self._whole if layout.whole_names else Options(profile_memory=self._has_memory)
            return render(shown, facts, options, metrics), []
        fits, notes = fitted(self._columns(shown, facts, metrics), layout.width)
        return "\n".join([*fits, *totals_of(facts, None)]) + "\n", notes

    def columns(self, limit: int) -> tuple[list[Column], list[str]]:
        """The same as columns, of the first so many rows, and the lines below them."""
        if self.facts is None or not self._averages:
            return [], []
        shown, facts, metrics = self._shown(limit, self.facts)
        return self._columns(shown, facts, metrics), list(totals_of(facts, None))

    def _shown(self, limit: int, facts: Facts) -> tuple[list[Any], Facts, list[Column]]:
        """The rows that get a line, what is known of all of them, and the columns that are not torch's."""
        shown = self._averages if limit < 0 else self._averages[:limit]
        for average in self._averages:
            average.key = printable(average.key)
            average.stack = [printable(entry) for entry in average.stack or ()]
        facts = facts._replace(
            longest_name=max(len(average.key) for average in self._averages),
            longest_shapes=max(len(str(average.input_shapes)) for average in self._averages),
        )
        return shown, facts, as_text(self.frame.select(self._metrics).head(len(shown)))

    def _columns(self, shown: Sequence[Any], facts: Facts, metrics: Sequence[Column]) -> list[Column]:
        """Whole names, and what of a column may go where there is little room."""
        device = facts.use_device.upper() if facts.use_device else ""
        ranks = {title.format(device): rank for title, rank in _RANKS.items()}
        return [
            column._replace(
                cells=[cell.strip() for cell in column.cells],
                rank=ranks.get(column.title, column.rank),
                least=_TEXTS.get(column.title),
                cut_end=column.title == "Input Shapes",
            )
            for column in filled(shown, facts, self._whole, metrics)
            if facts.self_cpu_us or "CPU" not in column.title or column.title not in ranks  # else nothing ran on it
        ]


class RankRows(OpRows):
    """The same of rows and facts that were put together of several ranks."""

    def __init__(self, rows: pl.DataFrame, facts: Facts | None, kernels: bool, has_ops: bool) -> None:
        is_cpu = pl.col("device") == "cpu"
        self.facts = facts
        self.has_ops = has_ops or bool(rows.select(is_cpu.any()).item())
        self.frame = rows if kernels or not self.has_ops else rows.filter(is_cpu)
        self._averages = self.frame["name"].to_list()
        self._has_memory = "cpu_memory_bytes" in rows.columns

    def order(self, column: str, descending: bool) -> None:
        self.frame = self.frame.sort(column, descending=descending, maintain_order=True)

    def _shown(self, limit: int, facts: Facts) -> tuple[list[Any], Facts, list[Column]]:
        rows = self.frame if limit < 0 else self.frame.head(limit)
        facts = facts._replace(longest_name=max(len(printable(name)) for name in self.frame["name"].unique()))
        if "sizes" in rows.columns:
            longest = max(len(str(json.loads(sizes))) for sizes in self.frame["sizes"].unique())
            facts = facts._replace(longest_shapes=longest)
        return [_average(row) for row in rows.iter_rows(named=True)], facts, []


def _average(row: dict[str, Any]) -> Any:
    """What a row was made of, as far as the text needs it."""
    values = {attribute: row.get(name, 0) for name, attribute in TORCH.items()}
    values |= {attribute: row[name] / 1000 for name, attribute in TORCH.items() if name.endswith("_ns")}
    sizes, stack = (json.loads(row.get(name, "[]")) for name in ("sizes", "stack"))
    values |= {"key": printable(row["name"]), "input_shapes": sizes, "stack": [printable(entry) for entry in stack]}
    more = {"count": row["count"], "node_id": row["rank"], "is_async": False, "overload_name": None, "flops": 0}
    return SimpleNamespace(**values, **more)


def schema_of(by: str, has_memory: bool) -> dict[str, Any]:
    key = {"shape": ["sizes"], "stack": ["stack"]}.get(by, [])
    return {
        **dict.fromkeys(("name", *key, "device"), pl.String),
        **dict.fromkeys(("rank", "count", *_TOTALS), pl.Int64),
        **dict.fromkeys(("average_cpu_ns", "average_device_ns"), pl.Float64),
        **dict.fromkeys(_MEMORY if has_memory else (), pl.Int64),
    }


def _row(average: Any, by: str, has_memory: bool) -> dict[str, Any]:
    totals = {name: getattr(average, TORCH[name]).ns for name in _TOTALS}
    row = {
        "name": average.key,
        "device": "cpu" if average.device_type == DeviceType.CPU else average.use_device,
        "rank": max(average.node_id, 0),
        "count": average.count,
        **totals,
        "average_cpu_ns": totals["cpu_ns"] / average.count,
        "average_device_ns": totals["device_ns"] / average.count,
    }
    if by == "shape":
        row["sizes"] = json.dumps(average.input_shapes)
    if by == "stack":
        row["stack"] = json.dumps(average.stack or [])
    if has_memory:
        row |= {name: getattr(average, TORCH[name]) for name in _MEMORY}
    return row
