"""The table of a trace, or of many ranks, grouped by name, shape, module, kernel, ...: `opspan table`. docs/json.md
describes the columns.

Tables by name, shape and stack have the rows of torch's key_averages() for each rank, and are printed like torch's
table. The other tables have sums over all ranks, and are printed in the same style. Times are integer nanoseconds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import polars as pl

from opspan import analysis as analyses
from opspan import forked, html_columns
from opspan.analysis import Analysis, kernel_use
from opspan.analysis.averages import OF_WORK, RANGE_ORDER, WORK_ORDER, launched_in
from opspan.analysis.functions import names_of_functions
from opspan.analysis.nest import timeless
from opspan.analysis.parts import Part, Parts
from opspan.analysis.source_lines import UNKNOWN, sums_by_line, sums_by_source_op
from opspan.errors import UsageError
from opspan.events.event_frames import EventFrames, event_frames
from opspan.events.table import Facts, sort_attribute
from opspan.printable import listed, plural, printable
from opspan.questions import Options, Question
from opspan.tables import Tables
from opspan.tables.names import matching, names_of
from opspan.text_columns import Layout, TextColumn
from opspan.views import contents, missing
from opspan.views.answer import AnalysedRun, Answer, as_text, coverage_values
from opspan.views.op_table import HIDDEN, OF_EVENTS, TORCH, OpRows, op_rows, schema_of
from opspan.views.text_table import SumRows

__all__ = ["SCHEMA", "Table", "lean", "table_of"]

SCHEMA = 1  # version of the JSON; it grows when a name, or the meaning of a name, changes
_CONTEXTS = ("module", "step", "phase")
_OF_RANGES = (*_CONTEXTS, "function")
_CALLED = ("module", "step")  # groupings whose rows say how often the module was called, or how many steps there were
_OF_WORK = ("stream", "kernel")
_OF_SOURCE = {"line": "line", "source-op": "source_op"}  # grouping -> its key column
_col = pl.col
_OF_TORCH = {attribute: column for column, attribute in TORCH.items()}
_LISTS = ("sizes", "stack")  # columns whose texts are JSON
# Grouping -> its key column, and the value of this column in rows that have no module, step, .... Null counts as [].
_WITHOUT = {"module": ("module", "[]"), "step": ("step", "[]"), "shape": ("sizes", "[]"), "stack": ("stack", "[]")}
_WITHOUT |= {"function": ("function", "[]"), "line": ("line", UNKNOWN), "source-op": ("source_op", UNKNOWN)}
NO_MEMORY = (
    "No memory was recorded: torch.profiler.profile(profile_memory=True) records it, and nsys profile "
    "--cuda-memory-usage=true"
)
_SORTED_UP = ("name", "sizes", "stack", "device", "kind", *_OF_RANGES, "rank", *_OF_SOURCE.values())
# The table is sorted by the first of these columns that is not all 0.
_DEFAULT_SORT = ("self_device_ns", "device_ns", "self_cpu_ns")
_COUNTED = {
    "step": "# of Steps",
    "line": "# of Kernels",
    "source-op": "# of Kernels",
}  # the title of the column `count`, if it is not `# of Calls`
_NTH = "nth"
_FACTS = {name: pl.Boolean for name in Facts._fields if name.startswith("has_")}
_TYPES: dict[str, Any] = {name: _FACTS.get(name, pl.Int64) for name in Facts._fields}
_TYPES |= {"use_device": pl.String, "self_cpu_us": pl.Float64, "self_device_us": pl.Float64}
_RULES = dict.fromkeys(_FACTS, "any") | {"use_device": "first", "least_flops": "least"}
_RULES |= dict.fromkeys(("longest_name", "longest_shapes", "longest_stack_entry"), "most")


class _Printer(Protocol):
    """Prints the first `limit` rows (-1: all)."""

    def text(self, limit: int, layout: Layout) -> tuple[str, list[str]]: ...
    def columns(self, limit: int) -> tuple[list[TextColumn], list[str]]: ...


@dataclass(frozen=True, kw_only=True)
class Table(Answer):
    """The answer of `opspan table`: `.rows` is a frame, and print() shows the text."""

    by: str
    printer: _Printer
    notes_in_json: ClassVar[bool] = False

    def lines(self, limit: int, layout: Layout) -> tuple[list[str], list[str]]:
        text, notes = self.printer.text(limit, layout) if self.rows.height else ("", [])
        return text.splitlines(), [printable(note) for note in notes]

    def document(self, runs: Sequence[AnalysedRun], limit: int) -> dict[str, Any]:
        document = super().document(runs, limit)
        for row in document["rows"]:
            row |= {name: json.loads(row[name]) for name in _LISTS if name in row}
        return {
            "schema": SCHEMA,
            "by": self.by,
            "rows": document["rows"],
            "issues": document["issues"],
            "coverage": coverage_values(runs[0].coverage),
        }

    def __str__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return html_columns.or_why_not(self._as_html, "The table")

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Gives IPython the same text as print()."""
        printer.text(html_columns.or_why_not(self.__str__, "The table", say=str))

    def _as_html(self) -> str:
        columns, totals = self.printer.columns(html_columns.ROWS)
        more = html_columns.more(self.rows.height, "print() shows 100 of them, .rows has all")
        above = f"Table by {self.by}: {plural(self.rows.height, 'row')}"
        return html_columns.table(columns, above, (*totals, *more, *self.notes))


