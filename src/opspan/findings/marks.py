"""Recognises ranges whose names alone show a cause of idle time. `ranges` has the column `parent`.

is_compiling(ranges) -> Boolean: whether a range is, or is in, a range in which torch compiles
is_in_fallback(ranges) -> Boolean: whether a range is, or is in, an op that the host runs because a device lacks a
    kernel
compiled_times(ranges, is_compiling(ranges)) -> rank, pid, name, start_ns, end_ns, module: the outermost compiling
    ranges, and the times of compilations that only marks (very short ranges) show
is_step_range(ranges, steps) -> Boolean: whether a range is a step, by its kind or by the name of a step; may be null if
    the range has no kind or no name
after_first_step(rows, steps) -> the rows that begin in steps, but not in the first one of their process
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.nest import nearest
from opspan.analysis.spans import PROCESS, within

_col = pl.col
# Names that several releases of torch give to the ranges in which they compile.
_COMPILING = (
    r"^torch\._dynamo\.convert_frame|^_?compile\.|convert_frame|compile_inner|^entire_frame_compile|^backend_compile|"
    r"^entire_backward_compile|inductor_compile|compile_fx|^create_aot_dispatcher_function"
)
# Matches names such as backend_compile_data: fn_name=OutputGraph.call_user_compiler, compile_id=0/2.
# Torch makes a short mark with such a name when a compilation begins. Only torch's own profiler also records the ranges
# that torch's Python code opens.
_MARK = r"^\w+_data: .*\bcompile_id=([^ ,]+)"
_TIMES = (*PROCESS, "tid", "name", "start_ns", "end_ns", "module")
_BACKWARD = "^entire_backward_compile"
# If a device lacks a kernel for an op, torch runs the op on the host. The op then calls aten::_to_cpu to move its
# inputs.
_MOVES = "aten::_to_cpu"


def is_compiling(ranges: pl.DataFrame) -> pl.Series:
    return _is_inside(ranges, _is_named(ranges, _COMPILING) & ~_is_named(ranges, _MARK))


def is_step_range(ranges: pl.DataFrame, steps: pl.DataFrame) -> pl.Series:
    is_named = ranges["name"].is_in(steps["step"].cast(pl.Categorical).implode())
    return is_named | (ranges["kind"] == "step")


def compiled_times(ranges: pl.DataFrame, inside: pl.Series) -> pl.DataFrame:
    is_outermost = inside & ~inside.gather(ranges["parent"]).fill_null(value=False)
    outermost = ranges.select(_TIMES).filter(is_outermost).drop_nulls(("start_ns", "end_ns"))
    marked = _spans_of_marks(ranges)
    known = within(marked, "start_ns", outermost, PROCESS)["row"].implode()
    return pl.concat([outermost, marked.filter(~pl.int_range(pl.len()).is_in(known))])


def after_first_step(rows: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    inside = rows[within(rows, "start_ns", steps, PROCESS)["row"].unique().sort()]
    first = steps.group_by(PROCESS).agg(until_ns=_col("end_ns").min())
    inside = inside.join(first, on=PROCESS, nulls_equal=True, maintain_order="left")
    return inside.filter(_col("start_ns") >= _col("until_ns")).drop("until_ns")


def _spans_of_marks(ranges: pl.DataFrame) -> pl.DataFrame:
    """Returns the time from the first to the last mark of each compiled frame. The backward of a frame has a separate
    row, because it may be compiled later."""
    marks = ranges.select(_TIMES)
    marks = marks.filter(_is_named(ranges, _MARK)).drop_nulls(("start_ns", "end_ns"))
    name = _col("name").cast(pl.String)
    of = ("rank", "pid", "tid", "frame", "is_backward")
    marks = marks.sort("start_ns").with_columns(frame=name.str.extract(_MARK), is_backward=name.str.contains(_BACKWARD))
    marks = marks.with_columns(_col("is_backward").cum_max().over(of[:-1]))
    spans = marks.group_by(of, maintain_order=True).agg(
        _col("start_ns", "module").first(),
        _col("end_ns").max(),
        pl.format("torch.compile {}", _col("frame").first()).cast(pl.Categorical).alias("name"),
    )
    return spans.select(_TIMES)


def is_in_fallback(ranges: pl.DataFrame) -> pl.Series:
    return _is_inside(ranges, is_fallback(ranges))


def is_fallback(ranges: pl.DataFrame) -> pl.Series:
    """Returns for each range whether it is an op that ran on the host instead of a device."""
    parents = ranges["parent"].filter(_is_named(ranges, f"^{_MOVES}$")).drop_nulls().unique()
    return pl.Series([False]).new_from_index(0, ranges.height).scatter(parents, True)


def _is_named(ranges: pl.DataFrame, pattern: str) -> pl.Series:
    names = ranges.select(_col("name").unique()).filter(_col("name").cast(pl.String).str.contains(pattern))["name"]
    if not names.len():
        return pl.Series([False]).new_from_index(0, ranges.height)
    return ranges["name"].is_in(names.implode()).fill_null(value=False)


def _is_inside(ranges: pl.DataFrame, marked: pl.Series) -> pl.Series:
    return nearest(ranges, marked).is_not_null() if marked.any() else marked
