"""The table of a trace by one of BY: rows as a frame, and as text, JSON or CSV. docs/json.md describes the columns.

Tables by name, shape and stack have rows of ops, as torch's key_averages() does, and the text is torch's. The others
are the analysis' averages in the same style. Times in rows are integer nanoseconds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from opspan import analysis, forked, html_columns
from opspan.analysis import Analysis
from opspan.analysis.averages import BY as BY_SUMS
from opspan.analysis.averages import launched_in
from opspan.analysis.sums import OF_WORK, RANGE_ORDER, WORK_ORDER
from opspan.errors import UsageError
from opspan.events import EventList, events_of
from opspan.events.table import sort_attribute
from opspan.printable import listed, plural, printable
from opspan.tables import Tables
from opspan.tables.names import matching, names_of
from opspan.text_columns import Column, Layout
from opspan.views import contents, missing, spreadsheet, text_table
from opspan.views.footer import Run, coverage_values, printable_names
from opspan.views.op_table import OF_EVENTS, TORCH, OpRows

if TYPE_CHECKING:
    from opspan.analysis.parts import Part

__all__ = ["BY", "ROWS_OF_TEXT", "SCHEMA", "Asked", "Table", "as_csv", "as_json", "as_text", "lean", "table_of"]

ROWS_OF_TEXT = 100  # as many as torch prints
SCHEMA = 1  # version of the JSON: it changes when a name, or its meaning, changes
BY = (*BY_SUMS, "stack")
_CONTEXTS = ("module", "step", "phase")
_OF_WORK = ("stream", "kernel")
_col = pl.col
_OF_TORCH = {attribute: column for column, attribute in TORCH.items()}
_LISTS = ("sizes", "stack")  # texts that are JSON
# Tables that may have only one group -> the key, and its value for no group. `missing` says how to get more groups.
_WITHOUT = {"module": ("module", "[]"), "step": ("step", "[]"), "shape": ("sizes", "[]"), "stack": ("stack", "[]")}
NO_MEMORY = (
    "No memory was recorded: torch.profiler.profile(profile_memory=True) records it, and nsys profile "
    "--cuda-memory-usage=true"
)
SORTED_UP = ("name", "sizes", "stack", "device", "kind", "module", "step", "phase", "rank")
_DEFAULT_SORT = ("self_device_ns", "device_ns", "self_cpu_ns")  # the first that has any time
_TITLES = {"step": "# of Steps"}  # title of the count; in other tables: calls


class Asked(NamedTuple):
    """Which table."""

    by: str = "name"
    sort_by: str | None = None  # a column, or torch's name for one; the largest numbers come first
    op: str | None = None  # a name, or a pattern of names: only these ops
    kernels: bool = False  # rows of kernels and copies beside those of ops
    memory: bool = False
    step: str | None = None  # pattern of the names of ranges that are steps; None: ProfilerStep#N


@dataclass(frozen=True)
class Table:
    """Its rows, and how they are shown."""

    by: str
    rows: pl.DataFrame  # all of them, in order
    # The text of the first so many rows (-1: of all), and sentences on what had no room in it.
    text: Callable[[int, Layout], tuple[str, list[str]]]
    columns: Callable[[int], tuple[list[Column], list[str]]]  # the same in columns, and the lines below them
    notes: tuple[str, ...] = ()  # what the trace has instead, if there are no rows, or only one group

    def __str__(self) -> str:
        return as_text(self, ROWS_OF_TEXT)

    def _repr_html_(self) -> str:
        return html_columns.or_why_not(lambda: as_html(self), "The table")

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """What IPython shows as text: the same as print."""
        printer.text(html_columns.or_why_not(self.__str__, "The table", say=str))


# Columns of ranges that no table shows, and that the analysis for a table does not use.
_UNSEEN = (
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


def lean(trace: Tables) -> Tables:
    """The trace without what its table does not need. Of a large one that is a third of the memory."""
    ranges = trace.ranges.drop(_UNSEEN)
    if not trace.work["named_range_id"].count():  # ids are needed only if work refers to them
        ranges = ranges.drop("id")
    # The analysis uses op_id only to see whether there is one, and only if the sequence number is 0.
    if not ranges.select((pl.col("op_id").is_null() & (pl.col("seq") == 0)).any()).item():
        ranges = ranges.with_columns(op_id=pl.lit(0, dtype=pl.Int64))
    return trace.replace(ranges=ranges)


def table_of(analysed: Analysis, asked: Asked, events: EventList | None = None) -> Table:
    """`events`: those of `found`, from whoever asks for several tables."""
    if forked.is_cut_off():
        return _far_table(analysed, asked)
    by = asked.by
    check(asked)
    if asked.memory and analysed.tables.memory.height:
        analysed, events = analysed.with_memory(), None
    trace = looked_at(analysed, asked)
    names_of_op = None if asked.op is None else names_of_op_in(names_of(trace.ranges), asked.op)
    if by in OF_EVENTS:
        table = _of_events(analysed, events_of(analysed) if events is None else events, asked, names_of_op)
    else:
        table = of_averages(averaged(trace, asked, names_of_op), asked, has_xpu(trace))
    return replace(table, notes=(*_notes(trace, table, asked), *table.notes))


def _far_table(analysed: Analysis, asked: Asked) -> Table:
    """The table that another process makes (forked.py), each time that its text is wanted."""
    rows, notes = forked.ask(_rows_and_notes, analysed, asked)
    return Table(
        asked.by,
        rows,
        partial(forked.ask, _text, analysed, asked),
        partial(forked.ask, _columns, analysed, asked),
        notes,
    )


def _rows_and_notes(analysed: Analysis, asked: Asked) -> tuple[pl.DataFrame, tuple[str, ...]]:
    table = table_of(analysed, asked)
    return table.rows, table.notes


def _text(analysed: Analysis, asked: Asked, limit: int, layout: Layout) -> tuple[str, list[str]]:
    return table_of(analysed, asked).text(limit, layout)


def _columns(analysed: Analysis, asked: Asked, limit: int) -> tuple[list[Column], list[str]]:
    return table_of(analysed, asked).columns(limit)


def check(asked: Asked) -> None:
    if asked.by not in BY:
        raise UsageError(f"there is no table by {asked.by!r}; expected one of {', '.join(BY)}")
    if asked.memory and asked.by in _OF_WORK:
        raise UsageError(
            f"--memory is about ops, and a table by {asked.by} has none; expected --by name, shape, stack, module, "
            "step or phase"
        )


def looked_at(analysed: Analysis, asked: Asked) -> Tables:
    """The trace as far as the table needs it analysed."""
    trace = analysed.complete if asked.by in _CONTEXTS else analysed.attributed
    if asked.by == "step" and asked.step is not None:
        from opspan.tables.window import numbers_of

        names = trace.ranges["name"].unique()
        is_step = numbers_of(names, asked.step).is_not_null()
        trace = trace.replace(ranges=analysis.steps_named(trace.ranges, names.filter(is_step).cast(pl.String)))
    return trace


def has_xpu(trace: Tables) -> bool:
    return bool((trace.devices["kind"].cast(pl.String) == "xpu").any())


def names_of_op_in(known: Sequence[str], op: str) -> list[str]:
    found = matching(known, op)
    if not found:
        said = "`opspan table FILE --limit -1` lists all names"
        if like := _like(op, known):
            said = f"did you mean {' or '.join(printable(name) for name in like)}?"
        raise UsageError(f"no op or range is called {op!r} (* stands for any text): {said}")
    return found


def _like(op: str, known: Sequence[str]) -> list[str]:
    """Names that may have been meant, compared with and without the part before `::`."""
    short = {name.rpartition("::")[2]: name for name in reversed(known)}
    import difflib  # only for who has misspelt

    close = difflib.get_close_matches(op, [*known, *short], 3, 0.6)
    return list(dict.fromkeys(short.get(name, name) for name in close))


def _notes(trace: Tables, table: Table, asked: Asked) -> list[str]:
    if not table.rows.height:
        if asked.op is not None and table.by in _OF_WORK:
            return [f"Nothing to show: no kernel or copy was launched in {asked.op}. {contents.holds(trace)}"]
        return [contents.nothing_by(trace, table.by)]
    notes = [missing.without(trace, table.by)] if is_one_group(table) else []
    return [*notes, NO_MEMORY] if asked.memory and not trace.memory.height else notes


def is_one_group(table: Table) -> bool:
    """Whether no row has what they are by."""
    column, none = _WITHOUT.get(table.by, ("", None))
    return bool(column) and bool((table.rows[column].fill_null("[]") == none).all())


def as_text(table: Table, limit: int, layout: Layout | None = None) -> str:
    layout = layout or Layout()
    text, cut = table.text(limit, layout) if table.rows.height else ("", [])
    hidden = table.rows.height - limit if limit >= 0 and table.rows.height else 0
    more = [f"{hidden:,} more rows: --limit -1 shows all"] if hidden > 0 else []
    below = layout.lines(map(printable, (*more, *cut, *table.notes)))
    return text + "".join(f"{line}\n" for line in below)


def as_html(table: Table) -> str:
    columns, totals = table.columns(html_columns.ROWS)
    more = html_columns.more(table.rows.height, "print() shows 100 of them, .rows has all")
    above = f"Table by {table.by}: {plural(table.rows.height, 'row')}"
    return html_columns.table(columns, above, (*totals, *more, *table.notes))


def as_json(found: Run, table: Table, limit: int = -1) -> str:
    rows = _limited(table.rows, limit).to_dicts()
    for row in rows:
        row |= {name: json.loads(row[name]) for name in _LISTS if name in row}
        # JSON cannot express these.
        row |= {name: None for name, value in row.items() if isinstance(value, float) and not math.isfinite(value)}
    document = {
        "schema": SCHEMA,
        "by": table.by,
        "rows": rows,
        "issues": found.tables.issues.to_dicts(),
        "coverage": coverage_values(found.coverage),
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def as_csv(table: Table, limit: int) -> str:
    return spreadsheet.as_csv(_limited(table.rows, limit))


def _limited(rows: pl.DataFrame, limit: int) -> pl.DataFrame:
    return rows.head(limit) if limit >= 0 else rows


def sort_column(rows: pl.DataFrame, by: str, asked: str | None) -> str:
    if asked is None:
        of_time = (name for name in _DEFAULT_SORT if name in rows.columns and rows[name].sum())
        return next(of_time, "count" if "count" in rows.columns else "ranges")
    column = _OF_TORCH.get(sort_attribute(asked), asked)
    if column not in rows.columns:
        column = column.removeprefix("self_")  # work on a device has nothing inside it
    if column not in rows.columns:
        raise UsageError(
            f"the table by {by} has no column {asked!r} to sort by; expected one of {listed(rows.columns)} "
            "(or torch's name of one, such as self_cpu_time_total)"
        )
    return column


def _of_events(analysed: Analysis, events: EventList, asked: Asked, names: Sequence[str] | None) -> Table:
    return of_ops(OpRows(analysed, events, asked.by, names, asked.kernels), asked, len(analysed.tables.ranks) == 1)


def of_ops(rows: OpRows, asked: Asked, is_one_rank: bool) -> Table:
    column = sort_column(rows.frame, asked.by, asked.sort_by)
    rows.order(column, descending=column not in SORTED_UP)
    frame = rows.frame.drop("rank") if is_one_rank else rows.frame
    notes = () if rows.has_ops or not frame.height else ("There are no ops: these are kernels and copies",)
    return Table(asked.by, frame, rows.text, rows.columns, notes)


def averaged(trace: Tables, asked: Asked, names: Sequence[str] | None) -> Part:
    """The sums of the rows, which add up over ranks."""
    from opspan.analysis.parts import Part

    by = asked.by
    if by == "kernel":
        from opspan.analysis import kernel_use

        sums = kernel_use.sums(kernel_use.launched(launched_in(trace.ranges, trace.work, names), trace.devices))
        bounds = {"least_device_ns": "least", "most_device_ns": "most"}
        return Part(sums, OF_WORK["kernel"], bounds)
    rows = analysis.averages(trace.ranges, trace.work, by, names)
    if by in _CONTEXTS and names is None:
        rows = rows.rename({"count": "ranges"})
        if by != "phase":
            rows = rows.join(analysis.calls_of(trace, by), on=by, how="left", maintain_order="left")
    return Part(rows, OF_WORK["stream"] if by == "stream" else (by,))


def of_averages(part: Part, asked: Asked, is_xpu: bool) -> Table:
    by, rows = asked.by, part.rows
    if by == "kernel":
        from opspan.analysis import kernel_use

        rows = kernel_use.figures_of(rows)
    else:
        # Rows that are alike in what they are sorted by are in this order.
        order = WORK_ORDER if by == "stream" else (*RANGE_ORDER[:2], "ranges" if "ranges" in rows.columns else "count")
        keys = part.key or ()
        rows = rows.sort(*order, *keys, descending=[True] * len(order) + [False] * len(keys))
    rows = rows.with_columns(_col(name).fill_null(0) for name in rows.columns if name.startswith("backward_"))
    rows = rows.rename({name: f"{name}_bytes" for name in rows.columns if name.endswith("_memory")})
    if by in _CONTEXTS and asked.op is None:
        # A range inside another of its group would count twice in a sum of whole times.
        rows = rows.drop("cpu_ns", "device_ns")
        if by != "phase":
            rows = rows.select(by, "count", pl.exclude(by, "count"))
    if by == "stream":
        rows = rows.with_columns(average_device_ns=pl.col("device_ns") / pl.col("count"))
    column = sort_column(rows, by, asked.sort_by)
    rows = rows.sort(column, descending=column not in SORTED_UP, nulls_last=True, maintain_order=True)
    device = "XPU" if is_xpu else "CUDA"
    shown = printable_names(rows, *(name for name in ("name", "module", "step") if name in rows.columns))
    counted = "# of Calls" if asked.op is not None else _TITLES.get(by, "# of Calls")

    def text(limit: int, layout: Layout) -> tuple[str, list[str]]:
        return text_table.render(_limited(shown, limit), shown, device, layout, counted)

    def columns(limit: int) -> tuple[list[Column], list[str]]:
        named = text_table.columns_of(_limited(shown, limit), shown, device, counted)
        return named, text_table.totals_of(shown, device)

    return Table(by, rows, text, columns)
