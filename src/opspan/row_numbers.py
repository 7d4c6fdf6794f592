"""Defines the type of row numbers. polars counts rows with 32 or 64 bits, depending on which of its two packages is
installed; if both are, it uses 64 bits. polars joins and stacks columns of row numbers only if all have the same
type."""

from __future__ import annotations

import polars as pl

ROW_NUMBER = pl.get_index_type()
