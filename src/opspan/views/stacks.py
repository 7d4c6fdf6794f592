"""Stacks, one per line, for flame graphs (flamegraph.pl, speedscope, inferno), with nanoseconds of CPU time.

    process 100;thread 100 main;train.py(3): <module>;step;aten::linear;aten::addmm 12345

A stack consists of Python functions, if the tool traced them, and of nested ranges on a thread, the outermost first.
The number is the time spent in the last of them itself, not in one inside it, summed over all with the same stack.
Async ranges stand outside the tree and are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from opspan.analysis import Analysis
from opspan.analysis.stacks import DEEPEST, collapse, safe, with_functions
from opspan.tables import Tables
from opspan.views.contents import holds, parts
from opspan.views.missing import FUNCTIONS
from opspan.views.names import frame_name, process_names, thread_names

_col = pl.col
_BATCH = 50_000
_THREAD = ["rank", "pid", "tid"]
_USED = (*_THREAD, "name", "parent", "depth", "is_mark", "is_async", "weight")
NO_FUNCTIONS = f"No Python functions are in the stacks: {FUNCTIONS}"


def write(analysis: Analysis, path: Path) -> list[str]:
    trace = analysis.attributed
    rows = tree(trace)
    rows = rows.with_columns(weight=_col("self_ns").fill_null(0))
    said = write_stacks(trace, rows, path)
    return said if rows["weight"].sum() else [no_time(trace)]


def no_time(trace: Tables) -> str:
    """The message for a file without a stack."""
    other = "; a .device.stacks has its kernels" if "work" in parts(trace) else ""
    way = other or ("; a .sqlite or .parquet has all of that" if parts(trace) else "")
    labels = "`opspan run --emit nvtx -o capture -- python train.py` captures the ops of a program"
    return f"No range has CPU time: the file is empty. {holds(trace)}{way}. {labels}"


def tree(trace: Tables) -> pl.DataFrame:
    """The functions, then the ranges, in one tree."""
    return with_functions(trace) if trace.functions.height else trace.ranges


@dataclass(frozen=True)
class Placed:
    """Rows of a tree as analysis/stacks.py takes them, and what their stacks stand in."""

    rows: pl.DataFrame
    roots: pl.DataFrame  # root, rank, pid, tid, process, thread
    left_out: list[str]  # sentences


def placed(trace: Tables, rows: pl.DataFrame) -> Placed:
    rows = rows.with_row_index("row").filter(~_col("is_mark").fill_null(value=False))
    in_tree = rows.filter(~_col("is_async").fill_null(value=False))
    shown = in_tree.filter(_col("depth") < DEEPEST)
    roots = shown.select(_THREAD).unique().sort(_THREAD).with_row_index("root")
    roots = roots.with_columns(process=process_names(trace, roots), thread=thread_names(trace, roots))
    found = shown.join(roots.select("root", *_THREAD), on=_THREAD, how="left", nulls_equal=True, maintain_order="left")
    found = found.with_columns(frame=frame_name())
    functions = trace.functions.height
    said = []
    apart = rows.filter(_col("is_async").fill_null(value=False))["row"]
    if parted := int((apart < functions).sum()):
        said.append(f"{parted:,} Python functions end after a range that they began in, and were left out")
    if apart.len() > parted:
        said.append(f"{apart.len() - parted:,} async ranges are in no stack and were left out")
    if deep := in_tree.height - shown.height:
        said.append(f"{deep:,} ranges are inside {DEEPEST} others or more and were left out")
    return Placed(found, roots, said)


def write_stacks(trace: Tables, rows: pl.DataFrame, path: Path) -> list[str]:
    """`rows`: a tree, with weights. Returns sentences on what is left out."""
    found = placed(trace, rows.select(_USED))
    roots = found.roots.select("root", text=pl.concat_str(safe(_col("process")), pl.lit(";"), safe(_col("thread"))))
    with path.open("w", encoding="utf-8") as file:
        for lines in collapse(found.rows, roots):
            for batch in _batches(lines):
                file.write("\n".join(batch) + "\n")
    if not trace.functions.height and trace.ranges.height and found.rows["weight"].sum():
        return [*found.left_out, NO_FUNCTIONS]
    return found.left_out


def _batches(lines: pl.Series) -> Iterator[list[str]]:
    for start in range(0, lines.len(), _BATCH):
        yield lines.slice(start, _BATCH).to_list()
