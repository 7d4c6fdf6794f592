"""Finds, for each kernel and range that torch.compile made, what the compiler logged about it: lines, ops and modules.

    matched(trace) -> Matches:
        of_work, of_ranges (Int64): for each row of work and of ranges, a row of `calls`; null if the compiler logged
            nothing about it; AMBIGUOUS if several rows fit and say different things.
        calls: a row for each call of a kernel in a compiled graph. After these, the same rows again, with the module
            null. The columns are:
            kernel: its name.
            lines, source_ops, stacks (lists of text, sorted, each text once). A stack is a line of the program, and
                below it the functions around this line, the outermost first.
            module: the innermost module that all nodes of the call are in; null if it is unknown.
        inside (UInt32): for each row of ranges, the row of the range of compiled code that it runs in.

A kernel is looked up by its name, among the compiled graphs of its rank. Several graphs may have a kernel of this name,
and a graph may launch it several times. In this case these things decide, in this order:

    ## Call CompiledFxGraph KEY ##      the graph's key in torch's cache, unless it is None
    Torch-Compiled Region: 0/1          the compilation
    a backward range                    whether the graph is for the backward
    graph_0_ before a C++ kernel        the number of the graph
    all kernels in the range ## Call    the graph has all of them
    the order of equal kernels          if the graph launches as many of them as the range ## Call has

Kernels of libraries, such as cuBLAS, have names that the compiler does not know. They belong to the range of an op
right inside the call of the graph. For example, extern_kernels.mm is the compiler's name for the op aten::mm. Row
numbers are those of the trace, which must have gone through `attribute`. The matches of a trace are computed once.
`share` says that two traces have the same matches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import polars as pl

from opspan.analysis.nest import nearest
from opspan.fused_names import extern_op, fused_ops, without_graph

if TYPE_CHECKING:
    from opspan.tables import Tables

T = TypeVar("T", bound="Tables")
AMBIGUOUS = -1
_CALL = r"^## Call CompiledFxGraph (\w+) ##$"
_REGION = r"^Torch-Compiled Region: (\S+)"
_col = pl.col
_NO_KEY = "None"


class Matches(NamedTuple):
    of_work: pl.Series
    of_ranges: pl.Series
    calls: pl.DataFrame
    inside: pl.Series


class Around(NamedTuple):
    """Facts about the kernels that were launched in one call of a graph. They decide which graph was called."""

    rank: int
    key: str | None  # None: the kernels are not in the call of a graph
    compile_id: str | None
    is_backward: bool
    number: int | None  # the number that identifies the graph: 0 for graph_0_
    kernels: tuple[tuple[str, int], ...]  # each kernel, and how often it occurs


def has_compiled_code(ranges: pl.DataFrame) -> bool:
    """Returns whether any of the ranges is compiled code."""
    names = ranges["name"].unique().cast(pl.String)
    return bool(names.str.contains(f"{_CALL}|{_REGION}").any())


# For each trace, a list that is empty until the trace's matches are computed. Traces may share a list.
_known: WeakKeyDictionary[Tables, list[Matches]] = WeakKeyDictionary()


def share(trace: Tables, other: T) -> T:
    """Lets two traces have the same matches, and returns the other one. They may differ only in columns that `matched`
    does not use, such as modules and steps."""
    _known[other] = _known.setdefault(trace, [])
    return other


def matched(trace: Tables) -> Matches:
    known = _known.setdefault(trace, [])
    if not known:
        known.append(_matched(trace))
    return known[0]


def _matched(trace: Tables) -> Matches:
    ranges = trace.ranges
    calls = _calls(trace.provenance)
    index = _Index(calls)
    names = _names(ranges, index)
    inside = nearest(ranges, names["is_call"])
    kernels = _kernels_of_ranges(ranges, names, inside, index)
    of_items = _match(ranges, names, inside, kernels, index)
    item = nearest(ranges, kernels.is_not_null())
    of_ranges = of_items.gather(item)
    of_work = _of_work(trace, names, inside, kernels, of_items, item, index)
    shown = calls.select("kernel", "lines", "source_ops", "stacks", "module")
    shown = pl.concat([shown, shown.with_columns(module=pl.lit(None, dtype=pl.String))])
    return Matches(of_work, of_ranges, shown, nearest(ranges, names["is_call"] | names["is_region"]))


def _names(ranges: pl.DataFrame, index: _Index) -> pl.DataFrame:
    """Returns, for each range, the parts of its name: key, compilation, kernel, the graph's number. Each distinct name
    is parsed once."""
    known = ranges["name"].unique().drop_nulls()
    rows = known.to_frame().with_columns(text=_col("name").cast(pl.String))
    texts = rows["text"].to_list()
    fused = [(*without_graph(text), text) if index.is_compiled(text) else (None, None, text) for text in texts]
    rows = rows.with_columns(
        key=_col("text").str.extract(_CALL),
        compile_id=_col("text").str.extract(_REGION),
        kernel=pl.Series([kernel for kernel, _, _ in fused], dtype=pl.String),
        number=pl.Series([number for _, number, _ in fused], dtype=pl.Int64),
    )
    found = ranges.select("name").join(rows, on="name", how="left", maintain_order="left")
    return found.with_columns(is_call=_col("key").is_not_null(), is_region=_col("compile_id").is_not_null())


def _calls(provenance: pl.DataFrame) -> pl.DataFrame:
    """Returns a row for each call of a kernel, with what the compiler logged about it."""
    place = line_text(_col("file"), _col("line"), _col("function"))
    texts = ("kernel", "compile_id", "aot_id", "cache_key", "phase", "source_ops", "module_path")
    rows = provenance.with_columns(_col(texts).cast(pl.String), _col("stack").cast(pl.String), place=place)
    key = ("rank", "graph", "kernel", "call_number")
    # For some nodes, only the line is known. If another node of the same line has a stack, only that stack is taken.
    alone = pl.format("{}({}): {}", "file", "line", _col("function").cast(pl.String).fill_null("?"))
    is_alone = _col("stack").is_null()
    rows = rows.with_columns(
        text=pl.concat_str("place", pl.coalesce("stack", alone), separator="\n"),
        is_chosen=~is_alone | is_alone.all().over(*key, "place"),
    )
    return (
        rows.group_by(key, maintain_order=True)
        .agg(
            _col("compile_id", "aot_id", "cache_key", "phase").first(),
            lines=_col("place").drop_nulls().unique().sort(),
            stacks=_col("text").filter("is_chosen").drop_nulls().unique().sort(),
            source_ops=_col("source_ops").first().str.split("; "),
            modules=_col("module_path").filter(_col("node").is_not_null()).unique(maintain_order=True),
        )
        .with_columns(module=_col("modules").map_elements(_common_module, return_dtype=pl.String))
    )


def _common_module(paths: pl.Series) -> str | None:
    """Returns the innermost module that all these modules are in. Returns None if one of the modules is null, or if
    there is no module that all are in."""
    names = paths.to_list()
    if not names or None in names:
        return None
    parts = zip(*(name.split(".") for name in names), strict=False)
    return ".".join(some[0] for some in takewhile(lambda some: len(set(some)) == 1, parts)) or None


def compiled_modules(trace: Tables) -> pl.Series:
    """Returns, for each range of compiled code, the module of its kernel; null for other ranges."""
    matches = matched(trace)
    call = matches.of_ranges
    return matches.calls["module"].cast(pl.Categorical).gather(call.set((call == AMBIGUOUS).fill_null(False), None))


def line_text(file: pl.Expr, line: pl.Expr, function: pl.Expr) -> pl.Expr:
    """Returns a line of the program as text, such as: model.py:12 forward."""
    name = file.cast(pl.String).str.extract(r"([^/\\]*)$")
    return pl.format("{}:{} {}", name, line, function.cast(pl.String).fill_null("")).str.strip_chars_end()


class _Index:
    """The calls of kernels that the compiler logged, in dictionaries for looking them up."""

    def __init__(self, calls: pl.DataFrame) -> None:
        self.rows = calls.with_row_index("call").to_dicts()
        self.of_graph: dict[tuple[int, int], dict[str, list[int]]] = {}
        self.graphs: dict[int, list[int]] = {}  # the graphs of each rank
        self.named: dict[tuple[int, str], list[int]] = {}  # the graphs that have a kernel, by rank and kernel
        self.first: dict[tuple[int, int], int] = {}  # the first call of each graph, by rank and graph
        # The lines, ops and module of each call. After these, the same for each call, with the module None.
        self.says: list[tuple[tuple[str, ...], tuple[str, ...], str | None]] = []
        for row in self.rows:
            graph = (row["rank"], row["graph"])
            if graph not in self.first:
                self.first[graph] = row["call"]
                self.graphs.setdefault(row["rank"], []).append(row["graph"])
            for name in _looked_up_by(row["kernel"]):
                own = self.of_graph.setdefault(graph, {}).setdefault(name, [])
                if not own:
                    self.named.setdefault((row["rank"], name), []).append(row["graph"])
                own.append(row["call"])
            self.says.append((tuple(row["lines"]), tuple(row["source_ops"] or ()), row["module"]))
        for kernels in self.of_graph.values():
            for own in kernels.values():
                own.sort(key=lambda call: (self.rows[call]["call_number"] or 0, call))
        self.says += [(*says[:2], None) for says in self.says]
        known = {name for graph in self.of_graph.values() for name in graph}
        self.externs = {name for name in known if "::" in name}
        self.kernels = known - self.externs

    def is_compiled(self, name: str) -> bool:
        """Returns whether the compiler made a kernel of this name, as the name itself or the compiler's log shows."""
        return fused_ops(name) is not None or name in self.kernels

    def resolve(self, around: Around) -> dict[str, list[int | None]]:
        """Returns, for each kernel in `around`, a list of calls in order: one for each time that the kernel occurs."""
        return {kernel: self._of_kernel(around, kernel, count) for kernel, count in around.kernels}

    def _of_kernel(self, around: Around, kernel: str, count: int) -> list[int | None]:
        graphs = self.named.get((around.rank, kernel), [])
        graphs = [graph for graph in self._fitting(around) if graph in graphs]
        choices = [self._in_graph(around, graph, kernel, count) for graph in graphs]
        return [self._agreed(choice[time] for choice in choices) for time in range(count)]

    def _in_graph(self, around: Around, graph: int, kernel: str, count: int) -> list[int]:
        calls = self.of_graph[around.rank, graph][kernel]
        if around.key is not None and len(calls) == count:
            return calls
        one = self._agreed(calls)
        return [AMBIGUOUS if one is None else one] * count

    def _agreed(self, calls: Iterable[int]) -> int | None:
        """Returns the first of the calls if all have the same lines, ops and module. If only their modules differ,
        returns the row that says the same without a module. If their lines or ops differ, returns AMBIGUOUS. Without
        calls, returns None."""
        some = list(calls)
        if not some:
            return None
        first = self.says[some[0]]
        if AMBIGUOUS in some or any(self.says[call][:2] != first[:2] for call in some):
            return AMBIGUOUS
        return some[0] if all(self.says[call] == first for call in some) else some[0] % len(self.rows) + len(self.rows)

    def _fitting(self, around: Around) -> Sequence[int]:
        """Returns the graphs that may have launched the kernels."""
        graphs = self.graphs.get(around.rank, [])
        if around.key is None:
            return graphs
        facts = {graph: self.rows[self.first[around.rank, graph]] for graph in graphs}
        if around.key != _NO_KEY:
            graphs = _where(graphs, facts, "cache_key", around.key)
        if around.compile_id is not None:
            graphs = _where(graphs, facts, "compile_id", around.compile_id)
        graphs = [graph for graph in graphs if _may_run(facts[graph]["phase"], around.is_backward)]
        if around.number is not None:
            graphs = [graph for graph in graphs if _has_number(facts[graph]["aot_id"], around.number)]
        needed = {kernel for kernel, _ in around.kernels if "::" not in kernel}
        return [graph for graph in graphs if needed <= self.of_graph[around.rank, graph].keys()]


