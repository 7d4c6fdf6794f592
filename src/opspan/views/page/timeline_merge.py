"""Shapes that are too short to be seen in the whole trace are drawn together, so that no page is too large.

    merged(shapes, most) -> a length in ns, and for each shape the number of the block that it is in, from 0

Shapes come by place (a row of a lane) and in order of their start; so do blocks. Those under the length are in one
block with their neighbours of the same place, as long as none that is kept lies between them and they begin in the same
stretch of FEW times the length; all others are blocks of one. The length is the shortest power of two, or nothing, with
which there are no more than `most` blocks. Where shapes of a place overlap (`is_crowded`), they are kept together
whatever their length. docs/page.md says it for people.
"""

from __future__ import annotations

import polars as pl

FEW = 4
_col = pl.col
_LONGEST = 61  # 2 ** 61 * FEW is the largest that fits


def merged(shapes: pl.DataFrame, most: int) -> tuple[int, pl.Series]:
    """`shapes`: place, start_ns, length_ns, is_crowded."""
    shapes = shapes.select(
        "start_ns",
        "length_ns",
        "is_crowded",
        is_other=(_col("place") != _col("place").shift(1)).fill_null(value=True),
        until=_until(shapes),
    )
    if shapes.height <= most and not shapes["is_crowded"].any():
        return 0, pl.int_range(shapes.height, dtype=pl.UInt32, eager=True).alias("block")
    power = _least(shapes, most)
    while (begins := _begins(shapes, 2**power if power >= 0 else 0)).sum() > most and power < _LONGEST:
        power += 1
    numbers = begins.cast(pl.UInt32).cum_sum() - 1
    return (2**power if power >= 0 else 0), numbers.alias("block")


def is_alone(block: pl.Series) -> pl.Series:
    """Which shapes are drawn for themselves. `block`: in order."""
    return ((block != block.shift(1)) & (block != block.shift(-1))).fill_null(value=True)


def _until(shapes: pl.DataFrame) -> pl.Expr:
    """When the shapes before were over, where they may overlap; else none was open."""
    if not shapes["is_crowded"].any():
        return pl.lit(None, dtype=pl.Int64)
    end = _col("start_ns") + _col("length_ns").clip(upper_bound=2**63 - 1 - _col("start_ns"))
    return end.cum_max().over("place").shift(1).over("place")


def _least(shapes: pl.DataFrame, most: int) -> int:
    """The first power with which no more than `most` are kept: with any lower one there are too many blocks. -1: none
    is needed."""
    lengths = shapes["length_ns"].filter(~shapes["is_crowded"])
    if len(lengths) <= most:
        return -1
    return int(lengths.sort()[len(lengths) - most - 1]).bit_length()


def _begins(shapes: pl.DataFrame, length_ns: int) -> pl.Series:
    """Whether a block begins with the shape."""
    is_short = _col("is_crowded") | (_col("length_ns") < length_ns)
    stretch = _col("start_ns") // (FEW * max(1, length_ns))
    is_over = (_col("start_ns") >= _col("until")).fill_null(value=True)
    begins = (
        _col("is_other") | ~is_short | ~is_short.shift(1, fill_value=False) | ((stretch != stretch.shift(1)) & is_over)
    )
    return shapes.select(begins.fill_null(value=True).alias("begins"))["begins"]
