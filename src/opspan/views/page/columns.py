"""Frames as the tables of a page: columns with a title and a unit, values by column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from opspan.printable import printable, shortened
from opspan.views.fields import Field

MOST_ROWS = 2_000
LONGEST_TEXT = 1_000  # characters; a page is no place for names of 10 kB


def table(rows: pl.DataFrame, columns: Sequence[Field], notes: Sequence[str] = ()) -> dict[str, Any]:
    """What src/page/table.ts shows: the first rows, and a sentence on the others. Columns that `rows` does not have are
    left out."""
    there = [column for column in columns if column.name in rows.columns]
    shown = rows.head(MOST_ROWS)
    more = rows.height - shown.height
    said = [f"{more:,} more rows are not in this page: the command line shows all"] if more else []
    return {
        "columns": [_head(column, rows) for column in there],
        "values": [values(shown[column.name]) for column in there],
        "notes": [*said, *notes],
    }


def _head(column: Field, rows: pl.DataFrame) -> dict[str, Any]:
    head: dict[str, Any] = {"name": column.name, "title": column.title, "unit": column.unit}
    if column.help:
        head["help"] = column.help
    if column.bar:
        head["of"] = rows[column.name].sum()
    return head


def values(column: pl.Series) -> list[Any]:
    """As JSON has them: texts that show all they hold, no number that is none."""
    if column.dtype in (pl.String, pl.Categorical, pl.Enum):
        return [None if value is None else text(value) for value in column.cast(pl.String).to_list()]
    if column.dtype.is_float():
        column = column.fill_nan(None)
        return column.set(column.is_infinite(), None).to_list()
    return column.to_list()


def text(value: str, longest: int = LONGEST_TEXT) -> str:
    return shortened(printable(value), longest)


def numbered(column: pl.Series) -> tuple[pl.Series, pl.Series]:
    """The texts in the order in which they come, and for each row the number of its text; null: none."""
    texts = column.drop_nulls().unique(maintain_order=True)
    numbers = pl.DataFrame({"text": texts, "number": pl.int_range(len(texts), dtype=pl.Int32, eager=True)})
    rows = column.alias("text").to_frame().join(numbers, on="text", how="left", maintain_order="left")
    return texts, rows["number"]


def sizes(tree: pl.DataFrame, measures: Sequence[str]) -> pl.Series:
    """How large each row of a tree is: its largest share of what the rows without a parent have of any measure."""
    shares = [pl.col(measure) / pl.col(measure).filter(pl.col("parent").is_null()).sum() for measure in measures]
    return tree.select(size=pl.max_horizontal(shares).fill_nan(0).fill_null(0))["size"]


def renumbered(rows: pl.DataFrame) -> pl.DataFrame:
    """Some rows of a tree, in its order, with all that these are in: `parent`, which names a `row`, becomes a place
    among them."""
    rows = rows.sort("row")
    places = rows.select("row").with_row_index("place")
    return rows.rename({"parent": "above"}).join(
        places.rename({"row": "above", "place": "parent"}), on="above", how="left", maintain_order="left"
    )
