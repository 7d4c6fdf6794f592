"""What one op costs, from the sizes, values and types of its inputs: operations, and bytes that it reads and writes.

    cost(rule, sizes, values, types) -> Cost

Bytes are those of the tensors that the op is given and makes, each once: what a device moves that caches nothing else.
The rules are in formulas.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

from opspan.element_types import FLOAT, INT64, NO_TENSOR, TENSOR_LIST, ElementType, type_of

# What formulas raise of sizes and values that an op cannot have had, or that are not in the trace.
UNKNOWN = (ValueError, TypeError, IndexError, AttributeError, KeyError, ZeroDivisionError, OverflowError)

ASSUMED = FLOAT
# As a type of what is written: that of a sum, which of whole numbers is long; that of a mean, which is float at least.
SUM, MEAN = "sum", "mean"
Sizes = Sequence[Any]  # of each argument: a list of integers; of a list of tensors, a list of these
Values = Sequence[Any]
Formula = Callable[[Sizes, Values], "int | None"]
# How many elements, and of which type: its name, that of an argument, or (None) what the op computes in.
Written = tuple[float, "str | int | None"]
Writes = Callable[[Sizes, Values], Iterable[Written]]


class Cost(NamedTuple):
    flops: int | None
    bytes: int | None
    type: str | None  # that it computes in: fp32, bf16, ...
    is_assumed: bool  # a type that is not in the trace was taken to be float32
    masked: int | None = 0  # operations on what a mask hides, which kernels may skip; None: the mask is not known


@dataclass(frozen=True)
class Rule:
    flops: Formula
    reads: Sequence[int]  # arguments, of which those that are tensors are read whole
    writes: Writes
    is_product: bool = False
    # The argument whose type it computes in; or several, and the type is not known where theirs differ; or the name of
    # the type; None: the strongest type of all that it reads.
    computes_as: int | tuple[int, ...] | str | None = None
    says: str = ""  # the formula in words, for docs/costs.md
    masked: Formula | None = None  # of the operations, those on what a mask hides
    # Whether an element of the first argument may hold two values, for all that the sizes say: then a trace without
    # types does not tell.
    may_be_packed: Callable[[Sizes], bool] | None = None


def cost(rule: Rule, sizes: Sizes, values: Values, types: Sequence[str] | None) -> Cost:
    """Null where it is not known. `types`: None where the trace has none. Of a type that opspan does not know, neither
    the bytes nor what it computes in are; how many operations there are follows from the sizes."""
    types_ = _Types(sizes, types)
    given = [at for at in rule.reads if at < len(sizes) and types_.is_tensor(at)]
    own = _computed_in(rule, given, types_)
    flops = _tried(lambda: _operations(rule, rule.flops, sizes, values, own, types_))
    of_mask = rule.masked
    masked = 0 if of_mask is None else _tried(lambda: _operations(rule, of_mask, sizes, values, own, types_))
    moved = _tried(lambda: _moved(rule, sizes, values, given, own, types_))
    return Cost(flops, moved, own and own.precision, types_.is_assumed, masked)


def _computed_in(rule: Rule, given: list[int], types: _Types) -> ElementType | None:
    if isinstance(rule.computes_as, str):
        return type_of(rule.computes_as)
    if isinstance(rule.computes_as, tuple):
        first, *others = (types.of(at) for at in rule.computes_as)
        return first if all(other == first for other in others) else None
    return types.strongest(given) if rule.computes_as is None else types.of(rule.computes_as)


class _Types:
    """The types of an op's arguments, and whether one had to be assumed."""

    def __init__(self, sizes: Sizes, types: Sequence[str] | None) -> None:
        self.sizes, self.types, self.is_assumed = sizes, types, False

    def is_tensor(self, at: int) -> bool:
        if self.types is None or at >= len(self.types):
            return bool(self.sizes[at])  # what has no dimensions may be no tensor
        # An argument with dimensions is a tensor; torch's names of types, such as Double, also stand for scalars.
        return self.types[at] not in NO_TENSOR or (bool(self.sizes[at]) and type_of(self.types[at]) is not None)

    def is_list(self, at: int) -> bool:
        return self.types is not None and at < len(self.types) and self.types[at] == TENSOR_LIST

    def of(self, at: int) -> ElementType | None:
        """None: not known. Of lists of tensors no trace has it."""
        if self.types is None or at >= len(self.types) or self.types[at] in (TENSOR_LIST, ""):
            self.is_assumed = True
            return ASSUMED
        return type_of(self.types[at])

    def is_known(self, at: int) -> bool:
        return self.types is not None and at < len(self.types) and type_of(self.types[at]) is not None

    def strongest(self, given: Sequence[int]) -> ElementType | None:
        # A tensor without dimensions has no say where another has some, as in torch.
        named = [self.of(at) for at in given if self.sizes[at]] or [self.of(at) for at in given]
        known = [type_ for type_ in named if type_ is not None]
        return max(known, key=_strength, default=ASSUMED) if len(known) == len(named) else None


_KINDS = ("integer", "float", "complex")


def _strength(type_: ElementType) -> tuple[int, int]:
    """Returns the stronger of two types, which is the result's."""
    return _KINDS.index(type_.kind), type_.bytes


def _operations(
    rule: Rule, formula: Formula, sizes: Sizes, values: Values, own: ElementType | None, types: _Types
) -> int | None:
    if rule.may_be_packed is not None and not types.is_known(0) and rule.may_be_packed(sizes):
        return None
    count = formula(sizes, values)
    # An element may hold two values; both are multiplied.
    return count * own.values if count is not None and own is not None and rule.is_product else count


def _moved(
    rule: Rule, sizes: Sizes, values: Values, given: list[int], own: ElementType | None, types: _Types
) -> int | None:
    read = ((elements(sizes[at], types.is_list(at)), types.of(at)) for at in given)
    written = ((many, _type_written(type_, own, types)) for many, type_ in rule.writes(sizes, values))
    moved: float = 0
    for many, type_ in (*read, *written):
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


def _tried(do: Callable[[], int | None]) -> int | None:
    try:
        found = do()
    except UNKNOWN:
        return None  # sizes and values that this op cannot have had, or that are not in the trace
    return found if found is not None and 0 <= found < 1 << 63 else None