# Columns of ranges that neither a table nor its analysis uses.
_UNSEEN = (
    "source",
    "category",
    "color",
    "input_op_ids",
    "payload_int",
    "payload_uint",
    "payload_float",
    "payload_json",
)


def lean(trace: Tables) -> Tables:
    """Drops columns that a table does not need. They take a third of the memory of a large trace."""
    ranges = trace.ranges.drop(_UNSEEN)
    # Ids are needed only if kernels, copies, or the ops of replayed graphs refer to them.
    if not trace.work["named_range_id"].count() and timeless(ranges) is None:
        ranges = ranges.drop("id", "parent_id")
    # The analysis uses op_id only to test for null, and only in ranges whose sequence number is 0. If no such range has
    # a null op_id, one value for all ranges is enough.
    if not ranges.select((pl.col("op_id").is_null() & (pl.col("seq") == 0)).any()).item():
        ranges = ranges.with_columns(op_id=pl.lit(0, dtype=pl.Int64))
    return trace.replace(ranges=ranges)


def table_of(analysis: Analysis, options: Options, events: EventFrames | None = None) -> Table:
    """Returns the table of one trace. A caller that makes several tables passes the `events` of the trace, so that they
    are made only once."""
    options = QUESTION.checked(options)
    if forked.is_cut_off():
        return _far_table(analysis, options)
    return answer(_parts(analysis, options, events), options)


def _far_table(analysis: Analysis, options: Options) -> Table:
    """Returns a table that another process makes (forked.py). Each printed text is made by another process, too."""
    rows, notes = forked.ask(_rows_and_notes, analysis, options)
    return Table(name="table", rows=rows, fields=(), notes=notes, by=options.by, printer=_FarRows(analysis, options))


def _rows_and_notes(analysis: Analysis, options: Options) -> tuple[pl.DataFrame, tuple[str, ...]]:
    table = table_of(analysis, options)
    return table.rows, table.notes


@dataclass(frozen=True)
class _FarRows:
    analysis: Analysis
    options: Options

    def text(self, limit: int, layout: Layout) -> tuple[str, list[str]]:
        return forked.ask(_text, self, limit, layout)  # type: ignore[no-any-return]

    def columns(self, limit: int) -> tuple[list[TextColumn], list[str]]:
        return forked.ask(_columns, self, limit)  # type: ignore[no-any-return]


def _text(rows: _FarRows, limit: int, layout: Layout) -> tuple[str, list[str]]:
    return table_of(rows.analysis, rows.options).printer.text(limit, layout)


def _columns(rows: _FarRows, limit: int) -> tuple[list[TextColumn], list[str]]:
    return table_of(rows.analysis, rows.options).printer.columns(limit)


# --- parts, which add up over ranks


def parts(analysis: Analysis, options: Options) -> Parts:
    return _parts(analysis, options, None)


def _parts(analysis: Analysis, options: Options, events: EventFrames | None) -> Parts:
    _check(options)
    by = options.by
    if options.memory and analysis.tables.memory.height:
        analysis, events = analysis.with_memory(), None
    trace = _with_columns_for(analysis, options)
    known = [] if options.op is None else names_of(trace.ranges)
    names = None if options.op is None else matching(known, options.op)
    more: Parts = {}
    if by in OF_EVENTS:
        events = events or event_frames(analysis)
        rows, of_all = op_rows(analysis, events, by, names)
        part, is_empty = _of_ops(rows, by), not (rows["device"] == "cpu").any()
        if by == "name" and trace.samples.height:
            from opspan.views.sampled_columns import sampled_part  # most traces have no samples

            more["sampled"] = sampled_part(analysis, events, part.rows)
        part = replace(part, rows=part.rows.drop("is_user"))
        facts_of_all = pl.DataFrame([] if of_all is None else [of_all._asdict()], schema=_TYPES)
        more["of all"] = Part(facts_of_all, (), _RULES)
    else:
        part = _averaged(trace, options, names)
        texts = [name for name, dtype in part.rows.schema.items() if dtype == pl.Categorical]
        part = replace(part, rows=part.rows.with_columns(_col(texts).cast(pl.String)))
        is_empty = not part.rows.height
    facts = {
        "ranks": len(analysis.tables.ranks),
        "is_xpu": bool((trace.devices["kind"].cast(pl.String) == "xpu").any()),
        "has_memory": trace.memory.height > 0,
        "nothing": _nothing_text(trace, options) if is_empty else None,  # slow: counts all rows of the trace
        "without": missing.without(trace, by) if by in _WITHOUT else None,
    }
    facts_of_one = pl.DataFrame([facts], schema_overrides=dict.fromkeys(("nothing", "without"), pl.String))
    rules = {"ranks": "most", "is_xpu": "any", "has_memory": "any", "nothing": "first", "without": "first"}
    return {
        "facts": Part(facts_of_one, (), rules),
        "names": _texts(known),
        "missing": _texts(missing.lines(analysis, by)),
        "rows": part,
        **more,
    }


