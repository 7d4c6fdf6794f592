"""JSON written in columns: an expression gives the text of a value, or of an object, for every row at once.

A null value is left out of its object. Texts are escaped, whatever is in them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# What JSON must have escaped. The three last are line ends to JavaScript, or end a script to HTML.
_ESCAPED = [*(chr(number) for number in range(0x20)), '"', "\\", "\x7f", "\u2028", "\u2029"]
_ESCAPES = [json.dumps(char)[1:-1] if char != "\x7f" else "\\u007f" for char in _ESCAPED]


def text(value: pl.Expr) -> pl.Expr:
    escaped = value.cast(pl.String).str.replace_many(_ESCAPED, _ESCAPES)
    return pl.concat_str(pl.lit('"'), escaped, pl.lit('"'))


def number(value: pl.Expr) -> pl.Expr:
    return value.cast(pl.String)


def real(value: pl.Expr) -> pl.Expr:
    """JSON knows no infinities and no NaN: those become texts."""
    shown = value.cast(pl.String)
    return pl.when(value.is_finite()).then(shown).otherwise(pl.concat_str(pl.lit('"'), shown, pl.lit('"')))


EXACT_NS = 10**15  # as microseconds, a real number has room for every digit of what is below


def microseconds(ns: pl.Expr, most_ns: int | None = None) -> pl.Expr:
    """Nanoseconds as microseconds, exactly: 1234567 is 1234.567. `most_ns`: none is larger; if that is known, it may be
    three times as fast."""
    if most_ns is not None and most_ns < EXACT_NS:
        # Rounded: polars divides by a constant by multiplying with 1 / 1000, and 43 would become 0.043000000000000003.
        return (ns / 1000).round(3).cast(pl.String)
    whole = ns.abs()
    sign = pl.when(ns < 0).then(pl.lit("-")).otherwise(pl.lit(""))
    return pl.concat_str(sign, whole // 1000, pl.lit("."), (whole % 1000).cast(pl.String).str.zfill(3))


def constant(value: object) -> pl.Expr:
    return pl.lit(json.dumps(value))


def members(values: Mapping[str, pl.Expr], never_null: Collection[str] = ()) -> pl.Expr:
    """{"name": value, ...} of those values that are not null; values are JSON texts. Those of which it is known that
    none is null take half of the time."""
    parts: list[list[pl.Expr]] = []
    is_open = False  # the last part has only such that are never null, and can take another
    for key, value in values.items():
        label = f"{json.dumps(key)}: "
        if is_open and key in never_null:
            parts[-1] += [pl.lit(", " + label), value]
        else:
            parts.append([pl.lit(label), value])
        is_open = key in never_null
    if len(parts) == 1 and is_open:
        return pl.concat_str(pl.lit("{"), *parts[0], pl.lit("}"))
    inner = pl.concat_str([pl.concat_str(part) for part in parts], separator=", ", ignore_nulls=True)
    return pl.concat_str(pl.lit("{"), inner, pl.lit("}"))


def written(values: pl.Series, how: Callable[[pl.Expr], pl.Expr]) -> pl.Series:
    """One of the above, of a column that is there: `written(names, text)`."""
    return values.to_frame("").select(how(pl.col(""))).to_series()


def hexes(raw: npt.NDArray[np.uint8], counts: npt.NDArray[Any] | int) -> pl.Series:
    """The first `counts` bytes of each row as a JSON string of hex digits."""
    import numpy as np  # whoever has bytes as an array has it already

    width = raw.shape[1]
    if not len(raw) or not width:
        return pl.Series(['""'] * len(raw), dtype=pl.String)
    digits = np.array([f"{byte:02x}" for byte in range(256)], dtype="S2")
    digits = digits[raw].reshape(len(raw), width).view(f"S{2 * width}")[:, 0]
    shown = pl.Series(digits.astype(str), dtype=pl.String)
    ends = pl.Series(np.full(len(raw), counts) if isinstance(counts, int) else counts).cast(pl.Int64)
    return '"' + shown.str.slice(0, ends * 2) + '"'
