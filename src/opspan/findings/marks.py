"""Ranges that say a cause by themselves: for each range, whether it is one of these, or lies in one.

    compiling(ranges) -> Boolean: in a range in which torch compiles
    falling_back(ranges) -> Boolean: in an op that the host runs because a device has no kernel for it

Ranges must be nested.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.nest import nearest

_col = pl.col
# Ranges in which torch compiles; names of several releases.
_COMPILING = (
    r"^torch\._dynamo\.convert_frame|^_?compile\.|convert_frame|compile_inner|^entire_frame_compile|^backend_compile|"
    r"^entire_backward_compile|inductor_compile|compile_fx|^create_aot_dispatcher_function"
)
# What torch's fallback calls to move an op's inputs to the host; the op is the range around it.
_MOVES = "aten::_to_cpu"


def compiling(ranges: pl.DataFrame) -> pl.Series:
    return _inside(ranges, _named(ranges, _COMPILING))


def falling_back(ranges: pl.DataFrame) -> pl.Series:
    return _inside(ranges, fallbacks(ranges))


def fallbacks(ranges: pl.DataFrame) -> pl.Series:
    """The ops themselves."""
    parents = ranges["parent"].filter(_named(ranges, f"^{_MOVES}$")).drop_nulls().unique()
    return pl.Series([False]).new_from_index(0, ranges.height).scatter(parents, True)


def _named(ranges: pl.DataFrame, pattern: str) -> pl.Series:
    names = ranges.select(_col("name").unique()).filter(_col("name").cast(pl.String).str.contains(pattern))["name"]
    return ranges["name"].is_in(names.implode()).fill_null(value=False)


def _inside(ranges: pl.DataFrame, marked: pl.Series) -> pl.Series:
    return nearest(ranges, marked).is_not_null() if marked.any() else marked
