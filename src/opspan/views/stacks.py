"""Stacks for flame graphs (flamegraph.pl, speedscope, inferno), one per line, with nanoseconds of CPU time.

    process 100;thread 100 main;train.py(3): <module>;step;aten::linear;aten::addmm 12345

A stack consists of Python functions, if the tool traced them, and of nested ranges on a thread, the outermost first.
The number is the time of the last frame without the frames inside it. It is a sum over all rows with the same stack.
Async ranges do not nest and are left out. A range that is a kernel of compiled code is below the source lines that it
was made from. Its time is divided among these lines (line_stacks.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from opspan.analysis import Analysis
from opspan.analysis.line_stacks import LineStacks
from opspan.analysis.stacks import DEEPEST, collapse, safe, with_functions
from opspan.tables import Tables
from opspan.views.contents import holds, parts
from opspan.views.missing import FUNCTIONS
from opspan.views.names import frame_name, process_names, thread_names

_col = pl.col
_BATCH = 50_000
_THREAD = ["rank", "pid", "tid"]
_USED = (*_THREAD, "name", "parent", "depth", "is_mark", "is_async", "weight")
_TIMES = ("weight", "host_ns", "device_ns")
NO_FUNCTIONS = f"No Python functions are in the stacks: {FUNCTIONS}"


def write(analysis: Analysis, path: Path) -> list[str]:
    trace = analysis.attributed
    rows = tree(trace).with_columns(weight=_col("self_ns").fill_null(0))
    notes = write_stacks(trace, rows, path)
    return notes if rows["weight"].sum() else [no_time(trace)]


def no_time(trace: Tables) -> str:
    """Returns the message for an output whose stacks have no time."""
    other = "; a .device.stacks has its kernels" if "work" in parts(trace) else ""
    way = other or ("; a .sqlite or .parquet has all of that" if parts(trace) else "")
    labels = "`opspan run --emit nvtx -o capture -- python train.py` captures the ops of a program"
    return f"No range has CPU time: the file is empty. {holds(trace)}{way}. {labels}"


def tree(trace: Tables) -> pl.DataFrame:
    """Returns the functions and the ranges as rows of one tree, the functions first."""
    return with_functions(trace) if trace.functions.height else trace.ranges


def has_functions(trace: Tables) -> bool:
    """Returns whether stacks may have functions: traced ones, or those around the lines of compiled kernels."""
    return trace.functions.height > 0 or not trace.provenance.is_empty()


@dataclass(frozen=True)
class StackRows:
    """The rows of a tree in the form that analysis/stacks.py needs, and the process and thread of each root."""

    rows: pl.DataFrame
    roots: pl.DataFrame  # columns: root, rank, pid, tid, process, thread
    left_out: list[str]  # sentences on what was left out


def stack_rows(trace: Tables, rows: pl.DataFrame) -> StackRows:
    """Returns the rows of the tree `rows`. The kernels of compiled code are below their source lines."""
    in_tree, lines = with_calls(trace, rows)
    if lines is None:
        return in_tree
    below = lines.below(in_tree.rows, [name for name in _TIMES if name in in_tree.rows.columns])
    return replace(in_tree, rows=below)


def with_calls(trace: Tables, rows: pl.DataFrame) -> tuple[StackRows, LineStacks | None]:
    """Returns the rows of the tree `rows` before kernels of compiled code are put below their source lines. If the
    trace knows such lines, returns them, too, and the rows have the column `call` that `LineStacks.below` needs."""
    lines = None if trace.provenance.is_empty() else LineStacks(trace)
    if lines is not None:
        rows = rows.with_columns(lines.calls(rows))
    rows = rows.with_row_index("row").filter(~_col("is_mark").fill_null(value=False))
    in_tree = rows.filter(~_col("is_async").fill_null(value=False))
    shown = in_tree.filter(_col("depth") < DEEPEST)
    roots = shown.select(_THREAD).unique().sort(_THREAD).with_row_index("root")
    roots = roots.with_columns(process=process_names(trace, roots), thread=thread_names(trace, roots))
    number = roots.select("root", *_THREAD)
    with_roots = shown.join(number, on=_THREAD, how="left", nulls_equal=True, maintain_order="left")
    notes = []
    async_rows = rows.filter(_col("is_async").fill_null(value=False))["row"]
    if functions := int((async_rows < trace.functions.height).sum()):
        notes.append(f"{functions:,} Python functions end after a range that they began in, and were left out")
    if async_rows.len() > functions:
        notes.append(f"{async_rows.len() - functions:,} async ranges are in no stack and were left out")
    if deep := in_tree.height - shown.height:
        notes.append(f"{deep:,} ranges are inside {DEEPEST} others or more and were left out")
    return StackRows(with_roots.with_columns(frame=frame_name()), roots, notes), lines


def write_stacks(trace: Tables, rows: pl.DataFrame, path: Path) -> list[str]:
    """Writes the stacks of the tree `rows`, which has a column `weight`. Returns sentences on what is left out."""
    in_tree = stack_rows(trace, rows.select(*_USED, *(["work"] if "work" in rows.columns else [])))
    write_lines(in_tree.rows, in_tree.roots, path)
    if not has_functions(trace) and trace.ranges.height and in_tree.rows["weight"].sum():
        return [*in_tree.left_out, NO_FUNCTIONS]
    return in_tree.left_out


def write_lines(rows: pl.DataFrame, roots: pl.DataFrame, path: Path) -> None:
    around = roots.select("root", text=pl.concat_str(safe(_col("process")), pl.lit(";"), safe(_col("thread"))))
    with path.open("w", encoding="utf-8") as file:
        for lines in collapse(rows, around):
            for start in range(0, lines.len(), _BATCH):
                file.write("\n".join(lines.slice(start, _BATCH).to_list()) + "\n")
