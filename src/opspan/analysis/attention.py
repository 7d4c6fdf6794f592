"""Counts the operations of attention: for all pairs of a query and a key, and for the pairs that a mask hides.

    Attention(...).flops: operations of all pairs, as torch's FlopCounterMode counts.
    Attention(...).masked: operations of the pairs that a causal mask or a window hides. Kernels may skip these pairs.

Queries and keys are [batch, heads, tokens, width] or [batch, tokens, heads, width]. Sequences of different lengths are
packed one after the other as [tokens, heads, width], and a further tensor has the end of each sequence. A trace does
not have the values of tensors. So the lengths are known only if there is one sequence, or if all sequences are as long
as the longest, whose length is an argument.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from opspan.analysis.op_cost import MEAN, OutputSize, Sizes, Values


class Mask(NamedTuple):
    """A mask with which query i sees the keys from i - left to i + right; None means no limit on that side.

    If the numbers of queries and keys differ, `ends_meet` tells how they are aligned. If it is True, the last query is
    aligned with the last key. Otherwise the first query is aligned with the first key."""

    left: int | None
    right: int | None
    ends_meet: bool


CAUSAL, CAUSAL_AT_END = Mask(None, 0, ends_meet=False), Mask(None, 0, ends_meet=True)
ALL = Mask(None, None, ends_meet=False)
Masks = Callable[[Values], Mask]


def pairs(queries: int, keys: int, mask: Mask) -> int:
    """Returns how many pairs of a query and a key the mask does not hide."""
    shift = keys - queries if mask.ends_meet else 0
    until = queries * keys if mask.right is None else _sum_clamped(shift + mask.right + 1, queries, keys)
    before = 0 if mask.left is None else _sum_clamped(shift - mask.left, queries, keys)
    return until - before


def _sum_clamped(first: int, many: int, most: int) -> int:
    """Returns the sum of `many` numbers: first, first + 1, and so on, each clipped to the range from 0 to `most`."""
    begin = min(max(0, -first), many)
    end = min(max(begin, most - first), many)
    return (end - begin) * (begin + end - 1) // 2 + first * (end - begin) + (many - end) * most


class _Shape(NamedTuple):
    sequences: int
    queries: int
    keys: int
    heads: int
    width: int  # the width of queries and keys
    value_width: int


@dataclass(frozen=True)
class Attention:
    """An attention op, described by the positions of its arguments."""

    mask: Masks
    heads_first: bool = False
    is_backward: bool = False
    first: int = 0  # position of the query; the next two arguments are key and value
    ends: tuple[int, int] | None = None  # positions of two tensors: ends of queries' sequences, ends of keys' sequences
    longest: tuple[int, int] | None = None  # positions of two numbers: most queries in a sequence, most keys in one
    # positions of optional arguments that change lengths or results; if one of them is given, the cost is unknown
    absent: tuple[int, ...] = ()

    def flops(self, sizes: Sizes, values: Values) -> int:
        shape = self._shape(sizes, values)
        return self._of_pairs(shape, shape.queries * shape.keys)

    def masked(self, sizes: Sizes, values: Values) -> int:
        shape, mask = self._shape(sizes, values), self.mask(values)
        return self._of_pairs(shape, shape.queries * shape.keys - pairs(shape.queries, shape.keys, mask))

    def writes(self, sizes: Sizes, _: Values) -> list[OutputSize]:
        """Returns the sizes of the outputs. A forward writes the result and, for each query, the logarithm of a sum of
        exponentials. A backward writes three gradients."""
        query, key, value = sizes[self.first : self.first + 3]
        if self.is_backward:
            return [(prod(one), None) for one in (query, key, value)]
        return [(prod(query[:-1]) * value[-1], None), (prod(query[:-1]), MEAN)]

    def _of_pairs(self, shape: _Shape, many: int) -> int:
        # Each matrix product counts. A forward has two: the scores, and the scores times the values. A backward has
        # five: the scores again, and the gradients of scores, value, query and key.
        width, value_width = (3, 2) if self.is_backward else (1, 1)
        per_pair = width * shape.width + value_width * shape.value_width
        return 2 * int(shape.sequences * shape.heads * many * per_pair)

    def _shape(self, sizes: Sizes, values: Values) -> _Shape:
        if any(sizes[at] for at in self.absent if at < len(sizes)):
            raise ValueError("how long the sequences are is in tensors")
        query, key, value = sizes[self.first : self.first + 3]
        ends = self.ends if self.ends is not None and sizes[self.ends[0]] else None
        heads_first = self.heads_first and ends is None
        tokens, heads = (-2, -3) if heads_first else (-3, -2)
        if not len(query) == len(key) == len(value) >= 3 or query[-1] != key[-1] or key[tokens] != value[tokens]:
            raise ValueError("queries, keys and values that do not fit each other")
        if query[heads] % key[heads] or query[:-3] != key[:-3]:
            raise ValueError("heads or sequences that do not fit each other")
        lengths = (prod(query[:-3]), query[tokens], key[tokens])
        if ends is not None:
            lengths = self._lengths(ends, sizes, values, *lengths)
        elif len(query) == 3 and not heads_first:
            raise ValueError("packed sequences, and nothing says where they end")
        return _Shape(*lengths, query[heads], query[-1], value[-1])

    def _lengths(
        self, ends: tuple[int, int], sizes: Sizes, values: Values, batch: int, queries: int, keys: int
    ) -> tuple[int, int, int]:
        """Returns the number of packed sequences, and the number of queries and of keys in one sequence. All sequences
        must be equally long."""
        many = sizes[ends[0]][0] - 1
        if batch != 1 or (sizes[ends[1]] or sizes[ends[0]]) != sizes[ends[0]]:
            raise ValueError("ends that do not fit each other")
        if not self.is_backward and sizes[ends[0]] in sizes[ends[1] + 1 :]:
            raise ValueError("further ends: there is padding between the sequences")
        if many == 1:
            return 1, queries, keys
        longest = () if self.longest is None else tuple(values[at] for at in self.longest)
        if not longest or (many * longest[0], many * longest[1]) != (queries, keys):
            raise ValueError("sequences that are not equally long")
        return many, longest[0], longest[1]


# --- the masks of ops, read from the values of their arguments


def causal(at: int, mask: Mask = CAUSAL) -> Masks:
    return lambda values: mask if _flag(values[at]) else ALL


def causal_or_quantized(at: int, quantized: int) -> Masks:
    """Returns a function that reads the mask of an op with two overloads. The causal flag is at position `at`, or at
    position `quantized` in the overload that has three more arguments (scales) before the flag."""
    return lambda values: CAUSAL if _flag(values[at] if values[at] is not None else values[quantized]) else ALL


def causal_in_window(is_causal: int, *windows: int) -> Masks:
    """Returns a function that reads the mask of an op with a causal flag and a window. `windows` has, for each
    overload, the position of the argument for the window's left side. The argument for the right side follows."""

    def mask(values: Values) -> Mask:
        sides = [values[at : at + 2] for at in windows if any(map(_is_integer, values[at : at + 2]))]
        return _window(_flag(values[is_causal]), *(sides[0] if sides else (None, None)))

    return mask


def causal_in_list(is_causal: int, window: int) -> Masks:
    return lambda values: _window(_flag(values[is_causal]), *(values[window] or (None, None)))


def in_window(values: Values) -> Mask:
    """Returns the mask of an op of FlashAttention or a similar library. The mask is in three arguments that follow each
    other: a bool (is it causal?) and two integers (the window). Their position depends on the version."""
    for is_causal, left, right in zip(values, values[1:], values[2:], strict=False):
        if isinstance(is_causal, bool) and _is_integer(left) and _is_integer(right):
            return _window(is_causal, left, right)
    raise ValueError("no mask is among the values")


def custom_mask(at: int, window: int) -> Masks:
    def mask(values: Values) -> Mask:
        if window < len(values) and values[window]:
            raise ValueError("a window of which nothing else is known")
        return {0: ALL, 1: CAUSAL, 2: CAUSAL_AT_END}[values[at]]

    return mask


def _window(is_causal: bool, left: int | None, right: int | None) -> Mask:
    """Returns the mask of a window. A negative number means no limit on that side."""
    left = None if left is None or left < 0 else left
    right = 0 if is_causal else None if right is None or right < 0 else right
    return Mask(left, right, ends_meet=True)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("whether it is causal is not among the values")
    return value


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
