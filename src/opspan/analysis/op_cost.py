"""Computes the cost of one op (operations, and bytes read and written) from sizes, values and types of its inputs.

    cost(rule, sizes, values, types) -> Cost.

Bytes are those of the op's inputs and outputs, each counted once, as if a device cached nothing between two ops.
formulas.py has the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import polars as pl

from opspan.element_types import FLOAT, INT64, NO_TENSOR, TENSOR_LIST, ElementType, type_of

# Formulas raise these exceptions if the sizes or values are missing from the trace, or cannot be right for the op.
UNKNOWN = (ValueError, TypeError, IndexError, AttributeError, KeyError, ZeroDivisionError, OverflowError)

ASSUMED = FLOAT
# Types of outputs. SUM: the type that the op computes in, but int64 for integers. MEAN: the type that the op computes
# in, but at least float32.
SUM, MEAN = "sum", "mean"
Sizes = Sequence[Any]  # for each argument, a list of integers; for a list of tensors, a list of such lists
Values = Sequence[Any]
Formula = Callable[[Sizes, Values], "int | None"]
# An output: the number of its elements, and their type. The type is a name, or None for the type that the op computes
# in. It may also be the position of an argument: then the output has the type of this argument.
OutputSize = tuple[float, "str | int | None"]
Writes = Callable[[Sizes, Values], Iterable[OutputSize]]


# The columns of costs in a frame. Numbers must be below MOST, because they are Int64.
COLUMNS = {
    "flops": pl.Int64,
    "bytes": pl.Int64,
    "type": pl.String,
    "is_assumed": pl.Boolean,
    "masked_flops": pl.Int64,
    "is_product": pl.Boolean,
}
MOST = 1 << 63


class Cost(NamedTuple):
    flops: int | None
    bytes: int | None
    type: str | None  # the type in which the op computes: fp32, bf16, ...
    is_assumed: bool  # whether a type was not in the trace and float32 was assumed
    masked: int | None = 0  # operations that a mask hides, which kernels may skip; None if the mask is unknown


@dataclass(frozen=True)
class CostRule:
    flops: Formula
    reads: Sequence[int]  # positions of arguments whose tensors are read completely
    writes: Writes
    is_product: bool = False
    # The type in which the op computes. A number: the type of the argument at this position. A tuple: the common type
    # of these arguments, unknown if they differ. A text: the name of the type. None: the strongest type of all
    # arguments that are read.
    computes_as: int | tuple[int, ...] | str | None = None
    says: str = ""  # the formula in words, for docs/costs.md
    masked: Formula | None = None  # counts the operations that a mask hides
    # Tells from the sizes whether each element of the first argument may hold two values. If so, and the trace does not
    # state the argument's type, the number of operations is unknown.
    may_be_packed: Callable[[Sizes], bool] | None = None


def cost(rule: CostRule, sizes: Sizes, values: Values, types: Sequence[str] | None) -> Cost:
    """Returns the cost, with None for unknown parts. `types` is None if the trace has no types. If opspan does not know
    a type, the bytes are unknown; the operations are still counted, because they follow from the sizes."""
    types_ = _Types(sizes, types)
    tensors = [at for at in rule.reads if at < len(sizes) and types_.is_tensor(at)]
    own = _type_computed_in(rule, tensors, types_)
    flops = _or_none(lambda: _operations(rule, rule.flops, sizes, values, own, types_))
    of_mask = rule.masked
    masked = 0 if of_mask is None else _or_none(lambda: _operations(rule, of_mask, sizes, values, own, types_))
    moved = _or_none(lambda: _bytes_moved(rule, sizes, values, tensors, own, types_))
    return Cost(flops, moved, own and own.precision, types_.is_assumed, masked)


def _type_computed_in(rule: CostRule, tensors: list[int], types: _Types) -> ElementType | None:
    if isinstance(rule.computes_as, str):
        return type_of(rule.computes_as)
    if isinstance(rule.computes_as, tuple):
        first, *others = (types.of(at) for at in rule.computes_as)
        return first if all(other == first for other in others) else None
    return types.strongest(tensors) if rule.computes_as is None else types.of(rule.computes_as)


class _Types:
    """The types of an op's arguments. Remembers whether a type was missing and float32 was assumed."""

    def __init__(self, sizes: Sizes, types: Sequence[str] | None) -> None:
        self.sizes, self.types, self.is_assumed = sizes, types, False

    def is_tensor(self, at: int) -> bool:
        if self.types is None or at >= len(self.types):
            return bool(self.sizes[at])  # an argument without dimensions may be a scalar
        # For scalars, torch may also write the name of a type, such as Double. Only tensors have dimensions.
        return self.types[at] not in NO_TENSOR or (bool(self.sizes[at]) and type_of(self.types[at]) is not None)

    def is_list(self, at: int) -> bool:
        return self.types is not None and at < len(self.types) and self.types[at] == TENSOR_LIST

    def of(self, at: int) -> ElementType | None:
        """Returns the type of an argument; None if opspan does not know the type. If the trace does not state the type,
        as for lists of tensors, float32 is assumed."""
        if self.types is None or at >= len(self.types) or self.types[at] in (TENSOR_LIST, ""):
            self.is_assumed = True
            return ASSUMED
        return type_of(self.types[at])

    def is_known(self, at: int) -> bool:
        return self.types is not None and at < len(self.types) and type_of(self.types[at]) is not None

    def strongest(self, tensors: Sequence[int]) -> ElementType | None:
        # As in torch, tensors without dimensions count only if there are no other tensors.
        named = [self.of(at) for at in tensors if self.sizes[at]] or [self.of(at) for at in tensors]
        known = [type_ for type_ in named if type_ is not None]
        return max(known, key=_strength, default=ASSUMED) if len(known) == len(named) else None


