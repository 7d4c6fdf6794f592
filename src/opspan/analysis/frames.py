"""Makes one tree of the Python functions that ops were called in.

    frames(ranges, calls_of_functions) -> for each range, the row of its innermost function in the tree; and the tree:
        name, parent (a row).

The functions come from the column `stack`; ranges without a stack have the calls of functions that a tracer recorded.
Ranges in a backward have the functions of their forward op, because their own stack shows only the function that
started the backward. Ranges must be nested and linked (`autograd`) first.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.autograd import within_backward
from opspan.analysis.functions import parents
from opspan.row_numbers import ROW_NUMBER
from opspan.tables.schema import NAME

TREE = {"name": NAME, "parent": ROW_NUMBER}


def frames(ranges: pl.DataFrame, calls: pl.DataFrame) -> tuple[pl.Series, pl.DataFrame]:
    function, tree = ranges["function"], calls.select("name", parent=parents(calls))
    if not ranges["stack"].count():
        return function, tree
    of_stack, of_stacks = _of_stacks(ranges)
    count = of_stacks.height
    function = of_stack.zip_with(of_stack.is_not_null(), (function + count).cast(ROW_NUMBER))
    return function, pl.concat([of_stacks, tree.with_columns((pl.col("parent") + count).cast(ROW_NUMBER))])


def _of_stacks(ranges: pl.DataFrame) -> tuple[pl.Series, pl.DataFrame]:
    stacks = ranges["stack"].unique().drop_nulls()
    rows: dict[tuple[int | None, str], int] = {}
    innermost: list[int | None] = []
    for text in stacks.cast(pl.String):
        row = None
        for name in filter(None, text.split("\n")):
            row = rows.setdefault((row, name), len(rows))
        innermost.append(row)
    tree = {"name": [name for _, name in rows], "parent": [parent for parent, _ in rows]}
    of_stack = pl.Series(innermost, dtype=ROW_NUMBER)
    own = ranges["stack"].replace_strict(stacks, of_stack, default=None, return_dtype=ROW_NUMBER)
    return _of_forward(ranges, own), pl.DataFrame(tree, schema=TREE)


def _of_forward(ranges: pl.DataFrame, own: pl.Series) -> pl.Series:
    if "forward" not in ranges.columns or not ranges["forward"].count():
        return own
    # A range of the engine is around a backward range and not inside it. So it uses its own link to the forward op.
    forward = ranges["forward"].gather(within_backward(ranges))
    forward = forward.zip_with(forward.is_not_null(), ranges["forward"])
    functions = own
    for _ in range(2):  # twice, because a forward op may itself run in a backward
        inherited = functions.gather(forward)
        functions = inherited.zip_with(inherited.is_not_null(), own)
    return functions
