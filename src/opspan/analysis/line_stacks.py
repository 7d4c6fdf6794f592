"""Puts compiled kernels below the lines of the program that they were made from, in a tree of functions and ranges.

    below_lines(trace, rows, times) -> the rows, and those that are added at their end
    has_lines(trace) -> for each row of work, whether it is below lines

    ## Call CompiledFxGraph None ##           ## Call CompiledFxGraph None ##
        triton_poi_fused_add_0  9 ns   -->        model.py(3): forward
                                                      triton_poi_fused_add_0  5 ns
                                                  model.py(4): forward
                                                      triton_poi_fused_add_0  4 ns

A kernel is there once for each stack of its lines, with all rows inside it. Its times are divided as in the table by
line (source_lines.py): into equal parts for its lines, and the part of a line into equal parts for the stacks that end
in it. Sums over all rows stay as they are. Rows without known lines, or with uncertain ones, stay where they are.

`rows` are those of the functions, then those of the ranges, then others. They need parent, depth, name and the thread,
and may have `work`: the row of the trace's work that a row stands for. `times` are columns of nanoseconds. Rows that
are added have 0 there, `kind` FUNCTION, and null in other columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import polars as pl

from opspan.analysis.nest import nearest
from opspan.analysis.provenance import matched
from opspan.analysis.source_lines import divided
from opspan.analysis.stacks import depths
from opspan.row_numbers import ROW_NUMBER

if TYPE_CHECKING:
    from opspan.tables import Tables

FUNCTION = "function"  # the kind of Python functions; the other kinds are those of ranges, kernels and copies
_PLACE = ("rank", "pid", "tid")
_col = pl.col


def below_lines(trace: Tables, rows: pl.DataFrame, times: Sequence[str]) -> pl.DataFrame:
    if trace.provenance.is_empty():
        return rows
    matches = matched(trace)
    known = _Stacks(matches.calls["stacks"].to_list())
    call = _calls(trace, rows, known.numbers, matches.of_ranges, matches.of_work)
    if not call.count():
        return rows
    return _moved(rows.with_columns(call, row=pl.int_range(pl.len(), dtype=ROW_NUMBER)), known, times)


def has_lines(trace: Tables) -> pl.Series:
    """Returns for each row of work whether it is below lines."""
    matches = matched(trace)
    known = matches.calls["stacks"].list.len().gather(matches.of_work.set(matches.of_work < 0, None))
    return (known > 0).fill_null(value=False).alias("has_lines")


class _Stacks:
    """The stacks of all calls, as nodes of one tree. Calls with the same stacks have one number."""

    def __init__(self, calls: Sequence[Sequence[str]]) -> None:
        self.names: list[str] = []
        self.parents: list[int | None] = []
        self._nodes: dict[tuple[int | None, str], int] = {}
        known: dict[tuple[str, ...], int] = {}
        self.numbers = [known.setdefault(tuple(stacks), len(known)) if stacks else None for stacks in calls]
        rows = [
            (call, line, text, self._add(frames))
            for stacks, call in known.items()
            for text in stacks
            for line, *frames in [text.split("\n")]
        ]
        schema = {"call": pl.Int64, "line": pl.String, "stack": pl.String, "node": ROW_NUMBER}
        self.rows = pl.DataFrame(rows, schema=schema, orient="row")
        tree = {"node": range(len(self.names)), "above": self.parents, "name": self.names}
        self.tree = pl.DataFrame(tree, schema={"node": ROW_NUMBER, "above": ROW_NUMBER, "name": pl.Categorical})

    def _add(self, frames: Iterable[str]) -> int | None:
        node = None
        for name in frames:
            above, node = node, self._nodes.setdefault((node, name), len(self.names))
            if node == len(self.names):
                self.names.append(name)
                self.parents.append(above)
        return node


def _calls(
    trace: Tables, rows: pl.DataFrame, numbers: Sequence[int | None], of_ranges: pl.Series, of_work: pl.Series
) -> pl.Series:
    """Returns for each row the number of its stacks, or null. Functions have those of the range that they are in."""
    number = pl.Series(numbers, dtype=pl.Int64)
    of_ranges, of_work = (number.gather(calls.set(calls < 0, None)) for calls in (of_ranges, of_work))
    before = trace.functions.height
    rest = rows.height - before - of_ranges.len()
    none = pl.Series([None], dtype=pl.Int64)
    call = pl.concat([none.new_from_index(0, before), of_ranges, none.new_from_index(0, rest)])
    if before:
        is_function = pl.Series([True]).new_from_index(0, before).extend_constant(False, rows.height - before)
        call = call.gather(nearest(rows, ~is_function))
    stays = [_col(name).fill_null(value=False) for name in ("is_mark", "is_async") if name in rows.columns]
    if stays:
        call = call.set(rows.select(pl.any_horizontal(stays)).to_series(), None)
    if "work" in rows.columns:
        call = call.zip_with(rows["work"].is_null(), of_work.gather(rows["work"]))
    return call.alias("call")


def _moved(rows: pl.DataFrame, known: _Stacks, times: Sequence[str]) -> pl.DataFrame:
    call, parent, columns = rows["call"], rows["parent"], rows.columns
    outside = nearest(rows, call.is_null()).gather(parent)  # the nearest row around it that stays where it is
    is_inside = (call == call.gather(parent)).fill_null(value=False)  # of the same kernel as the row around it
    rows = rows.with_columns(parent.zip_with(is_inside, outside).alias("parent"), is_inside=is_inside)
    still, moving = rows.filter(_col("call").is_null()), rows.filter(_col("call").is_not_null())
    copies = _numbered(_copies(moving, known, times), rows.height)
    first = rows.height + copies.height - moving.height
    functions = _functions(copies.filter(~_col("is_inside")), known.tree, first)
    places = functions.select(*_PLACE, "node", parent="outside", place="at")
    around = copies.select("copy", parent="row", inside="at")
    copies = _look_up(_look_up(copies, around, ["parent", "copy"]), places, [*_PLACE, "node", "parent"])
    copies = copies.with_columns(parent=pl.when("is_inside").then("inside").otherwise("place"))
    none = (pl.lit(0, dtype=rows.schema[time]).alias(time) for time in times)
    functions = functions.with_columns(*none, kind=pl.lit(FUNCTION, dtype=pl.Categorical))
    both = pl.concat([still.rename({"row": "at"}), copies, functions], how="diagonal_relaxed").sort("at")
    both = both.select(name for name in columns if name not in ("row", "call"))
    return both.with_columns(depths(both["parent"]).alias("depth"))


def _copies(moving: pl.DataFrame, known: _Stacks, times: Sequence[str]) -> pl.DataFrame:
    """Returns a row for each stack of each row: the innermost function as `node`, and the number of the copy."""
    lists = known.rows.group_by("call", maintain_order=True).agg(keys=_col("line").unique(maintain_order=True))
    by_line = divided(_look_up(moving, lists, ["call"]), times)
    stacks = known.rows.group_by("call", key="line", maintain_order=True).agg(keys=_col("stack"))
    copies = divided(_look_up(by_line, stacks, ["call", "key"]).drop("key"), times)
    numbered = known.rows.select("call", "node", key="stack", copy=pl.int_range(pl.len()).over("call"))
    return _look_up(copies, numbered, ["call", "key"]).drop("key")


def _numbered(copies: pl.DataFrame, count: int) -> pl.DataFrame:
    """Adds `at`, the row that each copy becomes. The first copy takes the place of its row; others come after all."""
    is_first = _col("copy") == 0
    more = pl.when(is_first).then(0).otherwise(1).cum_sum() + count - 1
    return copies.with_columns(at=pl.when(is_first).then("row").otherwise(more).cast(ROW_NUMBER))


def _functions(copies: pl.DataFrame, tree: pl.DataFrame, first: int) -> pl.DataFrame:
    """Returns the functions to add below each row that stays where it is: at (the row that it becomes), parent, name,
    the thread, outside (the row that stays) and node."""
    level = copies.select("node", *_PLACE, outside="parent").unique(maintain_order=True)
    levels = []
    while level.height:
        level = _look_up(level, tree, ["node"])
        levels.append(level)
        level = level.with_columns(node="above").drop("above", "name").drop_nulls("node").unique(maintain_order=True)
    key = ["outside", *_PLACE, "node"]
    rows = pl.concat(levels).unique(key, keep="first", maintain_order=True)
    rows = rows.with_columns(at=(pl.int_range(pl.len()) + first).cast(ROW_NUMBER))
    around = rows.select("outside", *_PLACE, above="node", place="at")
    rows = _look_up(rows, around, ["outside", *_PLACE, "above"])
    return rows.with_columns(parent=pl.when(_col("above").is_null()).then("outside").otherwise("place"))


def _look_up(rows: pl.DataFrame, more: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    return rows.join(more, on=key, how="left", nulls_equal=True, maintain_order="left")
