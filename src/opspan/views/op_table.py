"""The table of ops by name, shape or stack. It has the rows of torch's key_averages(), as a frame and as text.

With rows for kernels, the text equals torch's table in each character. Without rows for kernels, the totals below the
table still include the kernels, and the shares are shares of these totals.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import polars as pl

from opspan.analysis import Analysis
from opspan.events.event_frames import EventFrames, average_rows
from opspan.events.kinds import TOTALLED
from opspan.events.table import Facts, TableOptions, filled, render, totals_of
from opspan.events.texts import Microseconds, shown_name
from opspan.printable import printable
from opspan.text_columns import Layout, TextColumn, fitted
from opspan.views.fields import SAMPLED
from opspan.views.metric_columns import as_text, with_metrics

OF_EVENTS = ("name", "shape", "stack")  # groupings whose tables have the rows of torch's key_averages()
STACK_DEPTH = 5  # number of functions by which a table by stack tells stacks apart: the innermost ones

# Name of our column -> name of the attribute of torch's averages.
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

# Title ({} is the device) -> rank: columns with the highest rank are dropped first if there is little room. The
# other columns of torch's table stay.
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
# Columns whose texts may be cut -> the least number of characters to keep. If the table is still too wide, columns are
# dropped.
_TEXTS = {"Name": 24, "Input Shapes": 24, "Source Location": 40}


_KNOWN = tuple(dict.fromkeys(("name", "sizes", "stack", "device", "rank", "count", *TORCH)))
# Only the printed table needs this column: like torch's table, it shows no share of the total for async rows.
HIDDEN = "is_async"


def schema_of(by: str, has_memory: bool) -> dict[str, Any]:
    key = {"shape": ["sizes"], "stack": ["stack"]}.get(by, [])
    return {
        **dict.fromkeys(("name", *key, "device"), pl.String),
        **dict.fromkeys(("rank", "count", *_TOTALS), pl.Int64),
        **dict.fromkeys(("average_cpu_ns", "average_device_ns"), pl.Float64),
        **dict.fromkeys(_MEMORY if has_memory else (), pl.Int64),
    }


def op_rows(
    analysis: Analysis, events: EventFrames, by: str, names: Sequence[str] | None
) -> tuple[pl.DataFrame, Facts | None]:
    """Returns the rows of ops and of kernels, and the totals and widths that torch's table needs (Facts). If `names` is
    given, only rows with these names are returned, but the facts are those of all rows. `is_user` tells ranges of the
    program from ops with the same name."""
    rows = average_rows(events, by == "shape", STACK_DEPTH if by == "stack" else 0)
    rows = rows.rename({name.removesuffix("_bytes"): name for name in _MEMORY}).with_columns(
        *((pl.col(f"{name}_ns") / pl.col("count")).alias(f"average_{name}_ns") for name in ("cpu", "device")),
        device=pl.when("is_cpu").then(pl.lit("cpu")).otherwise(pl.lit(events.use_device)),
    )
    facts = _facts(rows, events) if rows.height else None
    if names is not None:
        rows = rows.filter(pl.col("name").is_in([shown_name(name) for name in names]))
    rows = rows.select(*schema_of(by, events.has_memory), HIDDEN, "is_user")
    if by == "name" and analysis.tables.metrics.height:
        rows = with_metrics(rows, analysis.tables)
    return rows, facts


def _facts(rows: pl.DataFrame, events: EventFrames) -> Facts:
    device = rows.filter(~pl.col("is_cpu")) if events.source.device_type in TOTALLED else rows.clear()
    entries = [len(entry) for stack in rows["stack"].unique() for entry in json.loads(stack)]
    sizes = [json.loads(text) for text in rows["sizes"].unique()]
    return Facts(
        use_device=events.use_device,
        longest_name=_longest(rows["name"]),
        longest_shapes=max(len(str(shapes)) for shapes in sizes),
        longest_stack_entry=max(entries, default=None),
        self_cpu_us=Microseconds(int(rows["self_cpu_ns"].sum())),
        self_device_us=Microseconds(int(device["self_device_ns"].sum())),
        has_device_time=bool((rows["self_device_ns"] > 0).any()),
        has_device_memory=bool((rows["self_device_memory_bytes"] > 0).any()),
        has_shapes=any(sizes),
        has_nodes=events.has_ranks,
    )


def _longest(names: pl.Series) -> int:
    return max(len(printable(name)) for name in names.unique())


class OpRows:
    """Holds the rows of one trace, or of many ranks together, and prints them."""

    def __init__(self, rows: pl.DataFrame, facts: Facts | None, kernels: bool, has_ops: bool) -> None:
        is_cpu = rows["device"] == "cpu"
        self.facts = facts
        self.has_ops = has_ops or bool(is_cpu.any())
        # If a tool recorded only devices, all rows are kernels. Then they are shown, whatever `kernels` says.
        self.rows = rows if kernels or not self.has_ops else rows.filter(is_cpu)
        self._has_memory = "cpu_memory_bytes" in rows.columns

    @property
    def _whole_names(self) -> TableOptions:
        """Returns options for a table in which long names are not cut."""
        return TableOptions(
            max_name_column_width=None,
            max_shapes_column_width=None,
            max_src_column_width=None,
            profile_memory=self._has_memory,
        )

    def order(self, column: str, descending: bool) -> None:
        # As in torch, rows with equal values stay in their order in time.
        self.rows = self.rows.sort(column, descending=descending, nulls_last=True, maintain_order=True)

    def text(self, limit: int, layout: Layout) -> tuple[str, list[str]]:
        """Returns the text of the first `limit` rows (-1: all), and sentences on the columns that did not fit."""
        if self.facts is None or not self.rows.height:
            return "", []
        shown, facts, metrics = self._shown(limit, self.facts)
        if layout.width is None:
            options = self._whole_names if layout.whole_names else TableOptions(profile_memory=self._has_memory)
            return render(shown, facts, options, metrics), []
        fits, notes = fitted(self._columns(shown, facts, metrics), layout.width)
        return "\n".join([*fits, *totals_of(facts, None)]) + "\n", notes

    def columns(self, limit: int) -> tuple[list[TextColumn], list[str]]:
        """Returns the first `limit` rows as columns, and the lines with the totals."""
        if self.facts is None or not self.rows.height:
            return [], []
        shown, facts, metrics = self._shown(limit, self.facts)
        return self._columns(shown, facts, metrics), list(totals_of(facts, None))

    def _shown(self, limit: int, facts: Facts) -> tuple[list[Any], Facts, list[TextColumn]]:
        """Returns the rows to show, the facts that torch's table needs, and columns that torch's table lacks: metrics
        of reports, and figures from samples."""
        rows = self.rows if limit < 0 else self.rows.head(limit)
        facts = facts._replace(longest_name=_longest(self.rows["name"]))
        if "sizes" in rows.columns:
            longest = max(len(str(json.loads(sizes))) for sizes in self.rows["sizes"].unique())
            facts = facts._replace(longest_shapes=longest)
        more = rows.select(pl.exclude(*_KNOWN, HIDDEN))
        columns = as_text(more.select(pl.exclude(SAMPLED)))
        if SAMPLED[0] in more.columns:
            from opspan.views import sampled_columns  # most traces have no samples

            columns += sampled_columns.as_text(more)
        return [_line(row) for row in rows.iter_rows(named=True)], facts, columns

    def _columns(self, shown: Sequence[Any], facts: Facts, metrics: Sequence[TextColumn]) -> list[TextColumn]:
        """Returns columns in which no text is cut. If there is little room, `rank` says which columns are dropped
        first, and `least` says how many characters of a text must stay."""
        device = facts.use_device.upper() if facts.use_device else ""
        ranks = {title.format(device): rank for title, rank in _RANKS.items()}
        return [
            column._replace(
                cells=[cell.strip() for cell in column.cells],
                rank=ranks.get(column.title, column.rank),
                least=_TEXTS.get(column.title),
                cut_end=column.title == "Input Shapes",
            )
            for column in filled(shown, facts, self._whole_names, metrics)
            if facts.self_cpu_us
            or "CPU" not in column.title
            or column.title not in ranks  # without CPU time, the columns of the CPU (times and memory) are left out
        ]


def _line(row: dict[str, Any]) -> Any:
    """Returns a row with the attributes that torch's table reads."""
    values = {attribute: row.get(name, 0) for name, attribute in TORCH.items()}
    values |= {attribute: Microseconds(row[name]) for name, attribute in TORCH.items() if name in _TOTALS}
    values |= {f"{side}_time": values[f"{side}_time_total"] / row["count"] for side in ("cpu", "device")}
    sizes, stack = (json.loads(row.get(name, "[]")) for name in ("sizes", "stack"))
    values |= {"key": printable(row["name"]), "input_shapes": sizes, "stack": [printable(entry) for entry in stack]}
    more = {"count": row["count"], "node_id": row["rank"], "is_async": row[HIDDEN], "overload_name": None, "flops": 0}
    return SimpleNamespace(**values, **more)
