"""Counts the compilations of torch.compile, sums their time, and finds recompiled functions and graph breaks.

    figures(trace) -> the counts of each process that compiled
    compiled_again(trace) -> the functions that were compiled several times, with their reasons
    break_lines(trace) -> the lines at which graphs broke
    phases(rows) -> the time of each phase, without the phases inside it

The figures come from the tables `compilations` and `graph_breaks`. If the process of a compile log is in no trace,
these tables have the rows of the log once for each rank. Here such rows count once.

`compile_id` (0/1, !2/0/1) ends with the position of the compilation among those of its function, from 0. If this is not
0, the compilation counts as `again`, except for backwards.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.provenance import line_text
from opspan.analysis.spans import bounded
from opspan.tables import Tables

_col = pl.col
_IN_A_PROCESS = ("compilations", "again", "backward", "ns", "breaks", "lines")
# Each phase is a part of the one before it.
_PHASES = {
    "Dynamo": "dynamo_ns",
    "AOTAutograd": "aot_autograd_ns",
    "Inductor": "inductor_ns",
    "writing and loading code": "code_gen_ns",
    "compiling kernels": "triton_ns",
}
_FRAME = r"^(?:!\d+/)?(\d+)/\d+$"
_NUMBER = r"^(?:!\d+/)?\d+/(\d+)$"
_PLACE = line_text(
    _col("file").cast(pl.String).fill_null("?"), _col("line").cast(pl.String).fill_null("?"), _col("function")
).alias("place")


def figures(trace: Tables) -> pl.DataFrame:
    """Returns a row for each process: `pid`, the number of `compilations`, how many of these are `again`, how many are
    of a `backward`, the time `ns` of all compilations, the number of graph `breaks`, and the number of `lines` with
    breaks."""
    rows = compilations_of(trace)
    compiled = rows.group_by("pid", maintain_order=True).agg(
        compilations=pl.len().cast(pl.Int64),
        again=_col("is_again").sum().cast(pl.Int64),
        backward=_col("is_backward").fill_null(value=False).sum().cast(pl.Int64),
        ns=_sum(_col("duration_ns")),
    )
    broken = (
        _once(trace.graph_breaks)
        .group_by("pid", maintain_order=True)
        .agg(breaks=pl.len().cast(pl.Int64), lines=pl.struct("file", "line").n_unique().cast(pl.Int64))
    )
    both = compiled.join(broken, on="pid", how="full", coalesce=True, nulls_equal=True, maintain_order="left_right")
    return both.select("pid", *(_col(name).fill_null(0) for name in _IN_A_PROCESS))


def compilations_of(trace: Tables) -> pl.DataFrame:
    """Returns the compilations. Adds `frame` (the function's id, taken from `compile_id`) and `is_again`."""
    number = _col("compile_id").cast(pl.String)
    is_again = (number.str.extract(_NUMBER).str.strip_chars_start("0") != "").fill_null(value=False)
    return _once(trace.compilations).with_columns(
        frame=number.str.extract(_FRAME),
        is_again=is_again & ~_col("is_backward").fill_null(value=False),
    )


def compiled_again(trace: Tables) -> pl.DataFrame:
    """Returns a row for each function that was compiled several times: `pid`, `rank`, `place` (model.py:12 forward),
    `times` (how often it was compiled), `again` (how many of these compilations are `again`), `ns` (the time of the
    `again` ones) and `reasons` (the first line of each recompile reason, without its compile id and comment). The row
    with most ns comes first."""
    rows = compilations_of(trace)
    if not rows["is_again"].any():
        return rows.clear().select("pid", "rank", place="file", times="id", again="id", ns="id", reasons="file")
    reason = _col("recompile_reason").str.extract(r"^(?:!?[\d/]+: )?([^\n]+)").str.strip_chars()
    reason = reason.str.replace(r"\s{2,}#.*$", "")
    forward = rows.filter(~_col("is_backward").fill_null(value=False))
    grouped = forward.group_by("pid", "frame", "file", "line", "function", maintain_order=True).agg(
        _col("rank").first(),
        times=pl.len().cast(pl.Int64),
        again=_col("is_again").sum().cast(pl.Int64),
        ns=_sum(_col("duration_ns").filter("is_again")),
        reasons=reason.filter(_col("is_again")).drop_nulls().unique(maintain_order=True),
    )
    grouped = grouped.filter(_col("again") > 0).sort("ns", "again", descending=True, maintain_order=True)
    return grouped.select("pid", "rank", _PLACE, "times", "again", "ns", "reasons")


def break_lines(trace: Tables) -> pl.DataFrame:
    """Returns a row for each reason at each line where graphs broke: `pid`, `rank`, `place` (the line), `reason` and
    `times` (how many breaks). The row with most breaks comes first."""
    rows = _once(trace.graph_breaks).with_columns(_col("reason").cast(pl.String), _PLACE)
    grouped = rows.group_by("pid", "file", "line", "reason", maintain_order=True).agg(
        _col("rank", "place").first(), times=pl.len().cast(pl.Int64)
    )
    return grouped.sort("times", descending=True, maintain_order=True).select("pid", "rank", "place", "reason", "times")


def phases(rows: pl.DataFrame) -> list[tuple[str, int]]:
    """Returns the title and the time of each phase, the longest first. The time does not include the phases inside.
    In rows of a backward, dynamo_ns and aot_autograd_ns are null."""
    names = list(_PHASES.values())
    times = []
    for place, (title, name) in enumerate(_PHASES.items()):
        inside = pl.coalesce(*names[place + 1 :], pl.lit(0)) if names[place + 1 :] else pl.lit(0)
        own = (_col(name) - inside).clip(0)
        times.append((title, int(rows.select(_sum(own)).item() or 0)))
    return sorted((one for one in times if one[1]), key=lambda one: -one[1])


def _sum(ns: pl.Expr) -> pl.Expr:
    return bounded(ns.cast(pl.Int128).sum())


def _once(rows: pl.DataFrame) -> pl.DataFrame:
    if rows["rank"].n_unique() < 2:
        return rows
    others = [name for name in rows.columns if name not in ("id", "rank")]
    # Equal rows of one rank are different events. `counted` numbers them, so that `unique` keeps them.
    numbered = rows.with_columns(counted=pl.int_range(pl.len()).over("rank", *others))
    return numbered.unique([*others, "counted"], keep="first", maintain_order=True).drop("counted")
