"""How many floating-point operations an op did, as torch.profiler shows them: `with_flops`.

    flops(ranges) -> a column, null where it is not known

Formulas of TORCH are those of torch.profiler (with_flops), with its numbers and its names of ops. Those of FURTHER are
for ops that torch.profiler has none for: the products of product_rules.py. Each of these counts only where no op around
it, and none of torch.profiler's inside it, has counted already, as aten::conv2d has for the aten::convolution inside
it. A multiplication and an addition are two operations.
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
from opspan.tables.schema import NAME


def _elements(sizes: Sizes, _: Values) -> int:
    return int(prod(sizes[0]))


def _conv2d(sizes: Sizes, values: Values) -> int:
    """As torch.profiler has it: not of a padding that is a word ("same")."""
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
    """`ranges` must be nested."""
    found = of_each(ranges, [*TORCH, *FURTHER], lambda *row: (_count(*row),), {"flops": pl.Int64})
    rows = pl.DataFrame({"row": pl.int_range(ranges.height, dtype=pl.UInt32, eager=True)})
    column = rows.join(found, on="row", how="left", maintain_order="left")["flops"]
    is_further = ranges["name"].is_in(pl.Series([*FURTHER], dtype=NAME).implode()) & column.is_not_null()
    if not is_further.any():
        return column
    by_torch = (column.is_not_null() & ~is_further).arg_true()
    again = is_inside(ranges, column.is_not_null()) | are_around(ranges, is_further, by_torch)
    none = pl.Series([None], dtype=pl.Int64).new_from_index(0, ranges.height)
    return column.zip_with(~(is_further & again), none)


def _count(name: str, sizes: str, inputs: str | None, types: str | None) -> int | None:
    if types is not None and types.startswith('[""'):
        return None  # a nested tensor, say: it has no sizes that are known
    try:
        known, values = parse_sizes(sizes), values_of(inputs)
        if name in TORCH:
            found = TORCH[name](known, values)
        else:
            found = cost(FURTHER[name], known, values, None if types is None else names_in(types)).flops
    except UNKNOWN:
        return None
    return found if found is None or 0 <= found < 1 << 63 else None
