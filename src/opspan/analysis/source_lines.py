"""Sums times by line of the program, or by the op that the program called, for eager and compiled code.

    sums_by_line(trace, names=None) -> line, count, ranges, self_cpu_ns, self_device_ns
    sums_by_source_op(trace, names=None) -> source_op and the same columns
    texts_of_work(trace) -> for each row of work its lines and its source_ops, as two texts; SEPARATOR is between
        the lines, and between the ops
    line_texts(trace) -> for each row of ranges, and for each row of work, its lines as one text like this

`count` is the number of kernels, copies and fills that a line has a share of. `ranges` is the number of ranges that it
has a share of. With `names`, only three things count: ranges of these names, all ranges inside them, and work that was
launched in any of these ranges.

A compiled kernel has the lines and ops that torch.compile logged (`provenance`). Its time is divided into equal parts,
one for each of its different lines, or ops. Remaining nanoseconds go to the first lines, one each. So the sums over all
lines are the time of all kernels. In eager code, the line is that of the innermost function outside of torch, and
the op is the range itself. The row UNKNOWN has all times whose line or op is not known. The row UNCERTAIN has the times
of compiled kernels for which several logged calls with different lines fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

from opspan.analysis.averages import DURATION, RANGE_ORDER, launched_in, named, on_device
from opspan.analysis.functions import frames
from opspan.analysis.nest import nearest
from opspan.analysis.provenance import AMBIGUOUS, Matches, line_text, matched
from opspan.fused_names import fused_ops

if TYPE_CHECKING:
    from opspan.tables import Tables

UNKNOWN, UNCERTAIN = "(unknown)", "(ambiguous)"
LINE, SOURCE_OP = "line", "source_op"
_col = pl.col
_OPS = ("op", "backward", "engine")
# _FRAME matches a frame such as model.py(12): forward. _NOT_PROGRAM matches files that are not the program's own: their
# functions only carry out what a line of the program called.
_FRAME = r"^([^<].*)\((\d+)\): (.*)$"
_NOT_PROGRAM = r"(?:^|[/\\])(?:torch|triton|functorch)[/\\]|torchinductor_"
SEPARATOR = "; "


def sums_by_line(trace: Tables, names: Sequence[str] | None = None) -> pl.DataFrame:
    matches = matched(trace)
    return _sums(trace, matches, eager_lines(trace, matches.inside), LINE, "lines", names)


def sums_by_source_op(trace: Tables, names: Sequence[str] | None = None) -> pl.DataFrame:
    return _sums(trace, matched(trace), _eager_ops(trace.ranges), SOURCE_OP, "source_ops", names)


def texts_of_work(trace: Tables) -> pl.DataFrame:
    """Returns the lines and source_ops of each row of work, as text; null if they are not known."""
    matches, work = matched(trace), trace.work
    owns = (("lines", eager_lines(trace, matches.inside)), ("source_ops", _eager_ops(trace.ranges)))
    return pl.DataFrame(
        [_texts(matches, matches.of_work, work["name"], own.gather(work["range"]), column) for column, own in owns]
    )


def line_texts(trace: Tables) -> tuple[pl.Series, pl.Series]:
    """Returns the lines of each row of ranges, and the lines of each row of work, as text; null if they are not
    known."""
    matches, ranges, work = matched(trace), trace.ranges, trace.work
    own = eager_lines(trace, matches.inside)
    of_ranges = _texts(matches, matches.of_ranges, ranges["name"], own, "lines")
    return of_ranges, _texts(matches, matches.of_work, work["name"], own.gather(work["range"]), "lines")


def knows_lines(trace: Tables) -> bool:
    """Returns whether the trace has stacks of functions, or the compiler's log."""
    return trace.functions.height > 0 or trace.provenance.height > 0 or trace.ranges["stack"].count() > 0


def _texts(matches: Matches, calls: pl.Series, names: pl.Series, own: pl.Series, column: str) -> pl.Series:
    texts = _keys(matches, calls, names, own, column)["keys"].list.join(SEPARATOR)
    return texts.set(texts == UNKNOWN, None).cast(pl.Categorical).alias(column)


def eager_lines(trace: Tables, inside: pl.Series) -> pl.Series:
    """Returns, for each range, the innermost line of the program around it, such as model.py:12 forward. Lines in torch
    do not count. `inside` is the row of the compiled code around each range. Inside compiled code, a line counts only
    if the compiled code called its function: the compiled code does not come from the line that called it."""
    ranges = trace.ranges
    function, tree = frames(ranges, trace.functions)
    known = tree["name"].unique().drop_nulls().to_frame().with_columns(text=_col("name").cast(pl.String))
    parts = _col("text").str.extract_groups(_FRAME).struct
    known = known.with_columns(file=parts.field("1"), number=parts.field("2"), function=parts.field("3"))
    is_own = _col("file").is_not_null() & ~_col("file").str.contains(_NOT_PROGRAM)
    line = line_text(_col("file"), _col("number"), _col("function"))
    known = known.select("name", line=pl.when(is_own).then(line))
    lines = tree.select("name").join(known, on="name", how="left", maintain_order="left")["line"]
    at = nearest(tree.select("parent"), lines.is_not_null()).gather(function)
    # An op that compiled code calls may itself have called functions. Functions from stacks have no times, so they are
    # left out.
    of_stacks = pl.Series([None], dtype=pl.Int64).new_from_index(0, tree.height - trace.functions.height)
    began = pl.concat([of_stacks, trace.functions["start_ns"]])
    has_own = (began.gather(at) >= ranges["start_ns"].gather(inside)).fill_null(value=False)
    return lines.gather(at.set(inside.is_not_null() & ~has_own, None)).alias(LINE)


