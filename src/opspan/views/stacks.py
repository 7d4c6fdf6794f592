"""Ranges as stacks, one a line, for flame graphs (flamegraph.pl, speedscope, inferno). Nanoseconds of CPU time.

    process 100;thread 100 main;step;aten::linear;aten::addmm 12345

A stack is the ranges around one another on a thread, the outermost first; the number is the time spent in the last
and in none inside it, summed over all that have the same stack. Async ranges stand outside the tree and are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import polars as pl

from opspan.analysis import attribute
from opspan.trace import Trace
from opspan.views.contents import holds, parts
from opspan.views.names import process_names, thread_names

_col = pl.col
_BATCH = 50_000
_OTHERS = {"self_ns": "a .stacks", "self_device_ns": "a .device.stacks"}  # by what they weigh
_DEEPEST = 500  # a text grows with every level of its stack
# What separates frames, and lines, must not be in a frame.
_UNSAFE = r"[;\pC\p{Zl}\p{Zp}]"


def write(trace: Trace, path: Path) -> list[str]:
    return write_stacks(trace, path, "self_ns", "CPU time")


def write_stacks(trace: Trace, path: Path, weight: str, what: str) -> list[str]:
    ranges = attribute(trace).ranges.with_columns(weight=_col(weight).fill_null(0)).with_row_index("row")
    ranges = ranges.filter(~_col("is_mark").fill_null(value=False))
    in_tree = ranges.filter(~_col("is_async").fill_null(value=False))
    shown = in_tree.filter(_col("depth") < _DEEPEST)
    levels = _levels(shown, trace)
    with path.open("w", encoding="utf-8") as file:
        _write_lines(levels, file)
    said = []
    if apart := ranges.height - in_tree.height:
        said.append(f"{apart:,} async ranges are in no stack and were left out")
    if deep := in_tree.height - shown.height:
        said.append(f"{deep:,} ranges are inside {_DEEPEST} others or more and were left out")
    if not shown["weight"].sum():
        other = next((suffix for column, suffix in _OTHERS.items() if shown[column].fill_null(0).sum()), None)
        way = f"; {other} has its ranges" if other else "; a .sqlite or .parquet has all of that"
        said.append(f"No range has {what}: the file is empty. {holds(trace)}{way if parts(trace) else ''}")
    return said


def _levels(ranges: pl.DataFrame, trace: Trace) -> list[pl.DataFrame]:
    """A level of the tree each, of stacks that are the same put together: stack, parent (in the level above), frame,
    weight. The first is that of the threads."""
    place = ["rank", "pid", "tid"]
    threads = ranges.select(place).unique().sort(place).with_row_index("stack")
    frame = pl.concat_str(_safe(process_names(trace, threads)), pl.lit(";"), _safe(thread_names(trace, threads)))
    levels = [threads.select("stack", pl.lit(None, pl.UInt32).alias("parent"), frame.alias("frame"), weight=pl.lit(0))]
    # For each row of the level above, the stack that it is in.
    above = pl.DataFrame(schema={"row": pl.UInt32, "stack": pl.UInt32})
    name = _col("name").cast(pl.String).fill_null("(no name)")
    for rows in ranges.sort("depth", maintain_order=True).partition_by("depth", maintain_order=True):
        if above.is_empty():
            found = rows.join(threads, on=place, how="left", nulls_equal=True, maintain_order="left")
        else:
            found = rows.join(above, left_on="parent", right_on="row", how="left", maintain_order="left")
        found = found.select("row", parent="stack", frame=name, weight="weight")
        stacks = found.group_by("parent", "frame", maintain_order=True).agg(_col("weight").sum(), _col("row"))
        stacks = stacks.with_row_index("stack")
        levels.append(stacks.select("stack", "parent", _safe(_col("frame")), "weight"))
        above = stacks.select("row", "stack").explode("row")
    return levels


def _safe(frame: pl.Expr) -> pl.Expr:
    return frame.str.replace_all(_UNSAFE, "_")


def _write_lines(levels: list[pl.DataFrame], file: TextIO) -> None:
    """Level by level; a stack's text is that of the level above and its own frame."""
    texts = levels[0].select("stack", text="frame")
    for level in levels[1:]:
        text = pl.concat_str("text", pl.lit(";"), "frame")
        joined = level.join(texts, left_on="parent", right_on="stack", how="left", maintain_order="left")
        joined = joined.with_columns(text=text)
        lines = joined.filter(_col("weight") > 0).select(pl.concat_str("text", pl.lit(" "), "weight")).to_series()
        for batch in _batches(lines):
            file.write("\n".join(batch) + "\n")
        texts = joined.select("stack", "text")


def _batches(lines: pl.Series) -> Iterator[list[str]]:
    for start in range(0, lines.len(), _BATCH):
        yield lines.slice(start, _BATCH).to_list()
