"""How many floating-point operations an op did, from the sizes and values of its inputs.

    flops(ranges) -> a column, null where it is not known

Formulas of TORCH are those of torch.profiler (with_flops), with its numbers and its names of ops. Those of FURTHER are
for ops that torch.profiler has none for. Each of these counts only where no op around it has counted already, as
aten::conv2d has for the aten::convolution inside it. A multiplication and an addition are two operations.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import prod
from typing import Any

import polars as pl

from opspan.analysis.nest import nearest
from opspan.element_types import names_in, type_of
from opspan.inputs import values_of
from opspan.labels import parse_sizes
from opspan.tables.schema import NAME

# What formulas raise of sizes and values that an op cannot have had, or that are not in the trace.
UNKNOWN = (ValueError, TypeError, IndexError, AttributeError, KeyError, ZeroDivisionError, OverflowError)
Sizes = Sequence[Any]  # of each argument: a list of integers; of a list of tensors, a list of these
Formula = Callable[[Sizes, Sequence[Any]], "int | None"]


def _elements(at: int) -> Formula:
    return lambda sizes, _: int(prod(sizes[at]))


def _product(at: int) -> Formula:
    """Returns the formula for the product of two matrices or batches: the argument `at` and the next one."""

    def formula(sizes: Sizes, _: Sequence[Any]) -> int | None:
        one, other = sizes[at], sizes[at + 1]
        if len(one) < 2 or len(other) < 2 or not one[-1]:
            return None
        return 2 * int(prod(one) * other[-1])

    return formula


def _conv2d(sizes: Sizes, values: Sequence[Any]) -> int | None:
    """As torch.profiler has it: not of a padding that is a word ("same")."""
    batch, channels, height, width = sizes[0]
    out_channels, _, *kernel = sizes[1]
    stride, padding, dilation = (for_each(value, 2) for value in values[3:6])
    out = out_sizes((height, width), kernel, stride, padding, dilation)
    return 2 * int(batch * channels * out_channels * prod(out) * prod(kernel)) // int(values[6])


def for_each(value: list[int], dimensions: int) -> list[int]:
    """One number is for all dimensions."""
    return list(value) * dimensions if len(value) == 1 else list(value)


def out_sizes(
    sizes: Sequence[int], kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> list[int]:
    return [
        (size + 2 * around - apart * (width - 1) - 1) // step + 1
        for size, width, step, around, apart in zip(sizes, kernel, stride, padding, dilation, strict=True)
    ]


def _convolution(sizes: Sizes, values: Sequence[Any]) -> int | None:
    """input, weight, bias, stride, padding, dilation, transposed, ...: of any number of dimensions."""
    (batch, _, *inner), (_, _, *kernel) = sizes[0], sizes[1]
    stride, padding, dilation, transposed = values[3:7]
    each = [for_each(value, len(kernel)) for value in (stride, padding, dilation)]
    out = inner if transposed else out_sizes(inner, kernel, *each)
    return 2 * int(batch * prod(out) * prod(sizes[1]))


def _convolution_backward(sizes: Sizes, values: Sequence[Any]) -> int | None:
    """grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask: the
    gradients of input and of weight each take what the forward took."""
    gradient, given, weight = sizes[:3]
    transposed, mask = values[7], values[10]
    forward = 2 * int(given[0] * prod((given if transposed else gradient)[2:]) * prod(weight))
    return forward * sum(map(bool, mask[:2]))


def _attention(sizes: Sizes, _: Sequence[Any]) -> int | None:
    query, key, value = sizes[:3]
    *batch, queries, width = query
    return 2 * int(prod(batch) * queries * key[-2] * (width + value[-1]))


def _attention_backward(sizes: Sizes, _: Sequence[Any]) -> int | None:
    """The scores again; then the gradients of scores, value, query and key."""
    _, query, key, value = sizes[:4]
    *batch, queries, width = query
    return 2 * int(prod(batch) * queries * key[-2] * (3 * width + 2 * value[-1]))


TORCH: dict[str, Formula] = {
    "aten::mm": _product(0),
    "aten::addmm": _product(1),
    "aten::bmm": _product(0),
    "aten::baddbmm": _product(1),
    "aten::conv2d": _conv2d,
    "aten::mul": _elements(0),
    "aten::add": _elements(0),
}
_ATTENTIONS = (
    "flash_attention",
    "flash_attention_for_cpu",
    "efficient_attention",
    "cudnn_attention",
    "fused_attention_overrideable",
)
FURTHER: dict[str, Formula] = {
    "aten::_scaled_mm": _product(0),  # times the values that an element holds
    "aten::convolution": _convolution,
    "aten::_convolution": _convolution,
    "aten::convolution_backward": _convolution_backward,
    **{f"aten::_scaled_dot_product_{name}": _attention for name in _ATTENTIONS},
    **{f"aten::_scaled_dot_product_{name}_backward": _attention_backward for name in _ATTENTIONS},
}


def flops(ranges: pl.DataFrame) -> pl.Series:
    """`ranges` must be nested."""
    found = of_each(ranges, [*TORCH, *FURTHER], lambda *row: (_count(*row),), {"flops": pl.Int64})
    rows = pl.DataFrame({"row": pl.int_range(ranges.height, dtype=pl.UInt32, eager=True)})
    column = rows.join(found, on="row", how="left", maintain_order="left")["flops"]
    is_further = ranges["name"].is_in(pl.Series([*FURTHER], dtype=NAME).implode()) & column.is_not_null()
    if not is_further.any():
        return column
    # The ops of FURTHER do not count in an op that has counted.
    none = pl.Series([None], dtype=pl.Int64).new_from_index(0, ranges.height)
    return column.zip_with(~(is_further & is_inside(ranges, column.is_not_null())), none)


def of_each(
    ranges: pl.DataFrame,
    names: Collection[str],
    find: Callable[[str, str, str | None, str | None], Sequence[Any]],
    schema: Mapping[str, Any],
) -> pl.DataFrame:
    """row, and what `find` says of the name, sizes, inputs and types of each range of these names that has sizes. It is
    asked once for all that are alike."""
    chosen = ranges["name"].is_in(pl.Series([*names], dtype=NAME).implode()) & ranges["sizes"].is_not_null()
    some = ranges.select("name", "sizes", "inputs", "input_types").with_row_index("row").filter(chosen)
    distinct = some.drop("row").unique()
    said = pl.DataFrame([find(*row) for row in distinct.iter_rows()], schema=schema, orient="row")
    found = some.join(
        pl.concat([distinct, said], how="horizontal"), on=distinct.columns, nulls_equal=True, maintain_order="left"
    )
    return found.select("row", *schema)


def is_inside(ranges: pl.DataFrame, marked: pl.Series) -> pl.Series:
    """Which ranges lie in a marked one."""
    return nearest(ranges, marked).gather(ranges["parent"]).is_not_null()


def _count(name: str, sizes: str, inputs: str | None, types: str | None) -> int | None:
    formula = TORCH.get(name) or FURTHER[name]
    if types is not None and types.startswith('[""'):
        return None  # a nested tensor, say: it has no sizes that are known
    try:
        found = formula(parse_sizes(sizes), values_of(inputs))
        if found is not None and name == "aten::_scaled_mm" and (type_ := type_of(names_in(types or '[""]')[0])):
            found *= type_.values
    except UNKNOWN:
        return None
    return found if found is None or 0 <= found < 1 << 63 else None