def _may_run(phase: object, is_backward: bool) -> bool:
    return phase not in ("forward", "backward") or (phase == "backward") == is_backward


def _where(graphs: Sequence[int], facts: Mapping[int, Mapping[str, object]], column: str, value: str) -> list[int]:
    """Returns the graphs that have the value in the column. If there are none, returns the graphs without a known
    value."""
    fitting = [graph for graph in graphs if facts[graph][column] == value]
    return fitting or [graph for graph in graphs if facts[graph][column] is None]


def _has_number(aot_id: object, number: int) -> bool:
    return not isinstance(aot_id, str) or aot_id.partition("_")[0] == str(number)


def _looked_up_by(kernel: str) -> tuple[str, ...]:
    op = extern_op(kernel)
    return (kernel,) if op is None else (op,)


def _kernels_of_ranges(ranges: pl.DataFrame, names: pl.DataFrame, inside: pl.Series, index: _Index) -> pl.Series:
    """Returns, for each range that is a call of a kernel, the name of the kernel; null for other ranges. A range of an
    op is the call of a library's kernel if it is right inside the call of a graph."""
    is_extern = (
        ranges["name"].cast(pl.String).is_in(list(index.externs)).fill_null(value=False)
        & inside.is_not_null()
        & (ranges["parent"] == inside).fill_null(value=False)
    )
    return names["kernel"].zip_with(~is_extern, ranges["name"].cast(pl.String)).alias("kernel")


