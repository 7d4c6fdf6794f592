"""Finds the functions in which ranges run, if the tool traced functions (torch.profiler traces those of Python).

    functions(ranges, calls_of_functions) -> ranges with:
        function (UInt32): row of the innermost function call that was open on the range's thread when the range began.
            If there was none, a range in a backward has the function of its forward op.
    names_of_functions(ranges, calls_of_functions) -> for each range, the name of its innermost function, by `frames`.
    parents(calls_of_functions) -> for each call, the row of the call around it.
    module_paths(calls_of_functions) -> for each call, the path of the modules that it is in. For example, the path is
        Net_0.Linear_1 for the call nn.Module: Linear_1 inside the call nn.Module: Net_0.

    frames(ranges, calls_of_functions) -> two results: for each range, the row of its innermost function in a tree of
        functions; and this tree: name, parent (a row). The functions of a range come from its column `stack`. If it has
        no stack, they come from the calls that a tracer recorded.

The column `stack` of a range in a backward shows only the function that started the backward. So `frames` uses the
`stack` of the forward op instead. Call `nest` and `autograd` first.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.autograd import inherit_from_forward, within_backward
from opspan.analysis.nest import innermost, nearest, trace_end_ns
from opspan.row_numbers import ROW_NUMBER
from opspan.tables.schema import NAME

_col = pl.col
MODULE = "nn.Module: "
_TREE = {"name": NAME, "parent": ROW_NUMBER}
_DEEPEST = 100  # only damaged files nest modules deeper


def functions(ranges: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    if not calls.height:
        return ranges.with_columns(pl.lit(None, dtype=ROW_NUMBER).alias("function"))
    function = innermost(spans_of(calls, ranges), ranges.rename({"start_ns": "time_ns"}))
    return ranges.with_columns(inherit_from_forward(ranges, function).alias("function"))


def _none(ranges: pl.DataFrame) -> pl.Series:
    return pl.Series("function", [None], dtype=ROW_NUMBER).new_from_index(0, ranges.height)


def spans_of(calls: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    """Returns the calls, with the columns that `innermost` needs. A call that did not return ends with the trace."""
    end_ns = trace_end_ns(ranges, calls)
    times = calls.select("rank", "pid", "tid", "start_ns", "end_ns", is_async=pl.lit(value=False))
    return times.with_columns(_col("end_ns").fill_null(end_ns))


def parents(calls: pl.DataFrame) -> pl.Series:
    if calls.is_empty():
        return pl.Series("parent", dtype=ROW_NUMBER)
    rows = calls.select(parent_id="id", parent=pl.int_range(pl.len(), dtype=ROW_NUMBER))
    rows = rows.drop_nulls().unique("parent_id", keep="first")
    return calls.select("parent_id").join(rows, on="parent_id", how="left", maintain_order="left")["parent"]


def module_paths(calls: pl.DataFrame) -> pl.Series:
    is_module = calls["name"].cat.starts_with(MODULE).fill_null(value=False)
    parent = parents(calls)
    around = nearest(pl.DataFrame({"parent": parent}), is_module)
    own = calls["name"].cast(pl.String).str.strip_prefix(MODULE)
    # Build the paths of modules level by level, from the outermost on: a path is the path of the module above, followed
    # by the module's name.
    above = around.gather(parent)
    path = own.zip_with(is_module & above.is_null(), pl.Series([None], dtype=pl.String))
    level = is_module & above.is_null()
    for _ in range(_DEEPEST):
        level = (level.gather(above) & is_module).fill_null(value=False)
        if not level.any():
            break
        path = (path.gather(above) + "." + own).zip_with(level, path)
    return path.gather(around).cast(pl.Categorical)


# --- stacks that the tool recorded with each op


def frames(ranges: pl.DataFrame, calls: pl.DataFrame) -> tuple[pl.Series, pl.DataFrame]:
    function = ranges["function"] if "function" in ranges.columns else _none(ranges)
    tree = calls.select("name", parent=parents(calls))
    if not ranges["stack"].count():
        return function, tree
    of_stack, of_stacks = _of_stacks(ranges)
    count = of_stacks.height
    function = of_stack.zip_with(of_stack.is_not_null(), (function + count).cast(ROW_NUMBER))
    return function, pl.concat([of_stacks, tree.with_columns((_col("parent") + count).cast(ROW_NUMBER))])


def names_of_functions(ranges: pl.DataFrame, calls: pl.DataFrame) -> pl.Series:
    if not ranges["stack"].count():
        return calls["name"].gather(ranges["function"]).alias("function")  # needs no tree
    function, tree = frames(ranges, calls)
    return tree["name"].gather(function).alias("function")


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
    return _of_forward(ranges, own), pl.DataFrame(tree, schema=_TREE)


def _of_forward(ranges: pl.DataFrame, own: pl.Series) -> pl.Series:
    if "forward" not in ranges.columns or not ranges["forward"].count():
        return own
    # A range of the engine lies around backward ranges, not inside one. So the engine's own link counts.
    forward = ranges["forward"].gather(within_backward(ranges))
    forward = forward.zip_with(forward.is_not_null(), ranges["forward"])
    functions = own
    for _ in range(2):  # twice, because a forward op may itself run in a backward
        inherited = functions.gather(forward)
        functions = inherited.zip_with(inherited.is_not_null(), own)
    return functions
