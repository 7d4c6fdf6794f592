"""Puts compiled kernels below the source lines that they were generated from, in a tree of functions and ranges.

    lines = LineStacks(trace)
    lines.calls(rows) -> for each row of a tree, the id of its set of stacks, or null if its stacks are unknown
    lines.below(rows, times) -> the tree of merged rows, in which kernels are below their lines

    ## Call CompiledFxGraph None ##           ## Call CompiledFxGraph None ##
        triton_poi_fused_add_0  9 ns   -->        model.py(3): forward
                                                      triton_poi_fused_add_0  5 ns
                                                  model.py(4): forward
                                                      triton_poi_fused_add_0  4 ns

The tree has a copy of a kernel, with all rows inside it, for each stack that ends in one of the kernel's lines. Times
are divided as in the table by line (source_lines.py): into equal parts for the kernel's lines, and the part of a line
into equal parts for the stacks that end in it. So the sums over all rows do not change. Rows whose lines are unknown or
uncertain stay where they are.

Equal rows are merged first, because a trace may have a million kernels, but only few different ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import polars as pl

from opspan.analysis.nest import nearest
from opspan.analysis.provenance import matched
from opspan.analysis.source_lines import divided
from opspan.analysis.stacks import depths, levels
from opspan.row_numbers import ROW_NUMBER

if TYPE_CHECKING:
    from opspan.tables import Tables

FUNCTION = "function"  # the kind of Python functions; the other kinds are those of ranges, kernels and copies
_col = pl.col
_MOST_STACKS = 1_000  # a kernel with more stacks stays where it is


class LineStacks:
    """The stacks of the source lines of compiled kernels, as nodes of one tree. Each different set of stacks has an id.
    In the rows of a tree, the column `call` has this id."""

    def __init__(self, trace: Tables) -> None:
        self._names: list[str] = []
        self._parents: list[int | None] = []
        self._nodes: dict[tuple[int | None, str], int] = {}
        self._before = trace.functions.height
        matches = matched(trace)
        known: dict[tuple[str, ...], int] = {}
        numbers = [
            known.setdefault(tuple(stacks), len(known)) if 0 < len(stacks) <= _MOST_STACKS else None
            for stacks in matches.calls["stacks"].to_list()
        ]
        of_call = pl.Series(numbers, dtype=pl.Int64)
        self._of_ranges, self.of_work = (
            of_call.gather(calls.set(calls < 0, None)) for calls in (matches.of_ranges, matches.of_work)
        )
        rows = [
            (call, line, text, self._add(frames))
            for stacks, call in known.items()
            for text in stacks
            for line, *frames in [text.split("\n")]
        ]
        schema = {"call": pl.Int64, "line": pl.String, "stack": pl.String, "node": ROW_NUMBER}
        self._stacks = pl.DataFrame(rows, schema=schema, orient="row")
        tree = {"node": range(len(self._names)), "above": self._parents, "frame": self._names}
        self._tree = pl.DataFrame(tree, schema={"node": ROW_NUMBER, "above": ROW_NUMBER, "frame": pl.String})

    def _add(self, frames: Iterable[str]) -> int | None:
        node = None
        for name in frames:
            above, node = node, self._nodes.setdefault((node, name), len(self._names))
            if node == len(self._names):
                self._names.append(name)
                self._parents.append(above)
        return node

    def calls(self, rows: pl.DataFrame) -> pl.Series:
        """Returns the id of each row's set of stacks, or null. `rows` has the rows of the table functions, then those
        of the table ranges, then other rows. An optional column `work` has the row of the table work that a row stands
        for. A function has the stacks of the innermost range around it."""
        none = pl.Series([None], dtype=pl.Int64)
        rest = rows.height - self._before - len(self._of_ranges)
        call = pl.concat([none.new_from_index(0, self._before), self._of_ranges, none.new_from_index(0, rest)])
        if self._before:
            call = call.gather(nearest(rows, pl.int_range(rows.height, eager=True) >= self._before))
        stays = rows.select(pl.any_horizontal(_col("is_mark", "is_async").fill_null(value=False))).to_series()
        call = call.set(stays, None)
        if "work" in rows.columns:
            call = call.zip_with(rows["work"].is_null(), self.of_work.gather(rows["work"]))
        return call.alias("call")

    def below(self, rows: pl.DataFrame, times: Sequence[str]) -> pl.DataFrame:
        """Returns the tree: row, parent, depth, root, frame and `times`, and also kind and count if `rows` has them.
        `rows` must have call, `times` and the columns that `levels` needs. Added functions have the kind FUNCTION
        and no time. Their count is 0, because it is unknown how often they ran. If no row has stacks, returns `rows`
        as they are, without call."""
        keys = [name for name in ("frame", "kind", "call") if name in rows.columns]
        sums = [name for name in (*times, "count") if name in rows.columns]
        merged = list(levels(rows, [_col(sums).sum()], keys))
        if not merged or not rows["call"].count():
            return rows.drop("call")
        return self._moved(pl.concat(merged).rename({"stack": "row"}).drop("level"), times)

    def _moved(self, rows: pl.DataFrame, times: Sequence[str]) -> pl.DataFrame:
        call, parent = rows["call"], rows["parent"]
        # for each row, the innermost row around it that is not moved
        outside = nearest(rows, call.is_null()).gather(parent)
        is_inside = (call == call.gather(parent)).fill_null(value=False)  # whether the parent has the same stacks
        rows = rows.with_columns(parent.zip_with(is_inside, outside).alias("parent"), is_inside=is_inside)
        still, moving = rows.filter(_col("call").is_null()), rows.filter(_col("call").is_not_null())
        copies = _numbered(self._copies(moving, times), rows.height)
        first = rows.height + copies.height - moving.height
        functions = _functions(copies.filter(~_col("is_inside")), self._tree, first)
        places = functions.select("root", "node", parent="outside", place="at")
        around = copies.select("copy", parent="row", inside="at")
        copies = _look_up(_look_up(copies, around, ["parent", "copy"]), places, ["root", "node", "parent"])
        copies = copies.with_columns(parent=pl.when("is_inside").then("inside").otherwise("place"))
        values = {"kind": pl.lit(FUNCTION, dtype=pl.Categorical), "count": pl.lit(0, dtype=pl.Int64)}
        functions = functions.with_columns(
            *(pl.lit(0, dtype=rows.schema[time]).alias(time) for time in times),
            **{name: value for name, value in values.items() if name in rows.columns},
        )
        columns = [name for name in rows.columns if name not in ("row", "call", "is_inside")]
        tables = (still.rename({"row": "at"}), copies, functions)
        both = pl.concat([table.select("at", *columns) for table in tables], how="vertical_relaxed").sort("at")
        return both.rename({"at": "row"}).with_columns(depths(both["parent"]).alias("depth"))

    def _copies(self, moving: pl.DataFrame, times: Sequence[str]) -> pl.DataFrame:
        """Returns a copy of each row for each of its stacks. Adds `node`, the innermost function of the stack, and
        `copy`, which counts the copies of a row from 0."""
        lists = self._stacks.group_by("call", maintain_order=True).agg(keys=_col("line").unique(maintain_order=True))
        by_line = divided(_look_up(moving, lists, ["call"]), times)
        stacks = self._stacks.group_by("call", key="line", maintain_order=True).agg(keys=_col("stack"))
        copies = divided(_look_up(by_line, stacks, ["call", "key"]).drop("key"), times)
        numbered = self._stacks.select("call", "node", key="stack", copy=pl.int_range(pl.len()).over("call"))
        return _look_up(copies, numbered, ["call", "key"]).drop("key")


def _numbered(copies: pl.DataFrame, count: int) -> pl.DataFrame:
    """Adds `at`, the row number of each copy in the new tree. The first copy keeps the number of its row; the numbers
    of further copies follow after all rows."""
    is_first = _col("copy") == 0
    more = pl.when(is_first).then(0).otherwise(1).cum_sum() + count - 1
    return copies.with_columns(at=pl.when(is_first).then("row").otherwise(more).cast(ROW_NUMBER))


def _functions(copies: pl.DataFrame, tree: pl.DataFrame, first: int) -> pl.DataFrame:
    """Returns the functions to add. The functions of a kernel come between the kernel and `outside`. Of all rows around
    the kernel that are not moved, `outside` is the innermost. The other columns are at and parent (row numbers in the
    new tree), frame (the function), root (as in `levels`) and node (the function's row in `tree`)."""
    level = copies.select("node", "root", outside="parent").unique(maintain_order=True)
    levels = []
    while level.height:
        level = _look_up(level, tree, ["node"])
        levels.append(level)
        level = level.with_columns(node="above").drop("above", "frame").drop_nulls("node").unique(maintain_order=True)
    key = ["outside", "root", "node"]
    rows = pl.concat(levels).unique(key, keep="first", maintain_order=True)
    rows = rows.with_columns(at=(pl.int_range(pl.len()) + first).cast(ROW_NUMBER))
    around = rows.select("outside", "root", above="node", place="at")
    rows = _look_up(rows, around, ["outside", "root", "above"])
    return rows.with_columns(parent=pl.when(_col("above").is_null()).then("outside").otherwise("place"))


def _look_up(rows: pl.DataFrame, more: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    return rows.join(more, on=key, how="left", nulls_equal=True, maintain_order="left")
