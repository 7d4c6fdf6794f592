"""Converts columns of values to columns of JSON texts. Each function except `object_of` processes all rows at once,
returns a polars expression or a Series, and escapes characters where JSON requires it. To write a JSON object for each
row of a frame, use native.json_items instead."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# Characters that must be escaped in JSON, and three more. The last two would end a line in JavaScript.
_ESCAPED = [*(chr(number) for number in range(0x20)), '"', "\\", "\x7f", "\u2028", "\u2029"]
_ESCAPES = [json.dumps(char)[1:-1] if char != "\x7f" else "\\u007f" for char in _ESCAPED]


def object_of(text: str | None) -> dict[str, Any]:
    """Returns the JSON object in a single text, or an empty dict if the text is missing or is not a JSON object."""
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def text(value: pl.Expr) -> pl.Expr:
    escaped = value.cast(pl.String).str.replace_many(_ESCAPED, _ESCAPES)
    return pl.concat_str(pl.lit('"'), escaped, pl.lit('"'))


def real(value: pl.Expr) -> pl.Expr:
    """Returns the values as JSON numbers. Infinities and NaN become strings, because JSON has no such numbers."""
    shown = value.cast(pl.String)
    return pl.when(value.is_finite()).then(shown).otherwise(pl.concat_str(pl.lit('"'), shown, pl.lit('"')))


def written(values: pl.Series, form: Callable[[pl.Expr], pl.Expr]) -> pl.Series:
    """Applies one of the functions above to a column, as in `written(names, text)`."""
    return values.to_frame("").select(form(pl.col(""))).to_series()


def hexes(raw: npt.NDArray[np.uint8], counts: npt.NDArray[Any] | int) -> pl.Series:
    """Returns the first `counts` bytes of each row as a JSON string of hex digits."""
    import numpy as np  # imported here, because other functions of this module do not need numpy

    width = raw.shape[1]
    if not len(raw) or not width:
        return pl.Series(['""'] * len(raw), dtype=pl.String)
    digits = np.array([f"{byte:02x}" for byte in range(256)], dtype="S2")
    digits = digits[raw].reshape(len(raw), width).view(f"S{2 * width}")[:, 0]
    shown = pl.Series(digits.astype(str), dtype=pl.String)
    ends = pl.Series(np.full(len(raw), counts) if isinstance(counts, int) else counts).cast(pl.Int64)
    return '"' + shown.str.slice(0, ends * 2) + '"'
