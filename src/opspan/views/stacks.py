"""Stacks, one per line, for flame graphs (flamegraph.pl, speedscope, inferno), with nanoseconds of CPU time.

    process 100;thread 100 main;train.py(3): <module>;step;aten::linear;aten::addmm 12345

A stack consists of Python functions, if the tool traced them, and of nested ranges on a thread, the outermost first.
The number is the time spent in the last of them itself, not in one inside it, summed over all with the same stack.
Async ranges stand outside the tree and are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from opspan.analysis import Analysed
from opspan.analysis.stacks import DEEPEST, collapsed, safe, with_functions
from opspan.tables import Tables
from opspan.views.contents import holds, parts
from opspan.views.missing import FUNCTIONS
from opspan.views.names import process_names, thread_names

_col = pl.col
_BATCH = 50_000
_THREAD = ["rank", "pid", "tid"]
_FUNCTIONS = f"No Python functions are in the stacks: {FUNCTIONS}"


def write(found: Analysed, path: Path) -> list[str]:
    trace = found.attributed
    rows = tree(trace)
    rows = rows.with_columns(weight=_col("self_ns").fill_null(0))
    said = write_stacks(trace, rows, path)
    if rows["weight"].sum():
        return said
    other = "; a .device.stacks has its kernels" if "work" in parts(trace) else ""
    way = other or ("; a .sqlite or .parquet has all of that" if parts(trace) else "")
    labels = "`opspan run --emit nvtx -o capture -- python train.py` captures the ops of a program"
    return [f"No range has CPU time: the file is empty. {holds(trace)}{way}. {labels}"]


def tree(trace: Tables) -> pl.DataFrame:
    """The functions, then the ranges, in one tree."""
    return with_functions(trace) if trace.functions.height else trace.ranges


def write_stacks(trace: Tables, rows: pl.DataFrame, path: Path) -> list[str]:
    """`rows`: a tree, with weights. Returns sentences on what is left out."""
    rows = rows.with_row_index("row").filter(~_col("is_mark").fill_null(value=False))
    in_tree = rows.filter(~_col("is_async").fill_null(value=False))
    shown = in_tree.filter(_col("depth") < DEEPEST)
    roots = shown.select(_THREAD).unique().sort(_THREAD).with_row_index("root")
    text = pl.concat_str(safe(process_names(trace, roots)), pl.lit(";"), safe(thread_names(trace, roots)))
    name = _col("name").cast(pl.String).fill_null("(no name)")
    placed = shown.join(roots, on=_THREAD, how="left", nulls_equal=True, maintain_order="left")
    placed = placed.select("row", "parent", "depth", "root", "weight", frame=name)
    with path.open("w", encoding="utf-8") as file:
        for lines in collapsed(placed, roots.select("root", text=text)):
            for batch in _batches(lines):
                file.write("\n".join(batch) + "\n")
    said = []
    functions = trace.functions.height
    apart = rows.filter(_col("is_async").fill_null(value=False))["row"]
    if parted := int((apart < functions).sum()):
        said.append(f"{parted:,} Python functions end after a range that they began in, and were left out")
    if apart.len() > parted:
        said.append(f"{apart.len() - parted:,} async ranges are in no stack and were left out")
    if deep := in_tree.height - shown.height:
        said.append(f"{deep:,} ranges are inside {DEEPEST} others or more and were left out")
    if not functions and trace.ranges.height and shown["weight"].sum():
        said.append(_FUNCTIONS)
    return said


def _batches(lines: pl.Series) -> Iterator[list[str]]:
    for start in range(0, lines.len(), _BATCH):
        yield lines.slice(start, _BATCH).to_list()
