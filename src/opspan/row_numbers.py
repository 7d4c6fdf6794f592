"""The type of row numbers. polars has engines that number rows with 32 bits, and engines that do it with 64 bits; where
both are installed, it takes one of 64 bits. polars joins and stacks columns of row numbers only if all have one type.
"""

from __future__ import annotations

import polars as pl

ROW_NUMBER = pl.get_index_type()
