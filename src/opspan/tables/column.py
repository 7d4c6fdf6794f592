"""Defines the classes that describe the columns and tables of a Trace. schema.py has the tables."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

NAME = pl.Categorical
RANK = "Rank in the program if it is known, else the number of the file or folder: docs/ranks.md."
I32, I64, U32, U64 = pl.Int32, pl.Int64, pl.UInt32, pl.UInt64
Dtype = pl.DataType | type[pl.DataType]


class Column(NamedTuple):
    name: str
    dtype: Dtype
    sentence: str
    unit: str = ""
    # the column ("table.id") whose ids this column refers to; joining traces adds the same offset to both columns
    refers: str = ""
    is_length: bool = False  # whether this is a duration, which does not change with the clock


class TableSchema(NamedTuple):
    name: str
    sentence: str
    columns: tuple[Column, ...]

    @property
    def schema(self) -> dict[str, Dtype]:
        return {column.name: column.dtype for column in self.columns}

    @property
    def times(self) -> list[str]:
        """The columns with times on the trace's clock."""
        return [column.name for column in self.columns if column.unit == "ns" and not column.is_length]
