"""Turns frames into the data of tables in a page: the title, the unit and the values of each column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from opspan.printable import printable, shortened
from opspan.views.fields import Field

MOST_ROWS = 2_000
LONGEST_TEXT = 1_000  # in characters; some names have 10 kB, which would make the page slow


def table(rows: pl.DataFrame, columns: Sequence[Field], notes: Sequence[str] = ()) -> dict[str, Any]:
    """Returns the data for src/page/table.ts: the first rows, and a sentence that says how many more there are. Columns
    that `rows` does not have are left out."""
    known = [column for column in columns if column.name in rows.columns]
    shown = rows.head(MOST_ROWS)
    if more := rows.height - shown.height:
        notes = [f"{more:,} more rows are not in this page: the command line shows all", *notes]
    return {
        "columns": [_head(column, rows) for column in known],
        "values": [values(shown[column.name]) for column in known],
        "notes": list(notes),
    }


def _head(column: Field, rows: pl.DataFrame) -> dict[str, Any]:
    head: dict[str, Any] = {"name": column.name, "title": column.title, "unit": column.unit}
    if column.help:
        head["help"] = column.help
    if column.bar:
        head["of"] = rows[column.name].sum()
    return head


def values(column: pl.Series) -> list[Any]:
    """Returns values for JSON: texts with unprintable characters made visible, and null for NaN and infinities."""
    if column.dtype in (pl.String, pl.Categorical, pl.Enum):
        return [None if value is None else text(value) for value in column.cast(pl.String).to_list()]
    if column.dtype.is_float():
        column = column.fill_nan(None)
        return column.set(column.is_infinite(), None).to_list()
    return column.to_list()


def text(value: str, longest: int = LONGEST_TEXT) -> str:
    return shortened(printable(value), longest)


def numbered(column: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Returns the distinct texts in order of first occurrence, and for each row the number of its text, or null."""
    texts = column.drop_nulls().unique(maintain_order=True)
    numbers = pl.DataFrame({"text": texts, "number": pl.int_range(len(texts), dtype=pl.Int32, eager=True)})
    rows = column.alias("text").to_frame().join(numbers, on="text", how="left", maintain_order="left")
    return texts, rows["number"]


def sizes(tree: pl.DataFrame, measures: Sequence[str]) -> pl.Series:
    """Returns the size of each row of a tree, from 0 to 1. Each measure of a row is divided by the sum of the measure
    over the roots; the size is the largest of these shares."""
    shares = [pl.col(measure) / pl.col(measure).filter(pl.col("parent").is_null()).sum() for measure in measures]
    return tree.select(size=pl.max_horizontal(shares).fill_nan(0).fill_null(0))["size"]


def renumbered(rows: pl.DataFrame) -> pl.DataFrame:
    """Sorts some rows of a tree by `row`, and numbers them anew. In `rows`, `parent` is the `row` of the parent; in the
    result, it is the index of the parent. So `rows` must have all ancestors of its rows."""
    rows = rows.sort("row")
    places = rows.select("row").with_row_index("place")
    return rows.rename({"parent": "above"}).join(
        places.rename({"row": "above", "place": "parent"}), on="above", how="left", maintain_order="left"
    )