def _match(
    ranges: pl.DataFrame, names: pl.DataFrame, inside: pl.Series, kernels: pl.Series, index: _Index
) -> pl.Series:
    """Returns, for each range that is a call of a kernel, the row of `calls`; null for other ranges."""
    items = pl.DataFrame({"kernel": kernels, "in": inside, "number": names["number"]}).with_columns(
        ranges["rank"], ranges["start_ns"], row=pl.int_range(pl.len(), dtype=pl.Int64)
    )
    found = _resolved(items.filter(_col("kernel").is_not_null()), ranges, names, index)
    empty = pl.Series([None], dtype=pl.Int64).new_from_index(0, ranges.height)
    return empty.scatter(found["row"], found["call"])


def _of_work(
    trace: Tables,
    names: pl.DataFrame,
    inside: pl.Series,
    kernels: pl.Series,
    of_items: pl.Series,
    item: pl.Series,
    index: _Index,
) -> pl.Series:
    work, ranges = trace.work, trace.ranges
    own = item.gather(work["range"])
    name = work["name"].cast(pl.String)
    is_kernel = (work["kind"] == "kernel").fill_null(value=False)
    is_fused = _is_fused(work["name"], index) & is_kernel
    of_range = kernels.gather(own)
    # A library's kernel is found by the range that launched it, because the compiler does not know the kernel's name. A
    # compiled kernel is found by its own name, unless it belongs to a range that is a call of this kernel.
    by_range = is_kernel & of_range.is_not_null() & (~is_fused | (of_range == name).fill_null(value=False))
    found = of_items.gather(own).zip_with(by_range, pl.Series([None], dtype=pl.Int64))
    items = pl.DataFrame({"kernel": name, "in": inside.gather(work["range"])}).with_columns(
        work["rank"], work["start_ns"], number=pl.lit(None, dtype=pl.Int64), row=pl.int_range(pl.len(), dtype=pl.Int64)
    )
    by_name = _resolved(items.filter(is_fused & ~by_range), ranges, names, index)
    return found.scatter(by_name["row"], by_name["call"]).alias("call")


