"""Calls a function for the ops that have one of the given names: once for each group of equal ops.
Also finds ranges inside or around other ranges."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import polars as pl

from opspan.analysis.nest import nearest
from opspan.tables.schema import NAME


def of_each(
    ranges: pl.DataFrame,
    names: Collection[str],
    compute: Callable[[str, str, str | None, str | None], Sequence[Any]],
    schema: Mapping[str, Any],
) -> pl.DataFrame:
    """Returns a row for each range that has one of these names and known sizes: `row`, and the results of `compute`.
    `compute` is called with name, sizes, inputs and types of the range, once for each distinct combination of these."""
    chosen = ranges["name"].is_in(pl.Series([*names], dtype=NAME).implode()) & ranges["sizes"].is_not_null()
    some = ranges.select("name", "sizes", "inputs", "input_types").with_row_index("row").filter(chosen)
    distinct = some.drop("row").unique()
    results = pl.DataFrame([compute(*row) for row in distinct.iter_rows()], schema=schema, orient="row")
    results = pl.concat([distinct, results], how="horizontal")
    rows = some.join(results, on=distinct.columns, nulls_equal=True, maintain_order="left")
    return rows.select("row", *schema)


def is_inside(ranges: pl.DataFrame, marked: pl.Series) -> pl.Series:
    """Returns, for each range, whether it lies inside a marked range."""
    return nearest(ranges, marked).gather(ranges["parent"]).is_not_null()


def are_around(ranges: pl.DataFrame, marked: pl.Series, rows: pl.Series) -> pl.Series:
    """Returns, for each range, whether it is marked and contains one of the ranges `rows`."""
    flags = marked.new_from_index(0, 0) if not len(marked) else marked & False
    while len(rows):
        rows = nearest(ranges, marked).gather(ranges["parent"].gather(rows)).drop_nulls().unique()
        flags = flags.scatter(rows, values=True)
    return flags
