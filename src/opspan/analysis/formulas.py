"""The rules by which ops cost something: RULES, by name.

Products (of matrices, convolutions, attention) have the formulas of flops.py; an elementwise op counts one operation an
element, however hard that is, and norms and the like a fixed number of them. What a rule cannot tell it raises.
docs/analysis.md, "costs", has them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from opspan.analysis.flops import FURTHER, TORCH, Formula, Sizes, for_each, out_sizes
from opspan.analysis.op_cost import MEAN, SUM, Rule, Values, Writes, Written, elements

# How torch numbers types where one is an argument of an op.
_NUMBERED = {5: "half", 6: "float", 7: "double", 15: "bfloat16", 23: "float8_e5m2", 24: "float8_e4m3fn"}

# --- what is written


def _like(*arguments: int, type_: str | None = None) -> Writes:
    """As many elements as these arguments have, broadcast."""
    return lambda sizes, _: [(prod(_broadcast([sizes[at] for at in arguments if at < len(sizes)])), type_)]


def _first(sizes: Sizes, _: Values) -> list[Written]:
    return [(prod(sizes[0]), 0)]


def _broadcast(shapes: Sequence[Sequence[int]]) -> list[int]:
    most = max(len(shape) for shape in shapes)
    columns = zip(*([1] * (most - len(shape)) + list(shape) for shape in shapes), strict=True)
    found = []
    for column in columns:
        others = {size for size in column if size != 1}
        if len(others) > 1:
            raise ValueError("sizes that do not fit each other")
        found.append(others.pop() if others else 1)
    return found


def _lists(*arguments: int) -> Writes:
    def writes(sizes: Sizes, _: Values) -> list[Written]:
        rest = [at for at in arguments[1:] if at < len(sizes) and sizes[at]]
        return [(_of_list(sizes[at]), None) for at in (arguments[0], *rest)]

    return writes


def _of_list(size: Any) -> int:
    if not size or not isinstance(size[0], list):
        raise ValueError("the tensors of the list are not known")
    return elements(size)


def _product_out(at: int) -> Writes:
    return lambda sizes, _: [(prod(sizes[at][:-1]) * sizes[at + 1][-1], None)]


def _scaled_out(sizes: Sizes, values: Values) -> list[Written]:
    [(many, _)] = _product_out(0)(sizes, values)
    return [(many, _NUMBERED[values[6]] if values[6] is not None else None)]


def _conv2d_out(sizes: Sizes, values: Values) -> list[Written]:
    (batch, _, *inner), (out_channels, _, *kernel) = sizes[0], sizes[1]
    each = [for_each(value, len(kernel)) for value in values[3:6]]
    return [(batch * out_channels * prod(out_sizes(inner, kernel, *each)), None)]


def _convolution_out(sizes: Sizes, values: Values) -> list[Written]:
    if not values[6]:
        return _conv2d_out(sizes, values)
    (batch, _, *inner), (_, out_channels, *kernel) = sizes[0], sizes[1]
    stride, padding, dilation, more = (for_each(values[at], len(kernel)) for at in (3, 4, 5, 7))
    out = [
        (size - 1) * step - 2 * around + apart * (width - 1) + extra + 1
        for size, step, around, apart, width, extra in zip(inner, stride, padding, dilation, kernel, more, strict=True)
    ]
    return [(batch * out_channels * values[8] * prod(out), None)]


def _convolution_gradients(sizes: Sizes, values: Values) -> list[Written]:
    mask = values[10]
    channels = sizes[2][1] * values[9] if values[7] else sizes[2][0]
    made = (prod(sizes[1]), prod(sizes[2]), channels)
    return [(many, None) for many, is_made in zip(made, mask, strict=True) if is_made]


def _attention_out(sizes: Sizes, _: Values) -> list[Written]:
    queries = prod(sizes[0][:-1])
    return [(queries * sizes[2][-1], None), (queries, MEAN)]


def _likes(*arguments: int) -> Writes:
    """A tensor like each of these arguments."""
    return lambda sizes, _: [(prod(sizes[at]), None) for at in arguments]


def _layer_norm_out(many: int) -> Writes:
    """And so many statistics of each row: of what the weights are not for."""

    def writes(sizes: Sizes, values: Values) -> list[Written]:
        own = values[1] if len(values) > 1 and values[1] else sizes[2]
        if not own or sizes[0][-len(own) :] != list(own):
            raise ValueError("no such norm")
        return [(prod(sizes[0]), None), (many * prod(sizes[0][: -len(own)]), MEAN)]

    return writes


def _with_weights(at: int, weight: int) -> Writes:
    """A gradient like the input, and two like the weight, if there is one."""
    return lambda sizes, _: [(prod(sizes[at]), None), (2 * elements(sizes[weight]) if sizes[weight] else 0, None)]


def _batch_norm_out(sizes: Sizes, values: Values) -> list[Written]:
    return [(prod(sizes[0]), None), (2 * sizes[0][1] if values[5] else 0, MEAN)]


def _group_norm_out(sizes: Sizes, values: Values) -> list[Written]:
    return [(prod(sizes[0]), None), (2 * values[3] * values[6], MEAN)]


def _softmax_out(sizes: Sizes, values: Values) -> list[Written]:
    return [(prod(sizes[0]), "float" if len(values) > 2 and values[2] is True else None)]


def _reduced(dim: int, of: int, type_: str | None = None) -> Writes:
    """Without the dimensions that argument `dim` names; all of them, if the op was given fewer than `of` arguments."""

    def writes(sizes: Sizes, values: Values) -> list[Written]:
        many = 1
        if len(sizes) >= of:
            if len(values) <= dim:
                raise ValueError("the dimensions are not known")
            gone = [values[dim]] if isinstance(values[dim], int) else values[dim] or range(len(sizes[0]))
            left = {at % len(sizes[0]) for at in gone} if sizes[0] else set()
            many = prod(size for at, size in enumerate(sizes[0]) if at not in left)
        return [(many, type_)]

    return writes


def _embedding_out(sizes: Sizes, _: Values) -> list[Written]:
    """The rows that were asked for: read, and written."""
    return [(2 * prod(sizes[1]) * sizes[0][-1], 0)]


def _selected(sizes: Sizes, values: Values) -> list[Written]:
    own = list(sizes[0])
    own[values[1]] = prod(sizes[2])
    return [(2 * prod(own), 0)]


def _embedding_gradient(sizes: Sizes, values: Values) -> list[Written]:
    return [(values[2] * sizes[0][-1], None)]


def _pooled(sizes: Sizes, values: Values) -> tuple[int, int]:
    """Elements that come out, and how many each is made of. Not of a ceiling (ceil_mode), which adds some."""
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


def _each(many: int, at: int = 0) -> Formula:
    """So many operations an element of this argument."""
    return lambda sizes, _: many * elements(sizes[at])


def _each_of_list(many: int) -> Formula:
    return lambda sizes, _: many * _of_list(sizes[0])


def _broadcast_each(*arguments: int) -> Formula:
    made = _like(*arguments)
    return lambda sizes, values: next(iter(made(sizes, values)))[0]


def _nothing(sizes: Sizes, _: Values) -> int:
    return 0


def _product(name: str, reads: Sequence[int], writes: Writes, computes_as: int = 0) -> Rule:
    return Rule(TORCH[name] if name in TORCH else FURTHER[name], reads, writes, True, computes_as)


def _norm(many: int, reads: Sequence[int], writes: Writes) -> Rule:
    return Rule(_each(many), reads, writes, computes_as=0)


def _elementwise(count: int, names: str, type_: str | None = None) -> dict[str, Rule]:
    arguments = tuple(range(count))
    rule = Rule(_broadcast_each(*arguments), arguments, _like(*arguments, type_=type_))
    return {f"aten::{name}{end}": rule for name in names.split() for end in ("", "_")}


def _reductions(names: str, rule: Rule) -> dict[str, Rule]:
    return {f"aten::{name}": rule for name in names.split()}


_ATTENTION_READS = {"flash_attention": 3, "flash_attention_for_cpu": 3}
_GRADIENT_READS = {"flash_attention": 6, "flash_attention_for_cpu": 6, "cudnn_attention": 6}


def _attentions() -> dict[str, Rule]:
    found = {}
    for name in (name for name in FURTHER if "attention" in name):
        kind = name.removeprefix("aten::_scaled_dot_product_")
        if kind.endswith("_backward"):
            reads = range(_GRADIENT_READS.get(kind.removesuffix("_backward"), 7))
            found[name] = _product(name, reads, _likes(1, 2, 3), 1)
        else:
            found[name] = _product(name, range(_ATTENTION_READS.get(kind, 4)), _attention_out)
    return found


RULES: dict[str, Rule] = {
    "aten::mm": _product("aten::mm", (0, 1), _product_out(0)),
    "aten::addmm": _product("aten::addmm", (0, 1, 2), _product_out(1), 1),
    "aten::bmm": _product("aten::bmm", (0, 1), _product_out(0)),
    "aten::baddbmm": _product("aten::baddbmm", (0, 1, 2), _product_out(1), 1),
    "aten::_scaled_mm": _product("aten::_scaled_mm", (0, 1, 2, 3, 4), _scaled_out),
    "aten::mv": Rule(_each(2), (0, 1), lambda sizes, _: [(sizes[0][0], None)], is_product=True),
    "aten::dot": Rule(_each(2), (0, 1), lambda *_: [(1, None)], is_product=True),
    "aten::conv2d": _product("aten::conv2d", (0, 1, 2), _conv2d_out),
    "aten::convolution": _product("aten::convolution", (0, 1, 2), _convolution_out),
    "aten::_convolution": _product("aten::_convolution", (0, 1, 2), _convolution_out),
    "aten::convolution_backward": _product("aten::convolution_backward", (0, 1, 2), _convolution_gradients),
    **_attentions(),
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
    # Where it is, no type of the condition is the result's.
    "aten::where": Rule(_broadcast_each(0, 1, 2), (0, 1, 2), _like(0, 1, 2)),
    "aten::masked_fill_": Rule(_nothing, (0, 1), _like(0)),
    "aten::native_dropout": Rule(_each(2), (0,), lambda sizes, _: [(prod(sizes[0]), None), (prod(sizes[0]), "bool")]),
    "aten::native_dropout_backward": Rule(_each(2), (0, 1), _like(0)),
    # mean, difference, its square, their sum, by the deviation, by the weight, and the bias
    "aten::native_layer_norm": _norm(7, (0, 2, 3), _layer_norm_out(2)),
    "aten::native_layer_norm_backward": _norm(13, (0, 1, 3, 4, 5), _with_weights(1, 5)),
    "aten::_fused_rms_norm": _norm(4, (0, 2), _layer_norm_out(1)),
    "aten::native_group_norm": _norm(7, (0, 1, 2), _group_norm_out),
    "aten::native_group_norm_backward": _norm(13, (0, 1, 2, 3, 4), _with_weights(1, 4)),
    **{
        f"aten::{whose}_batch_norm": _norm(7, (0, 1, 2, 3, 4), _batch_norm_out)
        for whose in ("native", "cudnn", "miopen")
    },
    "aten::native_batch_norm_backward": _norm(13, (0, 1, 2, 5, 6), _with_weights(1, 2)),
    **{
        f"aten::{whose}_batch_norm_backward": _norm(13, (0, 1, 2, 5, 6), _with_weights(0, 2))
        for whose in ("cudnn", "miopen")
    },
    # the largest, the difference to it, exp, their sum, the quotient
    "aten::_softmax": Rule(_each(5), (0,), _softmax_out),
    "aten::_log_softmax": Rule(_each(5), (0,), _softmax_out),
    "aten::_softmax_backward_data": Rule(_each(4), (0, 1), _like(0)),
    "aten::_log_softmax_backward_data": Rule(_each(4), (0, 1), _like(0)),
    **_reductions("sum mean", Rule(_each(1), (0,), _reduced(1, 3, SUM))),
    **_reductions("amax amin", Rule(_each(1), (0,), _reduced(1, 2))),
    **_reductions("any all", Rule(_each(1), (0,), _reduced(1, 2, "bool"))),
    **_reductions("argmax argmin", Rule(_each(1), (0,), _reduced(1, 2, "long"))),
    **_reductions("linalg_vector_norm", Rule(_each(2), (0,), _reduced(2, 3))),
    **_reductions("var std", Rule(_each(4), (0,), _reduced(1, 3))),
    **_reductions("cumsum cumprod", Rule(_each(1), (0,), _like(0, type_=SUM))),
    "aten::max_pool2d_with_indices": Rule(
        lambda sizes, values: prod(_pooled(sizes, values)), (0,), _pool_out(None, "long")
    ),
    "aten::max_pool2d_with_indices_backward": Rule(_each(1), (0, 7), _likes(1)),
    "aten::avg_pool2d": Rule(lambda sizes, values: prod(_pooled(sizes, values)), (0,), _pool_out(None)),
    "aten::copy_": Rule(_nothing, (1,), _first),
    "aten::fill_": Rule(_nothing, (), _first),
    "aten::zero_": Rule(_nothing, (), _first),
    "aten::cat": Rule(_nothing, (0,), _lists(0)),
    "aten::embedding": Rule(_nothing, (1,), _embedding_out, computes_as=0),
    "aten::index_select": Rule(_nothing, (2,), _selected, computes_as=0),
    "aten::embedding_dense_backward": Rule(_nothing, (0, 1), _embedding_gradient),
    **{
        f"aten::_foreach_{name}{end}": Rule(_each_of_list(1), range(4), _lists(0))
        for name in ("add", "sub", "mul", "div", "addcmul", "addcdiv", "lerp", "sqrt", "neg", "exp", "maximum", "pow")
        for end in ("", "_")
    },
    # Parameters, gradients, averages of them and of their squares; all but the gradients are written.
    "aten::_fused_adam_": Rule(_each_of_list(13), range(5), _lists(0, 2, 3, 4)),
    "aten::_fused_adamw_": Rule(_each_of_list(15), range(5), _lists(0, 2, 3, 4)),
    "aten::_fused_sgd_": Rule(_each_of_list(4), range(3), _lists(0, 2)),
}
