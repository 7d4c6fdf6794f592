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

from opspan.analysis.flops import UNKNOWN, Formula, Sizes

ASSUMED = "float"
# As a type of what is written: that of a sum, which of whole numbers is long; that of a mean, which is float at least.
SUM, MEAN = "sum", "mean"
FLOATS = {"double": "fp64", "float": "fp32", "c10::BFloat16": "bf16", "c10::Half": "fp16"}
_BYTES = {
    "bool": 1,
    "unsigned char": 1,
    "signed char": 1,
    "short": 2,
    "short int": 2,
    "int": 4,
    "long": 8,
    "long int": 8,
    "float": 4,
    "double": 8,
    "c10::Half": 2,
    "c10::BFloat16": 2,
    "c10::complex<c10::Half>": 4,
    "c10::complex<float>": 8,
    "c10::complex<double>": 16,
}
_NO_TENSOR = ("Scalar", "ScalarList", "GenericList", "")

Values = Sequence[Any]
# How many elements, and of which type: its name, that of an argument, or (None) what the op computes in.
Written = tuple[int, "str | int | None"]
Writes = Callable[[Sizes, Values], Iterable[Written]]


class Cost(NamedTuple):
    flops: int | None
    bytes: int | None
    type: str | None  # that it computes in: fp32, bf16, ...
    is_assumed: bool  # a type that is not in the trace was taken to be float32


@dataclass(frozen=True)
class Rule:
    flops: Formula
    reads: Sequence[int]  # arguments, of which those that are tensors are read whole
    writes: Writes
    is_product: bool = False
    computes_as: int | None = None  # the argument whose type it computes in; None: the strongest of all that it reads


def cost(rule: Rule, sizes: Sizes, values: Values, types: Sequence[str] | None) -> Cost:
    """Null where it is not known. `types`: None where the trace has none."""
    types_ = _Types(sizes, types)
    given = [at for at in rule.reads if at < len(sizes) and types_.is_tensor(at)]
    own = types_.strongest(given) if rule.computes_as is None else types_.of(rule.computes_as)
    flops = _tried(lambda: rule.flops(sizes, values))
    moved = _tried(lambda: _moved(rule, sizes, values, given, own, types_))
    return Cost(flops, moved, precision(own), types_.is_assumed)


def precision(name: str) -> str | None:
    """As tables of devices call it."""
    if name.startswith("c10::Float8"):
        return "fp8"
    return FLOATS.get(name, "int8" if name in ("signed char", "unsigned char") else None)


class _Types:
    """The types of an op's arguments, and whether one had to be assumed."""

    def __init__(self, sizes: Sizes, types: Sequence[str] | None) -> None:
        self.sizes, self.types, self.is_assumed = sizes, types, False

    def is_tensor(self, at: int) -> bool:
        if self.types is None or at >= len(self.types):
            return bool(self.sizes[at])  # what has no dimensions may be no tensor
        return self.types[at] not in _NO_TENSOR

    def is_list(self, at: int) -> bool:
        return self.types is not None and at < len(self.types) and self.types[at] == "TensorList"

    def of(self, at: int) -> str:
        """Of lists of tensors no trace has it."""
        if self.types is None or at >= len(self.types) or self.types[at] in ("TensorList", ""):
            self.is_assumed = True
            return ASSUMED
        return self.types[at]

    def strongest(self, given: Sequence[int]) -> str:
        # A tensor without dimensions has no say where another has some, as in torch.
        named = [self.of(at) for at in given if self.sizes[at]] or [self.of(at) for at in given]
        return max(named, key=_strength, default=ASSUMED)


def _strength(name: str) -> tuple[int, int]:
    """Of two types, the result has the stronger one."""
    kind = 2 if "complex" in name else 1 if name in FLOATS or name.startswith("c10::Float8") else 0
    return kind, _bytes(name)


def _bytes(name: str) -> int:
    return 1 if name.startswith("c10::Float8") else _BYTES[name]


def _moved(rule: Rule, sizes: Sizes, values: Values, given: list[int], own: str, types: _Types) -> int:
    read = sum(elements(sizes[at], types.is_list(at)) * _bytes(types.of(at)) for at in given)
    written = 0
    for many, type_ in rule.writes(sizes, values):
        if type_ == SUM:
            type_ = own if _strength(own)[0] else "long"
        elif type_ == MEAN:
            type_ = max(own, "float", key=_strength)
        written += many * _bytes(own if type_ is None else types.of(type_) if isinstance(type_, int) else type_)
    return int(read + written)


def elements(size: Any, is_list: bool = False) -> int:
    """Of a tensor, or of a list of them."""
    if is_list or (size and isinstance(size[0], list)):
        return sum(prod(one) for one in size)
    return prod(size)


def _tried(do: Callable[[], int | None]) -> int | None:
    try:
        found = do()
    except UNKNOWN:
        return None  # sizes and values that this op cannot have had, or that are not in the trace
    return found if found is not None and 0 <= found < 1 << 63 else None