def _check(options: Options) -> None:
    if options.memory and (options.by in _OF_WORK or options.by in _OF_SOURCE):
        raise UsageError(
            f"--memory is about ops, and a table by {options.by} has none; expected --by name, shape, stack, module, "
            "step, phase or function"
        )


def _with_columns_for(analysis: Analysis, options: Options) -> Tables:
    """Returns the trace with the columns that the table needs."""
    trace = analysis.complete if options.by in _CONTEXTS else analysis.attributed
    if options.by == "step" and isinstance(options.step, str):
        from opspan.tables.window import numbers_of

        names = trace.ranges["name"].unique()
        is_step = numbers_of(names, options.step).is_not_null()
        trace = trace.replace(ranges=analyses.steps_named(trace.ranges, names.filter(is_step).cast(pl.String)))
    return trace


def _nothing_text(trace: Tables, options: Options) -> str:
    if options.op is not None and options.by in _OF_WORK:
        return f"Nothing to show: no kernel or copy was launched in {options.op}. {contents.holds(trace)}"
    return contents.nothing_by(trace, options.by)


def _of_ops(rows: pl.DataFrame, by: str) -> Part:
    """Returns rows that can be summed over the cycles (files) of a rank. Within a cycle, an op and a range may have the
    same name, so several rows have it. The n-th row with a name is summed with the n-th row with this name in each
    other cycle."""
    key = ("rank", "name", "device", *(name for name in ("sizes", "stack") if name in rows.columns))
    numbers = schema_of(by, has_memory=True)
    rules = {name: "first" for name in rows.columns if name not in numbers}
    return Part(rows.with_columns(pl.int_range(pl.len()).over(key).alias(_NTH)), (*key, _NTH), rules)


def _texts(texts: list[str]) -> Part:
    return Part(pl.DataFrame({"text": texts}, schema={"text": pl.String}), ("text",))


def _averaged(trace: Tables, options: Options, names: Sequence[str] | None) -> Part:
    """Returns sums that can be added up over ranks."""
    by = options.by
    if by == "kernel":
        sums = kernel_use.sums(kernel_use.launched(launched_in(trace.ranges, trace.work, names), trace.devices))
        bounds = {"least_device_ns": "least", "most_device_ns": "most"}
        return Part(sums, OF_WORK["kernel"], bounds)
    if by in _OF_SOURCE:
        sums = sums_by_line(trace, names) if by == "line" else sums_by_source_op(trace, names)
        return Part(sums, (_OF_SOURCE[by],))
    ranges = trace.ranges
    if by == "function":
        ranges = ranges.with_columns(names_of_functions(ranges, trace.functions))
    rows = analyses.averages(ranges, trace.work, by, names)
    if by in _OF_RANGES and names is None:
        rows = rows.rename({"count": "ranges"})
        if by in _CALLED:
            rows = rows.join(analyses.calls_of(trace, by), on=by, how="left", maintain_order="left")
    return Part(rows, OF_WORK["stream"] if by == "stream" else (by,))


# --- the table that is made from the parts


def answer(parts: Parts, options: Options) -> Table:
    facts = parts["facts"].rows.row(0, named=True)
    if options.op is not None:
        _check_op(parts["names"].rows["text"].to_list(), options.op)  # raises an error if no rank has the op
    table = (
        _op_table(parts, options, facts["ranks"])
        if options.by in OF_EVENTS
        else _sum_table(parts, options, facts["is_xpu"])
    )
    notes = [] if table.rows.height else [facts["nothing"]]
    if table.rows.height and _is_one_group(table):
        notes.append(facts["without"])
    if options.memory and not facts["has_memory"]:
        notes.append(NO_MEMORY)
    notes = [printable(note) for note in (*notes, *table.notes)]
    return replace(table, notes=tuple(notes), lacking=tuple(parts["missing"].rows["text"].to_list()))


