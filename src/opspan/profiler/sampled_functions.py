"""Derives calls of Python functions from the stacks of ops, for the Python tracks of Chrome traces.

    op 1 in  train.py(9): step > train.py(4): loss        two calls:
    op 2 in  train.py(9): step > train.py(5): loss        `step`, from the start of op 1 to the end of op 3
    op 3 in  train.py(10): step                           `loss`, from the start of op 1 to the end of op 2

Consecutive ops of a thread belong to one call if they are in the same function and its callers are at the same lines.
So a call begins with its first op and ends with its last one. Functions without ops inside are missing, and
consecutive calls from one line, as in a loop, count as one call.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import polars as pl

from opspan.tables import chrome_keys as keys
from opspan.tables import schema

if TYPE_CHECKING:
    from opspan.trace import Trace

_FRAME: Final = re.compile(r"(.*)\((\d+)\): (.*)", re.DOTALL)
_THREAD: Final = ("rank", "pid", "tid")
_col = pl.col


def functions(trace: Trace) -> pl.DataFrame:
    """Returns the calls as rows of the table `functions`."""
    ops = trace.ranges.filter(_col("stack").is_not_null(), _col("start_ns").is_not_null(), _col("end_ns").is_not_null())
    stacks, calls = _call_keys(ops["stack"].unique().cast(pl.String))
    samples = ops.select(*_THREAD, "start_ns", "end_ns", stack=_col("stack").cast(pl.String))
    samples = samples.sort(*_THREAD, "start_ns", maintain_order=True).with_row_index("sample")
    samples = samples.with_columns(thread=pl.struct(*_THREAD).rle_id())
    levels = samples.join(stacks, on="stack").explode("keys").rename({"keys": "key"})
    levels = levels.with_columns(depth=pl.int_range(pl.len()).over("sample")).sort("thread", "depth", "sample")
    # A sample is an op with its stack. It continues a call if the thread's previous sample has the same key at the same
    # depth.
    key, sample = (_col(name).shift(1).over("thread", "depth") for name in ("key", "sample"))
    continues = (_col("key") == key) & (_col("sample") == sample + 1)
    levels = levels.with_columns(call=(~continues.fill_null(value=False)).cum_sum())
    rows = levels.group_by("call", maintain_order=True).agg(
        *(_col(name).first() for name in (*_THREAD, "start_ns", "key", "depth", "sample", "thread")),
        _col("end_ns").max(),
    )
    rows = rows.join(calls, on="key").sort("start_ns", "depth").with_row_index("id")
    parents = rows.select("id", "thread", "sample", "depth")
    found = (
        rows.with_columns(above=_col("depth") - 1)
        .sort("sample")
        .join_asof(
            parents.sort("sample").rename({"id": "parent_id"}),
            on="sample",
            by_left=["thread", "above"],
            by_right=["thread", "depth"],
            check_sortedness=False,
        )
    )
    frame = found.sort("id").with_columns(payload_json=pl.lit(keys.SAMPLED))
    return frame.select(_col(name).cast(dtype) for name, dtype in schema.TABLES["functions"].schema.items())


def _call_keys(stacks: pl.Series) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns the keys of the calls in each stack, the outermost call first, and the name of each key. A key stands for
    a function and the lines of its callers. The name of a function has the lowest line number at which the function was
    seen."""
    numbers: dict[tuple[int, str, str], int] = {}
    callers: dict[tuple[int, str], int] = {}
    first: dict[tuple[str, str], int] = {}
    keys_of = []
    for text in stacks:
        caller, own = 0, []
        for name in filter(None, text.split("\n")):
            match = _FRAME.fullmatch(name)
            file, line, function = match.groups() if match else ("", "0", name)
            first[file, function] = min(int(line), first.get((file, function), int(line)))
            own.append(numbers.setdefault((caller, file, function), len(numbers)))
            caller = callers.setdefault((caller, name), len(callers) + 1)
        keys_of.append(own)
    names = [f"{file}({first[file, name]}): {name}" if file else name for _, file, name in numbers]
    return (
        pl.DataFrame({"stack": stacks, "keys": keys_of}, schema_overrides={"keys": pl.List(pl.Int64)}),
        pl.DataFrame({"key": list(numbers.values()), "name": names}, schema={"key": pl.Int64, "name": pl.String}),
    )