_KINDS = ("integer", "float", "complex")


def _strength(type_: ElementType) -> tuple[int, int]:
    """Returns a sort key: the stronger of two types is the larger one. An op's result has the strongest type of its
    inputs."""
    return _KINDS.index(type_.kind), type_.bytes


def _operations(
    rule: CostRule, formula: Formula, sizes: Sizes, values: Values, own: ElementType | None, types: _Types
) -> int | None:
    if rule.may_be_packed is not None and not types.is_known(0) and rule.may_be_packed(sizes):
        return None
    count = formula(sizes, values)
    # An element of a packed type holds two values, and a product multiplies both.
    return count * own.values if count is not None and own is not None and rule.is_product else count


def _bytes_moved(
    rule: CostRule, sizes: Sizes, values: Values, tensors: list[int], own: ElementType | None, types: _Types
) -> int | None:
    read = ((elements(sizes[at], types.is_list(at)), types.of(at)) for at in tensors)
    outputs = ((many, _type_written(type_, own, types)) for many, type_ in rule.writes(sizes, values))
    moved: float = 0
    for many, type_ in (*read, *outputs):
        if type_ is None:
            return None
        moved += many * type_.bytes
    return int(moved)


def _type_written(type_: str | int | None, own: ElementType | None, types: _Types) -> ElementType | None:
    if type_ is None or (own is None and type_ in (SUM, MEAN)):
        return own
    if isinstance(type_, int):
        return types.of(type_)
    if own is not None and type_ == SUM:
        return INT64 if own.kind == "integer" else own
    if own is not None and type_ == MEAN:
        return max(own, FLOAT, key=_strength)
    return type_of(type_)


def elements(size: Any, is_list: bool = False) -> int:
    """Returns the number of elements of a tensor, or of a list of tensors."""
    if is_list or (size and isinstance(size[0], list)):
        return sum(prod(one) for one in size)
    return prod(size)


def _or_none(compute: Callable[[], int | None]) -> int | None:
    """Returns the computed number. Returns None if it cannot be computed, or if damaged sizes make it negative or too
    large."""
    try:
        number = compute()
    except UNKNOWN:
        return None
    return number if number is not None and 0 <= number < 1 << 63 else None