def _op_table(parts: Parts, options: Options, ranks: int) -> Table:
    rows = parts["rows"].rows
    if "sampled" in parts:
        from opspan.views.sampled_columns import with_samples

        rows = with_samples(rows, parts["sampled"].rows)
    rows = rows.drop(_NTH)
    for time in ("cpu", "device"):
        rows = rows.with_columns((_col(f"{time}_ns") / _col("count")).alias(f"average_{time}_ns"))
    of_all, several = parts["of all"].rows, rows["rank"].n_unique() > 1
    facts = Facts(**of_all.row(0, named=True)) if of_all.height else None
    facts = facts and facts._replace(has_nodes=facts.has_nodes or several)
    printer = OpRows(rows, facts, options.kernels, has_ops=options.op is not None)
    column = _sort_column(printer.rows.drop(HIDDEN), options.by, options.sort_by)
    printer.order(column, descending=column not in _SORTED_UP)
    shown = printer.rows.drop(HIDDEN, *([] if several or ranks > 1 else ["rank"]))
    notes = () if printer.has_ops or not shown.height else ("There are no ops: these are kernels and copies",)
    return Table(name="table", rows=shown, fields=(), notes=notes, by=options.by, printer=printer)


def _sum_table(parts: Parts, options: Options, is_xpu: bool) -> Table:
    by, rows, key = options.by, parts["rows"].rows, parts["rows"].key or ()
    if by == "kernel":
        rows = kernel_use.figures_of(rows)
    else:
        # If rows have equal values in the column to sort by, they stay in this order.
        order = WORK_ORDER if by == "stream" else (*RANGE_ORDER[:2], "ranges" if "ranges" in rows.columns else "count")
        rows = rows.sort(*order, *key, descending=[True] * len(order) + [False] * len(key))
    rows = rows.with_columns(_col(name).fill_null(0) for name in rows.columns if name.startswith("backward_"))
    rows = rows.rename({name: f"{name}_bytes" for name in rows.columns if name.endswith("_memory")})
    if by in _OF_RANGES and options.op is None:
        # A range may be inside another range of its group, so sums of whole times would count it twice.
        rows = rows.drop("cpu_ns", "device_ns")
        if by in _CALLED:
            rows = rows.select(by, "count", pl.exclude(by, "count"))
    if by == "stream":
        rows = rows.with_columns(average_device_ns=_col("device_ns") / _col("count"))
    column = _sort_column(rows, by, options.sort_by)
    rows = rows.sort(column, descending=column not in _SORTED_UP, nulls_last=True, maintain_order=True)
    counted = "# of Calls" if options.op is not None and by not in _OF_SOURCE else _COUNTED.get(by, "# of Calls")
    printer = SumRows(rows, "XPU" if is_xpu else "CUDA", counted)
    return Table(name="table", rows=rows, fields=(), by=by, printer=printer)


def _is_one_group(table: Table) -> bool:
    """Returns True if no row has what the table is grouped by, such as a module."""
    column, none = _WITHOUT.get(table.by, ("", None))
    return bool(column) and bool((table.rows[column].fill_null("[]") == none).all())


def _sort_column(rows: pl.DataFrame, by: str, wanted: str | None) -> str:
    if wanted is None:
        with_time = (name for name in _DEFAULT_SORT if name in rows.columns and rows[name].sum())
        return next(with_time, "count" if "count" in rows.columns else "ranges")
    column = _OF_TORCH.get(sort_attribute(wanted), wanted)
    if column not in rows.columns:
        column = column.removeprefix("self_")  # rows of kernels and copies have no self times
    if column not in rows.columns:
        raise UsageError(
            f"the table by {by} has no column {wanted!r} to sort by; expected one of {listed(rows.columns)} "
            "(or torch's name of one, such as self_cpu_time_total)"
        )
    return column


def _check_op(known: Sequence[str], op: str) -> None:
    if not matching(known, op):
        advice = "`opspan table FILE --limit -1` lists all names"
        if like := _like(op, known):
            advice = f"did you mean {' or '.join(printable(name) for name in like)}?"
        raise UsageError(f"no op or range is called {op!r} (* stands for any text): {advice}")


def _like(op: str, known: Sequence[str]) -> list[str]:
    """Returns similar names, compared with and without the part before `::`."""
    short = {name.rpartition("::")[2]: name for name in reversed(known)}
    import difflib  # slow to import, and only needed after a mistake

    close = difflib.get_close_matches(op, [*known, *short], 3, 0.6)
    return list(dict.fromkeys(short.get(name, name) for name in close))


QUESTION = Question("table", parts, lambda parts, options: answer(parts, options).rows, answer, answer_of_one=table_of)
