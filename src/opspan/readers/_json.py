"""Columns of values as JSON text, for data that a trace only carries along. No loops over rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


def texts(values: pl.Series) -> pl.Series:
    """Texts as JSON strings."""
    wrapped = pl.struct(pl.lit(values).cast(pl.String).alias("")).struct.json_encode()
    written = pl.select(wrapped.str.strip_prefix('{"":').str.strip_suffix("}")).to_series()
    return written.zip_with(values.is_not_null(), pl.Series([None], dtype=pl.String))


def floats(values: pl.Series) -> pl.Series:
    """JSON has no infinities and no NaN: those become strings."""
    written = values.cast(pl.String)
    return pl.select(
        pl.when(pl.lit(values).is_finite()).then(pl.lit(written)).otherwise('"' + pl.lit(written) + '"')
    ).to_series()


def hexes(raw: npt.NDArray[np.uint8], counts: npt.NDArray[Any] | int) -> pl.Series:
    """The first `counts` bytes of each row as a JSON string of hex digits."""
    import numpy as np  # whoever has bytes as an array has it already

    width = raw.shape[1]
    if not len(raw) or not width:
        return pl.Series(['""'] * len(raw), dtype=pl.String)
    digits = np.array([f"{byte:02x}" for byte in range(256)], dtype="S2")
    digits = digits[raw].reshape(len(raw), width).view(f"S{2 * width}")[:, 0]
    written = pl.Series(digits.astype(str), dtype=pl.String)
    ends = pl.Series(np.full(len(raw), counts) if isinstance(counts, int) else counts).cast(pl.Int64)
    return '"' + written.str.slice(0, ends * 2) + '"'


def members(keys: pl.Series, values: pl.Series) -> pl.Series:
    """`"key": value` for each row; a value that is null is the null of JSON."""
    return texts(keys) + ": " + values.fill_null("null")
