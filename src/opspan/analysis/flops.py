"""Counts the floating-point operations of each op, as torch.profiler shows them with `with_flops`.

    flops(ranges) -> how many operations each range has; null if it is unknown.

The formulas in TORCH are those of torch.profiler, for the same ops. FURTHER has the other products of product_rules.py.
An op of FURTHER counts only if no op around it counts, and no op of TORCH inside it counts. For example, aten::conv2d
counts, so the aten::convolution inside it does not. A multiplication and an addition are two operations.
"""

from __future__ import annotations

from math import prod

import polars as pl

from opspan.analysis.each_op import are_around, is_inside, of_each
from opspan.analysis.op_cost import UNKNOWN, Formula, Sizes, Values, cost
from opspan.analysis.product_rules import PRODUCTS
from opspan.analysis.products import for_each, matrices, out_sizes
from opspan.element_types import names_in
from opspan.inputs import values_of
from opspan.labels import parse_sizes
from opspan.row_numbers import ROW_NUMBER
from opspan.tables.schema import NAME


def _elements(sizes: Sizes, _: Values) -> int:
    return int(prod(sizes[0]))


def _conv2d(sizes: Sizes, values: Values) -> int:
    """Counts as torch.profiler does. Like torch.profiler, it fails if the padding is a word ("same")."""
    batch, channels, height, width = sizes[0]
    out_channels, _, *kernel = sizes[1]
    stride, padding, dilation = (for_each(value, 2) for value in values[3:6])
    out = out_sizes((height, width), kernel, stride, padding, dilation)
    return 2 * int(batch * channels * out_channels * prod(out) * prod(kernel)) // int(values[6])


TORCH: dict[str, Formula] = {
    "aten::mm": matrices(),
    "aten::addmm": matrices(1),
    "aten::bmm": matrices(),
    "aten::baddbmm": matrices(1),
    "aten::conv2d": _conv2d,
    "aten::mul": _elements,
    "aten::add": _elements,
}
FURTHER = {name: rule for name, rule in PRODUCTS.items() if name not in TORCH}


def flops(ranges: pl.DataFrame) -> pl.Series:
    """Returns how many operations each range has. `ranges` must be nested."""
    counts = of_each(ranges, [*TORCH, *FURTHER], lambda *row: (_count(*row),), {"flops": pl.Int64})
    rows = pl.DataFrame({"row": pl.int_range(ranges.height, dtype=ROW_NUMBER, eager=True)})
    column = rows.join(counts, on="row", how="left", maintain_order="left")["flops"]
    is_further = ranges["name"].is_in(pl.Series([*FURTHER], dtype=NAME).implode()) & column.is_not_null()
    if not is_further.any():
        return column
    by_torch = (column.is_not_null() & ~is_further).arg_true()
    again = is_inside(ranges, column.is_not_null()) | are_around(ranges, is_further, by_torch)
    none = pl.Series([None], dtype=pl.Int64).new_from_index(0, ranges.height)
    return column.zip_with(~(is_further & again), none)


def _count(name: str, sizes: str, inputs: str | None, types: str | None) -> int | None:
    if types is not None and types.startswith('[""'):
        return None  # an empty type means that sizes are not recorded either, for example for a nested tensor
    try:
        known, values = parse_sizes(sizes), values_of(inputs)
        if name in TORCH:
            number = TORCH[name](known, values)
        else:
            number = cost(FURTHER[name], known, values, None if types is None else names_in(types)).flops
    except UNKNOWN:
        return None
    return number if number is None or 0 <= number < 1 << 63 else None