def _eager_ops(ranges: pl.DataFrame) -> pl.Series:
    """Returns the name of each range that is an op; null for other ranges."""
    is_op = ranges["kind"].is_in(_OPS).fill_null(value=False)
    return ranges["name"].cast(pl.String).zip_with(is_op, pl.Series([None], dtype=pl.String))


def _sums(
    trace: Tables, matches: Matches, own: pl.Series, key: str, column: str, names: Sequence[str] | None
) -> pl.DataFrame:
    ranges, work = trace.ranges, trace.work
    of_ranges = _keys(matches, matches.of_ranges, ranges["name"], own, column).with_columns(
        ranges.select("is_mark", self_cpu_ns=_col("self_ns"))
    )
    of_work = _keys(matches, matches.of_work, work["name"], own.gather(work["range"]), column)
    busy = work.with_columns(of_work, self_device_ns=DURATION)
    if names is not None:
        busy = launched_in(ranges, busy, names)
        of_ranges = of_ranges.filter(nearest(ranges, named(ranges, names)).is_not_null())
    of_ranges = of_ranges.filter(~_col("is_mark").fill_null(value=False))
    by_work = _divided(on_device(busy), "self_device_ns", "count", key)
    by_range = _divided(of_ranges, "self_cpu_ns", "ranges", key)
    both = pl.concat([by_work, by_range], how="diagonal")
    numbers = ("count", "ranges", "self_cpu_ns", "self_device_ns")
    rows = both.group_by(key).agg(_col(name).sum() for name in numbers)
    return rows.sort(*RANGE_ORDER[:2], "ranges", key, descending=[True, True, True, False])


def _keys(matches: Matches, calls: pl.Series, names: pl.Series, own: pl.Series, column: str) -> pl.DataFrame:
    """Returns the column `keys`: for each row, the list of its lines, or of its ops."""
    said = matches.calls[column].gather(calls.set(calls == AMBIGUOUS, None))
    rows = pl.DataFrame({"keys": said, "own": own, "name": names, "call": calls})
    known = names.unique().drop_nulls()
    fused = [fused_ops(name) for name in known.cast(pl.String)]
    in_name = known.to_frame("name").with_columns(
        is_fused=pl.Series([ops is not None for ops in fused], dtype=pl.Boolean),
        in_name=pl.Series([list(ops.ops) if ops else None for ops in fused], dtype=pl.List(pl.String)),
    )
    rows = rows.join(in_name, on="name", how="left", maintain_order="left")
    is_said = _col("keys").list.len() > 0
    if column == "source_ops":
        by_name = pl.when(_col("in_name").list.len() > 0).then("in_name")
    else:
        by_name = pl.when(_col("call") == AMBIGUOUS).then(pl.lit([UNCERTAIN]))
    is_eager = _col("call").is_null() & ~_col("is_fused").fill_null(value=False) & _col("own").is_not_null()
    keys = (
        pl.when(is_said)
        .then("keys")
        .when(is_eager)
        .then(pl.concat_list("own"))
        .otherwise(pl.coalesce(by_name, pl.lit([UNKNOWN])))
    )
    return rows.select(keys=keys)


def _divided(rows: pl.DataFrame, time: str, counted: str, key: str) -> pl.DataFrame:
    """Divides the time of each row among its keys. Rows with equal lists of keys are added up first, so that
    they are divided only once."""
    groups = rows.group_by("keys").agg(_col(time).sum(), pl.len().cast(pl.Int64).alias(counted))
    return divided(groups, (time,)).select(_col("key").alias(key), time, counted)


def divided(rows: pl.DataFrame, times: Sequence[str]) -> pl.DataFrame:
    """Returns a row for each text in each row's list `keys`: `key`, and an equal part of the row's times. Nanoseconds
    that are left over go to the first keys. Rows with the same list are divided as if they were one row, so the parts
    of a key add up to this key's part of the sum of all these rows."""
    until = [_col(time).fill_null(0).cum_sum().over("keys").alias(f"until {time}") for time in times]
    rows = rows.with_columns(*until, parts=_col("keys").list.len().cast(pl.Int64))
    rows = rows.with_columns(place=pl.int_ranges(_col("parts"))).explode("keys", "place")
    shares = []
    for time in times:
        after = _col(f"until {time}") + _col("parts") - 1 - _col("place")
        shares.append((after // _col("parts") - (after - _col(time).fill_null(0)) // _col("parts")).alias(time))
    rows = rows.with_columns(shares).rename({"keys": "key"})
    return rows.drop("parts", "place", *(f"until {time}" for time in times))