def _is_fused(names: pl.Series, index: _Index) -> pl.Series:
    known = names.unique().drop_nulls()
    fused = known.filter(pl.Series([index.is_compiled(name) for name in known.cast(pl.String)], dtype=pl.Boolean))
    return names.is_in(fused.implode()).fill_null(value=False)


def _resolved(items: pl.DataFrame, ranges: pl.DataFrame, names: pl.DataFrame, index: _Index) -> pl.DataFrame:
    """Looks up items, which are ranges or kernels. `row` is the item's own row. `in` is the row of the range around it
    that is the call of a compiled graph, or null. Returns `row` and `call` (its row in `calls`, or AMBIGUOUS) of each
    item that was found."""
    if items.is_empty() or not index.rows:
        return pl.DataFrame(schema={"row": pl.Int64, "call": pl.Int64})
    is_alone = _col("in").is_null()
    alone, rest = items.filter(is_alone), items.filter(~is_alone)
    found = [_resolved_alone(alone, index), _resolved_in_calls(rest, ranges, names, index)]
    return pl.concat([rows.select("row", _col("call").cast(pl.Int64)) for rows in found]).drop_nulls()


def _resolved_alone(items: pl.DataFrame, index: _Index) -> pl.DataFrame:
    kinds = items.select("rank", "kernel").unique(maintain_order=True)
    calls = [
        index.resolve(Around(rank, None, None, False, None, ((kernel, 1),)))[kernel][0]
        for rank, kernel in kinds.iter_rows()
    ]
    kinds = kinds.with_columns(call=pl.Series(calls, dtype=pl.Int64))
    return items.join(kinds, on=["rank", "kernel"], how="left", nulls_equal=True)


