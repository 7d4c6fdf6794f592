"""Counts the operations of products: of matrices, convolutions, recurrent layers, Fourier transforms. attention.py
counts those of attention.

A multiplication and an addition are two operations. Adding a bias and scaling a result do not count because they are
little work compared with the product. Formulas raise one of op_cost.UNKNOWN if the cost is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log2, prod

from opspan.analysis.op_cost import Formula, OutputSize, Sizes, Values, Writes, elements


def matrices(at: int = 0) -> Formula:
    """Returns the formula for the product of two matrices, or of two batches of matrices: argument `at` and the next
    one."""

    def formula(sizes: Sizes, _: Values) -> int | None:
        one, other = sizes[at], sizes[at + 1]
        if len(one) < 2 or len(other) < 2 or not one[-1]:
            return None
        return 2 * int(prod(one) * other[-1])

    return formula


def matrices_out(at: int = 0) -> Writes:
    return lambda sizes, _: [(prod(sizes[at][:-1]) * sizes[at + 1][-1], None)]


def summed_out(sizes: Sizes, _: Values) -> list[OutputSize]:
    """Returns the output of a product of batches whose results are added up to one matrix."""
    return [(sizes[1][-2] * sizes[2][-1], None)]


def weights(input_at: int = 0, weight: int = 1) -> Formula:
    """Returns the formula for inputs [..., K] times weights [N, K], as in a linear layer."""

    def formula(sizes: Sizes, _: Values) -> int:
        if sizes[input_at][-1] != sizes[weight][-1]:
            raise ValueError("inputs and weights that do not fit each other, or are packed")
        return 2 * int(prod(sizes[input_at]) * sizes[weight][-2])

    return formula


def weights_out(input_at: int = 0, weight: int = 1, type_: int | None = None) -> Writes:
    return lambda sizes, _: [(prod(sizes[input_at][:-1]) * sizes[weight][-2], type_)]


def columns(count: Callable[[Sizes, Values], int]) -> Formula:
    """Returns the formula for inputs [..., K] times packed weights. The sizes of packed weights do not show N, the
    number of columns of the output, so `count` returns N."""
    return lambda sizes, values: 2 * int(prod(sizes[0]) * count(sizes, values))


def columns_out(count: Callable[[Sizes, Values], int]) -> Writes:
    return lambda sizes, values: [(prod(sizes[0][:-1]) * count(sizes, values), None)]


def grouped(sizes: Sizes, _: Values) -> int:
    """Counts the product of two batches, or of matrices that are cut into groups. Offsets cut them along the rows, the
    columns or the inner dimension. The groups are assumed to cover the whole matrix."""
    one, other = sizes[:2]
    if one[-1] != other[-2]:
        raise ValueError("sizes that do not fit each other")
    rows = one[-2] * (one[0] if len(one) == len(other) == 3 else 1)
    return 2 * int(rows * one[-1] * other[-1])


def grouped_out(sizes: Sizes, _: Values) -> list[OutputSize]:
    one, other = sizes[:2]
    many = one[-2] * other[-1]
    if len(one) == len(other):  # each group has its own result; there are as many groups as offsets, or as batch items
        many *= one[0] if len(one) == 3 else sizes[2][0]
    return [(many, None)]


# --- convolutions


def for_each(value: list[int], dimensions: int) -> list[int]:
    """Returns a value for each dimension. A single value in the list counts for all dimensions."""
    return list(value) * dimensions if len(value) == 1 else list(value)


def out_sizes(
    sizes: Sequence[int], kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> list[int]:
    return [
        (size + 2 * around - apart * (width - 1) - 1) // step + 1
        for size, width, step, around, apart in zip(sizes, kernel, stride, padding, dilation, strict=True)
    ]


class Convolution:
    """A convolution of any number of dimensions. Its attributes are the positions of the op's arguments. None means
    that the op lacks the argument, whose value is then 1 (0 for out_padding). `transposed` may also be the value
    itself."""

    def __init__(
        self,
        stride: int,
        padding: int,
        dilation: int | None,
        transposed: int | bool = False,
        out_padding: int | None = None,
        groups: int | None = None,
        weight: int = 1,
    ) -> None:
        self.stride, self.padding, self.dilation = stride, padding, dilation
        self.transposed, self.out_padding, self.groups, self.weight = transposed, out_padding, groups, weight

    def flops(self, sizes: Sizes, values: Values) -> int:
        batch, _, *inner = sizes[0]
        out = inner if self._is_transposed(values) else self._out(inner, sizes[self.weight][2:], values)
        return 2 * int(batch * prod(out) * prod(sizes[self.weight]))

    def writes(self, sizes: Sizes, values: Values) -> list[OutputSize]:
        (batch, _, *inner), (out_channels, each_group, *kernel) = sizes[0], sizes[self.weight]
        if self._is_transposed(values):
            groups = 1 if self.groups is None else values[self.groups]
            out, out_channels = self._spread(inner, kernel, values), each_group * groups
        else:
            out = self._out(inner, kernel, values)
        return [(batch * out_channels * prod(out), None)]

    def _is_transposed(self, values: Values) -> bool:
        return self.transposed if isinstance(self.transposed, bool) else bool(values[self.transposed])

    def _steps(self, kernel: Sequence[int], values: Values) -> list[list[int]]:
        dilation = [1] if self.dilation is None else values[self.dilation]
        return [for_each(value, len(kernel)) for value in (values[self.stride], values[self.padding], dilation)]

    def _out(self, inner: Sequence[int], kernel: Sequence[int], values: Values) -> list[int]:
        return out_sizes(inner, kernel, *self._steps(kernel, values))

    def _spread(self, inner: Sequence[int], kernel: Sequence[int], values: Values) -> list[int]:
        more = for_each([0] if self.out_padding is None else values[self.out_padding], len(kernel))
        dimensions = zip(inner, kernel, *self._steps(kernel, values), more, strict=True)
        return [
            (size - 1) * step - 2 * around + apart * (width - 1) + extra + 1
            for size, width, step, around, apart, extra in dimensions
        ]


def convolution_gradients(transposed: int | None, mask: int) -> Formula:
    """Returns the formula of a convolution's backward, with the arguments gradient, input, weight, ... The gradients of
    input and weight each take as many operations as the forward; `mask` is the argument that says which of these
    gradients are computed."""

    def formula(sizes: Sizes, values: Values) -> int:
        gradient, inputs, weight = sizes[:3]
        is_transposed = transposed is not None and values[transposed]
        forward = 2 * int(inputs[0] * prod((inputs if is_transposed else gradient)[2:]) * prod(weight))
        return forward * sum(map(bool, values[mask][:2]))

    return formula


def convolution_gradients_out(transposed: int | None, groups: int | None, mask: int) -> Writes:
    def writes(sizes: Sizes, values: Values) -> list[OutputSize]:
        is_transposed = transposed is not None and values[transposed]
        channels = sizes[2][1] * (1 if groups is None else values[groups]) if is_transposed else sizes[2][0]
        gradients = (prod(sizes[1]), prod(sizes[2]), channels)
        return [(many, None) for many, is_made in zip(gradients, values[mask], strict=True) if is_made]

    return writes


# --- recurrent layers


def recurrent_layer(passes: int) -> Formula:
    """Returns the formula of one layer in one direction. The arguments are the input, the weights of the input and the
    weights of the hidden state. `passes` is 1 for the forward. It is 2 for the backward, which computes the gradients
    of inputs and of weights."""

    def formula(sizes: Sizes, _: Values) -> int:
        inputs, of_input, of_hidden = sizes[:3]
        if inputs[-1] != of_input[-1]:
            raise ValueError("weights that are packed")
        return 2 * passes * int(prod(inputs[:-1]) * (prod(of_input) + prod(of_hidden)))

    return formula


def recurrent(mask: int | None = None) -> Formula:
    """Returns the formula of all layers and directions, for the arguments input and list of weights. Each matrix is
    multiplied once for each token. With `mask`, returns the formula of the backward: it counts the gradients of inputs,
    and the gradients of weights if the argument `mask` asks for them."""

    def formula(sizes: Sizes, values: Values) -> int:
        inputs, all_weights = sizes[:2]
        of_token = sum(prod(one) for one in all_weights if len(one) == 2)
        if not of_token:
            raise ValueError("the weights of the list are not known")
        passes = 1 if mask is None else 1 + bool(values[mask][3])
        return 2 * passes * int(prod(inputs[:-1]) * of_token)

    return formula


def unknown_out(_: Sizes, __: Values) -> list[OutputSize]:
    raise ValueError("the op keeps more than the trace says")


# --- Fourier transforms


def transform(per_point: float, last: int | None = None) -> Formula:
    """Returns the formula of a Fourier transform. FFTW counts 5 N log2 N operations for N points, and half as many if
    the input or the output is real; the true number depends on the library and the factors of N. `per_point` is 5 or
    2.5. `last` is the argument that has the new size of the last dimension."""

    def formula(sizes: Sizes, values: Values) -> int:
        own, dimensions = list(sizes[0]), values[1]
        if last is not None:
            own[dimensions[-1]] = values[last]
        points = prod(own[at] for at in set(dimensions))
        return round(per_point * elements(own) * log2(points)) if points else 0

    return formula


def transform_out(last: int | None = None, of_real: bool = False) -> Writes:
    def writes(sizes: Sizes, values: Values) -> list[OutputSize]:
        own = list(sizes[0])
        # Outputs are counted in elements of the input's type. A complex element counts as two real ones.
        if last is not None:
            own[values[1][-1]] = values[last]
            return [(prod(own) / 2, None)]
        if of_real:
            if values[3]:
                own[values[1][-1]] = own[values[1][-1]] // 2 + 1
            return [(2 * prod(own), None)]
        return [(prod(own), None)]

    return writes
