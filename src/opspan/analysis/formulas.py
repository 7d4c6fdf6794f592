"""Has the rules for the costs of ops: RULES maps names of ops to rules.

The rules of matrix products are in product_rules.py. Here an elementwise op counts as one operation for each element,
whatever it computes. Norms and similar ops count as a fixed number of operations for each element. Rules raise an
exception if a cost is unknown. docs/costs.md is generated from RULES.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from opspan.analysis.op_cost import MEAN, SUM, CostRule, Formula, OutputSize, Sizes, Values, Writes, elements
from opspan.analysis.product_rules import PRODUCTS
from opspan.analysis.products import for_each, out_sizes, transform, transform_out

# --- outputs. `Writes` is a function that returns the outputs of an op (op_cost.py).


def _like(*arguments: int, type_: str | None = None) -> Writes:
    """Returns `Writes` for an op that broadcasts these arguments."""
    return lambda sizes, _: [(prod(_broadcast([sizes[at] for at in arguments if at < len(sizes)])), type_)]


def _first(sizes: Sizes, _: Values) -> list[OutputSize]:
    return [(prod(sizes[0]), 0)]


def _broadcast(shapes: Sequence[Sequence[int]]) -> list[int]:
    most = max(len(shape) for shape in shapes)
    columns = zip(*([1] * (most - len(shape)) + list(shape) for shape in shapes), strict=True)
    shape_out = []
    for column in columns:
        others = {size for size in column if size != 1}
        if len(others) > 1:
            raise ValueError("sizes that do not fit each other")
        shape_out.append(others.pop() if others else 1)
    return shape_out


def _lists(*arguments: int) -> Writes:
    def writes(sizes: Sizes, _: Values) -> list[OutputSize]:
        rest = [at for at in arguments[1:] if at < len(sizes) and sizes[at]]
        return [(_of_list(sizes[at]), None) for at in (arguments[0], *rest)]

    return writes


def _of_list(size: Any) -> int:
    if not size or not isinstance(size[0], list):
        raise ValueError("the tensors of the list are not known")
    return elements(size)


def _likes(*arguments: int) -> Writes:
    """Returns `Writes` for an op that has an output of the same size for each of these arguments."""
    return lambda sizes, _: [(prod(sizes[at]), None) for at in arguments]


def _layer_norm_out(many: int) -> Writes:
    """Returns `Writes` for a norm: the result, and `many` statistics for each row. A row has as many elements as the
    weights."""

    def writes(sizes: Sizes, values: Values) -> list[OutputSize]:
        own = values[1] if len(values) > 1 and values[1] else sizes[2]
        if not own or sizes[0][-len(own) :] != list(own):
            raise ValueError("no such norm")
        return [(prod(sizes[0]), None), (many * prod(sizes[0][: -len(own)]), MEAN)]

    return writes


def _with_weights(at: int, weight: int) -> Writes:
    """Returns `Writes` for gradients: one as large as argument `at`, and two as large as the weight, if it is given."""
    return lambda sizes, _: [(prod(sizes[at]), None), (2 * elements(sizes[weight]) if sizes[weight] else 0, None)]


def _rms_norm_gradients(sizes: Sizes, values: Values) -> list[OutputSize]:
    return [(elements(sizes[at]) if is_made else 0, None) for at, is_made in zip((1, 4), values[5], strict=True)]


def _batch_norm_out(sizes: Sizes, values: Values) -> list[OutputSize]:
    return [(prod(sizes[0]), None), (2 * sizes[0][1] if values[5] else 0, MEAN)]


def _group_norm_out(sizes: Sizes, values: Values) -> list[OutputSize]:
    return [(prod(sizes[0]), None), (2 * values[3] * values[6], MEAN)]


def _softmax_out(sizes: Sizes, values: Values) -> list[OutputSize]:
    return [(prod(sizes[0]), "float" if len(values) > 2 and values[2] is True else None)]


def _reduced(dim: int, of: int, type_: str | None = None) -> Writes:
    """Returns `Writes` for a reduction. If the op has at least `of` arguments, the output lacks the dimensions that
    argument `dim` names; otherwise the output is one element."""

    def writes(sizes: Sizes, values: Values) -> list[OutputSize]:
        many = 1
        if len(sizes) >= of:
            if len(values) <= dim:
                raise ValueError("the dimensions are not known")
            gone = [values[dim]] if isinstance(values[dim], int) else values[dim] or range(len(sizes[0]))
            left = {at % len(sizes[0]) for at in gone} if sizes[0] else set()
            many = prod(size for at, size in enumerate(sizes[0]) if at not in left)
        return [(many, type_)]

    return writes


def _embedding_out(sizes: Sizes, _: Values) -> list[OutputSize]:
    """Returns one output with twice the size of the rows that were looked up, because each row is read from the table
    and written to the output."""
    return [(2 * prod(sizes[1]) * sizes[0][-1], 0)]


def _selected(sizes: Sizes, values: Values) -> list[OutputSize]:
    own = list(sizes[0])
    own[values[1]] = prod(sizes[2])
    return [(2 * prod(own), 0)]


def _embedding_gradient(sizes: Sizes, values: Values) -> list[OutputSize]:
    return [(values[2] * sizes[0][-1], None)]


def _pooled(sizes: Sizes, values: Values) -> tuple[int, int]:
    """Returns the number of elements of the output, and the number of input elements in each window. Raises an error
    for ceil_mode, which adds some elements."""
    kernel = for_each(values[1], 2)
    stride = for_each(values[2], 2) if values[2] else kernel
    padding = for_each(values[3], 2)
    dilation = for_each(values[4], 2) if isinstance(values[4], list) else [1, 1]
    if values[5] if isinstance(values[4], list) else values[4]:
        raise ValueError("rounded up")
    out = out_sizes(sizes[0][-2:], kernel, stride, padding, dilation)
    return prod(sizes[0][:-2]) * prod(out), prod(kernel)


def _pool_out(*types: str | None) -> Writes:
    return lambda sizes, values: [(_pooled(sizes, values)[0], type_) for type_ in types]


# --- the rules


def _each(many: int, reads: Sequence[int], writes: Writes, computes_as: int | None = None, at: int = 0) -> CostRule:
    """Returns a rule that counts `many` operations for each element of the argument `at`."""
    says = f"{many} an element of the input" if many else "none"
    return CostRule(lambda sizes, _: many * elements(sizes[at]), reads, writes, computes_as=computes_as, says=says)


def _each_of_list(many: int, reads: Sequence[int], writes: Writes) -> CostRule:
    return CostRule(
        lambda sizes, _: many * _of_list(sizes[0]), reads, writes, says=f"{many} an element of the first list"
    )


def _broadcast_each(reads: Sequence[int], writes: Writes) -> CostRule:
    outputs = _like(*reads)
    says = "1 an element of the output"
    return CostRule(lambda sizes, values: int(next(iter(outputs(sizes, values)))[0]), reads, writes, says=says)


def _pool(writes: Writes) -> CostRule:
    says = "1 an element of each window"
    return CostRule(lambda sizes, values: prod(_pooled(sizes, values)), (0,), writes, says=says)


def _transform(says: str, flops: Formula, writes: Writes) -> CostRule:
    return CostRule(flops, (0,), writes, computes_as=0, says=says)


def _elementwise(count: int, names: str, type_: str | None = None) -> dict[str, CostRule]:
    arguments = tuple(range(count))
    rule = _broadcast_each(arguments, _like(*arguments, type_=type_))
    return {f"aten::{name}{end}": rule for name in names.split() for end in ("", "_")}


def _for_each_name(names: str, rule: CostRule) -> dict[str, CostRule]:
    return {f"aten::{name}": rule for name in names.split()}


RULES: dict[str, CostRule] = {
    **PRODUCTS,
    **_elementwise(
        1,
        "abs acos asin atan bitwise_not ceil celu clamp clamp_max clamp_min cos cosh elu erf erfc exp exp2 expm1 floor "
        "frac gelu hardsigmoid hardswish hardtanh leaky_relu lgamma log log10 log1p log2 log_sigmoid mish nan_to_num "
        "neg reciprocal relu relu6 round rsqrt selu sigmoid sign silu sin sinh softplus sqrt square tan tanh threshold "
        "trunc",
    ),
    **_elementwise(
        2,
        "add sub rsub mul div floor_divide remainder fmod pow maximum minimum atan2 bitwise_and bitwise_or bitwise_xor "
        "sigmoid_backward tanh_backward threshold_backward gelu_backward silu_backward hardswish_backward "
        "hardtanh_backward hardsigmoid_backward leaky_relu_backward softplus_backward log_sigmoid_backward",
    ),
    **_elementwise(2, "eq ne lt le gt ge logical_and logical_or logical_xor", "bool"),
    **_elementwise(1, "isnan isinf isfinite logical_not", "bool"),
    **_elementwise(3, "addcmul addcdiv lerp mse_loss_backward"),
    # The condition of `where` is an input, too. Its type, bool, is the weakest type, so it never decides the type of
    # the result.
    "aten::where": _broadcast_each((0, 1, 2), _like(0, 1, 2)),
    "aten::masked_fill_": _each(0, (0, 1), _like(0)),
    "aten::native_dropout": _each(2, (0,), lambda sizes, _: [(prod(sizes[0]), None), (prod(sizes[0]), "bool")]),
    "aten::native_dropout_backward": _each(2, (0, 1), _like(0)),
    # A norm takes 7 operations for each element: mean, difference from the mean, its square, the sum of squares,
    # division by the deviation, weight, bias.
    "aten::native_layer_norm": _each(7, (0, 2, 3), _layer_norm_out(2), 0),
    "aten::native_layer_norm_backward": _each(13, (0, 1, 3, 4, 5), _with_weights(1, 5), 0),
    "aten::_fused_rms_norm": _each(4, (0, 2), _layer_norm_out(1), 0),
    "aten::_fused_rms_norm_backward": _each(8, (0, 1, 3, 4), _rms_norm_gradients, 0),
    "_C::rms_norm": _each(4, (1, 2), _likes(1), 1, at=1),
    "_C::fused_add_rms_norm": _each(5, (0, 1, 2), _likes(0, 1), 0),
    "aiter::rms_norm": _each(4, (0, 1), _likes(0), 0),
    "aiter::rmsnorm2d_fwd_with_add_ck": _each(5, (1, 2, 4), _likes(0, 3), 1, at=1),
    "_C::silu_and_mul": _each(1, (1,), _likes(0), 1, at=1),
    "aten::native_group_norm": _each(7, (0, 1, 2), _group_norm_out, 0),
    "aten::native_group_norm_backward": _each(13, (0, 1, 2, 3, 4), _with_weights(1, 4), 0),
    **{
        f"aten::{whose}_batch_norm": _each(7, (0, 1, 2, 3, 4), _batch_norm_out, 0)
        for whose in ("native", "cudnn", "miopen")
    },
    "aten::native_batch_norm_backward": _each(13, (0, 1, 2, 5, 6), _with_weights(1, 2), 0),
    **{
        f"aten::{whose}_batch_norm_backward": _each(13, (0, 1, 2, 5, 6), _with_weights(0, 2), 0)
        for whose in ("cudnn", "miopen")
    },
    # A softmax takes 5 operations for each element: maximum, difference from the maximum, exp, sum, quotient.
    "aten::_softmax": _each(5, (0,), _softmax_out),
    "aten::_log_softmax": _each(5, (0,), _softmax_out),
    "aten::_softmax_backward_data": _each(4, (0, 1), _like(0)),
    "aten::_log_softmax_backward_data": _each(4, (0, 1), _like(0)),
    **_for_each_name("sum mean", _each(1, (0,), _reduced(1, 3, SUM))),
    **_for_each_name("amax amin", _each(1, (0,), _reduced(1, 2))),
    **_for_each_name("any all", _each(1, (0,), _reduced(1, 2, "bool"))),
    **_for_each_name("argmax argmin", _each(1, (0,), _reduced(1, 2, "long"))),
    **_for_each_name("linalg_vector_norm", _each(2, (0,), _reduced(2, 3))),
    **_for_each_name("var std", _each(4, (0,), _reduced(1, 3))),
    **_for_each_name("cumsum cumprod", _each(1, (0,), _like(0, type_=SUM))),
    "aten::max_pool2d_with_indices": _pool(_pool_out(None, "long")),
    "aten::max_pool2d_with_indices_backward": _each(1, (0, 7), _likes(1)),
    "aten::avg_pool2d": _pool(_pool_out(None)),
    "aten::_fft_c2c": _transform("5 N log2 N for N complex points", transform(5), transform_out()),
    "aten::_fft_r2c": _transform("2.5 N log2 N for N real points", transform(2.5), transform_out(of_real=True)),
    "aten::_fft_c2r": _transform("2.5 N log2 N for N real points", transform(2.5, 3), transform_out(3)),
    "aten::copy_": _each(0, (1,), _first),
    "aten::fill_": _each(0, (), _first),
    "aten::zero_": _each(0, (), _first),
    "aten::cat": _each(0, (0,), _lists(0)),
    "aten::embedding": _each(0, (1,), _embedding_out, computes_as=0),
    "aten::index_select": _each(0, (2,), _selected, computes_as=0),
    "aten::embedding_dense_backward": _each(0, (0, 1), _embedding_gradient),
    **{
        f"aten::_foreach_{name}{end}": _each_of_list(1, range(4), _lists(0))
        for name in ("add", "sub", "mul", "div", "addcmul", "addcdiv", "lerp", "sqrt", "neg", "exp", "maximum", "pow")
        for end in ("", "_")
    },
    # These optimizers read parameters, gradients and the state of the optimizer. They write all of these except the
    # gradients.
    "aten::_fused_adam_": _each_of_list(13, range(5), _lists(0, 2, 3, 4)),
    "aten::_fused_adamw_": _each_of_list(15, range(5), _lists(0, 2, 3, 4)),
    "aten::_fused_sgd_": _each_of_list(4, range(3), _lists(0, 2)),
}