def _resolved_in_calls(items: pl.DataFrame, ranges: pl.DataFrame, names: pl.DataFrame, index: _Index) -> pl.DataFrame:
    """Looks up all kernels of one call of a graph together. Calls of graphs with equal kernels and equal ranges around
    them are looked up once."""
    items = items.sort("start_ns", maintain_order=True).with_columns(time=pl.int_range(pl.len()).over("in", "kernel"))
    calls = items.group_by("in", maintain_order=True).agg(
        _col("rank").first(), _col("number").drop_nulls().first(), _col("kernel").sort()
    )
    region = nearest(ranges, names["is_region"])
    backward = nearest(ranges, ranges["kind"].is_in(["backward", "engine"]).fill_null(value=False)).is_not_null()
    calls = calls.with_columns(
        names["key"].gather(calls["in"]),
        names["compile_id"].gather(region.gather(calls["in"])),
        backward.gather(calls["in"]).alias("is_backward"),
        _col("kernel").list.join("\n"),
    )
    alike = ["rank", "key", "compile_id", "is_backward", "number", "kernel"]
    kinds = calls.select(alike).unique(maintain_order=True).with_row_index("kind")
    found: list[tuple[int, str, int, int | None]] = []
    for kind, rank, key, compile_id, is_backward, number, text in kinds.iter_rows():
        counts = Counter(text.split("\n"))
        around = Around(rank, key, compile_id, is_backward, number, tuple(counts.items()))
        for kernel, of_times in index.resolve(around).items():
            found += [(kind, kernel, time, call) for time, call in enumerate(of_times)]
    dtypes: dict[str, Any] = {"kind": kinds.schema["kind"], "kernel": pl.String, "time": pl.Int64, "call": pl.Int64}
    answers = pl.DataFrame(found, schema=dtypes, orient="row")
    of_call = calls.join(kinds, on=alike, how="left", nulls_equal=True).select("in", "kind")
    rows = items.select("row", "in", "kernel", "time").join(of_call, on="in", how="left")
    return rows.join(answers, on=["kind", "kernel", "time"], how="left")
