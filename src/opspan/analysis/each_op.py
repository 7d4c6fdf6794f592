"""Asks something of each op of some names, once for all that are alike; and which ranges lie in others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import polars as pl

from opspan.analysis.nest import nearest
from opspan.tables.schema import NAME


def of_each(
    ranges: pl.DataFrame,
    names: Collection[str],
    find: Callable[[str, str, str | None, str | None], Sequence[Any]],
    schema: Mapping[str, Any],
) -> pl.DataFrame:
    """row, and what `find` says of the name, sizes, inputs and types of each range of these names that has sizes. It is
    asked once for all that are alike."""
    chosen = ranges["name"].is_in(pl.Series([*names], dtype=NAME).implode()) & ranges["sizes"].is_not_null()
    some = ranges.select("name", "sizes", "inputs", "input_types").with_row_index("row").filter(chosen)
    distinct = some.drop("row").unique()
    said = pl.DataFrame([find(*row) for row in distinct.iter_rows()], schema=schema, orient="row")
    found = some.join(
        pl.concat([distinct, said], how="horizontal"), on=distinct.columns, nulls_equal=True, maintain_order="left"
    )
    return found.select("row", *schema)


def is_inside(ranges: pl.DataFrame, marked: pl.Series) -> pl.Series:
    """Which ranges lie in a marked one."""
    return nearest(ranges, marked).gather(ranges["parent"]).is_not_null()


def are_around(ranges: pl.DataFrame, marked: pl.Series, rows: pl.Series) -> pl.Series:
    """Which of the marked ranges have one of `rows` inside."""
    found = marked.new_from_index(0, 0) if not len(marked) else marked & False
    while len(rows):
        rows = nearest(ranges, marked).gather(ranges["parent"].gather(rows)).drop_nulls().unique()
        found = found.scatter(rows, values=True)
    return found
