"""Sentences on what the trace lacks (labels, sizes, steps, ...), each with a command or Python code that records it.

If possible, this is a command of the tool that wrote the trace. The sentences of `lines` and `labels_line` are printed
to standard error.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis import Analysis, Coverage
from opspan.analysis.averages import on_device
from opspan.printable import plural
from opspan.sources import MODULES, SHAPES, Source, source_of
from opspan.tables import Tables

_ANY = Source("", "")  # used if the source of the trace is unknown
FUNCTIONS = "torch.profiler.profile(with_stack=True) records Python's functions, and export_chrome_trace() writes them"
_MEMORY = {
    "nsys": "nsys profile --cuda-memory-usage=true -t cuda,nvtx -o report opspan exec train.py",
    "kineto": "torch.profiler.profile(profile_memory=True)",
}
_OF_DEVICES = ("nsys", "nvprof", "rocpd", "unitrace", "kineto")
# Kinds of ranges that torch itself makes.
_OPS = ("op", "backward", "engine")
# Matches the names that PyProf and DLProf give to torch's ops.
_OP_NAMES = r"^(aten|torch|prim)(::|\.)|^Tensor\."
_BACKWARD = ("backward", "engine")
_BY_TASK = "vtune -report hotspots -group-by task -format csv -r RESULT -report-output tasks.csv"


def labelling_command(trace: Tables, options: str = "") -> str:
    """Returns the command (or Python code) that records the program with labels: with the tool that wrote this trace
    or, if opspan knows no command for that tool, with opspan."""
    return (source_of(trace.ranks[0].source if trace.ranks else "") or _ANY).labelling(options)


def labelling(trace: Tables, options: str = "") -> str:
    """Returns `labelling_command` in backticks, for a sentence."""
    return f"`{labelling_command(trace, options)}`"


def memory_command(trace: Tables) -> str:
    """Returns the command (or Python code) that records memory, with the tool that wrote this trace or with opspan."""
    return _MEMORY.get(trace.ranks[0].source if trace.ranks else "", "opspan.record(memory=True)")


def device_command(trace: Tables) -> str:
    """Returns the command (or Python code) that records what devices do: with the tool that wrote this trace, if that
    tool can record devices, and with opspan otherwise."""
    source = trace.ranks[0].source if trace.ranks else ""
    return labelling_command(trace) if source in _OF_DEVICES else "opspan.record(device=True)"


def without(trace: Tables, by: str) -> str:
    """Returns the message for a table in which no row has what `by` names: a module, step, shape, stack, function, line
    or source op."""
    if by == "stack":
        return f"No op has a stack: {FUNCTIONS}"
    if by == "function":
        sampled = "; `opspan functions` has the functions that processors were sampled in"
        return f"No op has a function: {FUNCTIONS}{sampled if trace.samples.height else ''}"
    if by == "module":
        return f"No range is in a module: capture modules with {labelling(trace, MODULES)}, or modules=True"
    if by == "step":
        return (
            "No range is in a step: a step is a range called ProfilerStep#N, as made by step() of a session or of "
            'torch.profiler, or by `with opspan.annotate(f"ProfilerStep#{number}")`. If yours have other names, give '
            "one: --step 'train step*'"
        )
    if by == "line":
        compiled = "; for compiled code, see `opspan table --help`, --compiled" if trace.provenance.is_empty() else ""
        return f"No op has a line of the program: {FUNCTIONS}{compiled}"
    if by == "source-op":
        return f"No range is an op, and no kernel was compiled by torch: label ops with {labelling(trace)}"
    return f"No op has shapes: capture shapes with {labelling(trace, SHAPES)}, or record_shapes=True"


def lines(analysis: Analysis, by: str) -> list[str]:
    """Returns sentences on what the trace lacks for a table that is grouped by `by`."""
    trace = analysis.attributed
    kinds = _kinds(trace)
    return _sentences(
        _labels(trace, kinds),
        None if kinds.isdisjoint(_OPS) else _backward(trace, kinds, by),
        _attribution(analysis.coverage, trace) if _count(trace) else None,
        _metrics(trace),
    )


def labels_line(trace: Tables) -> list[str]:
    """Returns the sentence on missing labels, which needs no analysis."""
    return _sentences(_labels(trace, _kinds(trace)))


def _sentences(*lines: str | None) -> list[str]:
    return [f"Missing: {line}" for line in lines if line]


# There may be tens of millions of ranges. So columns are read one by one, and only their few distinct values are
# converted to texts.


def _of_ranges(trace: Tables, column: str) -> pl.Series:
    """Returns a column of the ranges, without the rows that are marks."""
    is_mark = trace.ranges["is_mark"]
    values = trace.ranges[column]
    return values.filter(~is_mark.fill_null(value=False)) if is_mark.any() else values


def _count(trace: Tables) -> int:
    return trace.ranges.height - int(trace.ranges["is_mark"].sum())


def _texts(values: pl.Series) -> pl.Series:
    return values.unique().cast(pl.String)


def _kinds(trace: Tables) -> set[str]:
    return set(_texts(_of_ranges(trace, "kind")).drop_nulls())


def _labels(trace: Tables, kinds: set[str]) -> str | None:
    # The issue `no_tasks` already says that labels are missing.
    if not kinds.isdisjoint(_OPS) or "no_tasks" in trace.issues["code"]:
        return None
    names = pl.concat([_texts(_of_ranges(trace, column)) for column in ("name", "text")])
    if names.str.contains(_OP_NAMES).any():
        return None
    count = _count(trace)
    if not count:
        return f"the trace has no labels, so nothing can be attributed to an op; to label ops: {labelling(trace)}"
    if not on_device(trace.work).height and not trace.samples.height:
        return None  # probably a program that has labels and does not use torch
    return (
        f"none of the {plural(count, 'range')} is an op of torch, so nothing can be attributed to an op; to label ops: "
        f"{labelling(trace)}"
    )


def _backward(trace: Tables, kinds: set[str], by: str) -> str | None:
    if not kinds.isdisjoint(_BACKWARD):
        return None
    # If gradients are switched off, torch's ops have no sequence numbers, and no backward is missing.
    is_op = _of_ranges(trace, "kind") == "op"
    if by != "phase" and not (is_op & _of_ranges(trace, "seq").is_not_null()).any():
        return None
    from opspan.analysis.engine_labels import engine_labels  # imported late, because few traces need it

    if engine_labels(_of_ranges(trace, "name")).height:
        return None  # a serving engine never trains
    return (
        "there is no backward pass in the trace: the program has none, or loss.backward() ran outside of the part that "
        "was labelled; label the whole program (`opspan exec train.py`), or put forward and backward into the session"
    )


def _attribution(coverage: Coverage, trace: Tables) -> str | None:
    work = coverage.work_in_range
    if not work.of or work.count or coverage.work_in_whole_graphs.count or coverage.work_in_unknown_replays.count:
        return None
    if not coverage.work_with_call.count:
        return (
            f"the trace has no launch call of any of the {work.of:,} kernels and copies, so none can be attributed to "
            f"an op; trace the calls as well: {labelling(trace)}"
        )
    return (
        f"none of the {work.of:,} kernels and copies was launched within a range: the process or thread that launched "
        f"them was not labelled, or not at that time; label what launches them: {labelling(trace)}"
    )


def _metrics(trace: Tables) -> str | None:
    unmatched = trace.issues.filter(code="unmatched_metrics")["count"].sum()
    if not unmatched:
        return None
    columns = (_of_ranges(trace, "name"), trace.work["name"], trace.work["full_name"])
    if _texts(trace.metrics["name"]).is_in(pl.concat(map(_texts, columns)).implode()).any():
        return None
    return (
        f"0 of {unmatched:,} names of the report are names of the trace, so its columns would be empty; take a report "
        f"of the same run, by task: `{_BY_TASK}`"
    )
