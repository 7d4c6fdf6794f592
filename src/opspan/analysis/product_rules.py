"""The cost rules of products: of torch's ops, and of libraries such as cuDNN, FlashAttention, aiter and vLLM.

Numbers in rules are positions of arguments. Signatures were read from torch's schemas and from the sources of the
libraries. If versions differ, a rule uses only the arguments that all versions have, or the cost is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from opspan.analysis import attention as at
from opspan.analysis import products as of
from opspan.analysis.attention import Attention
from opspan.analysis.op_cost import CostRule, Formula, OutputSize, Sizes, Values, Writes, elements
from opspan.analysis.products import Convolution

# Torch has a number for each type. If an argument names a type, this number is recorded.
_NUMBERED = {5: "half", 6: "float", 7: "double", 15: "bfloat16", 23: "float8_e5m2", 24: "float8_e4m3fn"}
_FP4 = "float4_e2m1fn_x2"


def _rule(
    says: str,
    flops: Formula,
    reads: Sequence[int],
    writes: Writes,
    computes_as: int | tuple[int, ...] | str | None = 0,
    may_be_packed: Callable[[Sizes], bool] | None = None,
) -> CostRule:
    return CostRule(flops, reads, writes, True, computes_as, says, may_be_packed=may_be_packed)


def _for_each_name(prefix: str, names: str, rule: CostRule) -> dict[str, CostRule]:
    return {f"{prefix}::{name}": rule for name in names.split()}


def _with_type(writes: Writes, at_: int) -> Writes:
    """Returns outputs whose type is named by the argument `at_`. If this argument is None, the outputs have the type
    that the op computes in."""

    def typed(sizes: Sizes, values: Values) -> list[OutputSize]:
        type_ = values[at_]
        return [(many, _NUMBERED[type_] if type_ is not None else None) for many, _ in writes(sizes, values)]

    return typed


def _one_type_known(sizes: Sizes) -> bool:
    """Returns whether each element surely has one value: there is one scale, or one for each row. Packed types have a
    scale for each block."""
    return elements(sizes[2]) in (1, sizes[0][-2])


# --- matrices

_MATRICES = "2 M N K"
_VECTOR = "2 M K"
_TYPES_NEEDED = "2 M N K; twice it for types with two values in a byte; without types only if scales are not of blocks"
_mm = _rule(_MATRICES, of.matrices(), (0, 1), of.matrices_out())
_addmm = _rule(_MATRICES, of.matrices(1), (0, 1, 2), of.matrices_out(1), 1)
_addbmm = _rule("2 B M N K", of.matrices(1), (0, 1, 2), of.summed_out, 1)
_grouped = _rule("2 M N K, of all groups", of.grouped, (0, 1, 2, 3), of.grouped_out)


def _multiplied_vector(matrix: int) -> CostRule:
    """Returns the rule of a matrix times a vector. `matrix` is the position of the matrix: 1 if an addend comes before
    it, else 0."""
    out: Writes = lambda sizes, _: [(sizes[matrix][0], None)]  # noqa: E731
    return _rule(_VECTOR, lambda sizes, _: 2 * elements(sizes[matrix]), range(matrix + 2), out, matrix)


def _scaled(flops: Formula, writes: Writes, out_type: int, reads: Sequence[int], knows: bool = True) -> CostRule:
    is_packed = (lambda sizes: not _one_type_known(sizes)) if knows else lambda _: True
    return _rule(_TYPES_NEEDED, flops, reads, _with_type(writes, out_type), may_be_packed=is_packed)


def _dot_out(*_: Any) -> list[OutputSize]:
    return [(1, None)]


_DOT = _rule("2 K", lambda sizes, _: 2 * elements(sizes[0]), (0, 1), _dot_out)


def _size(at_: int, dimension: int = -1, times: int = 1) -> Callable[[Sizes, Values], int]:
    """Returns a function that computes how many columns the output has: the size of argument `at_` in `dimension`,
    times `times`."""
    return lambda sizes, _: int(sizes[at_][dimension]) * times


def _packed(says: str, columns: Callable[[Sizes, Values], int], reads: Sequence[int]) -> CostRule:
    return _rule(says, of.columns(columns), reads, of.columns_out(columns))


def _pair_of_products(sizes: Sizes, values: Values) -> int | None:
    one, other = of.matrices()(sizes, values), of.matrices(2)(sizes, values)
    return None if one is None or other is None else one + other


def _linear_pointwise(sizes: Sizes, values: Values) -> int | None:
    """Counts the operations. The weights are argument 1 if the op has six arguments, otherwise argument 2."""
    return of.weights(0, 1 if len(sizes) == 6 else 2)(sizes, values)


def _sparse_rows(sizes: Sizes, _: Values) -> int:
    """Counts a product with a sparse matrix. Half of its elements are kept, and only these are multiplied."""
    return 2 * int(prod(sizes[0]) * sizes[2][-1])


_OF_MATRICES: dict[str, CostRule] = {
    **_for_each_name("aten", "mm bmm", _mm),
    **_for_each_name("aten", "addmm baddbmm addmm_ baddbmm_ _addmm_activation", _addmm),
    **_for_each_name("aten", "addbmm addbmm_", _addbmm),
    "aten::mv": _multiplied_vector(0),
    **_for_each_name("aten", "addmv addmv_", _multiplied_vector(1)),
    **_for_each_name("aten", "dot vdot", _DOT),
    "aten::_int_mm": _rule(_MATRICES, of.matrices(), (0, 1), lambda sizes, _: [(sizes[0][0] * sizes[1][1], "int32")]),
    "aten::_grouped_mm": _grouped,
    "aten::_scaled_mm": _scaled(of.matrices(), of.matrices_out(), 6, range(5)),
    "aten::_scaled_mm_v2": _scaled(of.matrices(), of.matrices_out(), 9, (0, 1, 8), knows=False),
    "aten::_scaled_grouped_mm": _scaled(
        of.grouped, lambda sizes, values: of.grouped_out([*sizes[:2], sizes[4]], values), 7, range(6), knows=False
    ),
    "aten::_scaled_grouped_mm_v2": _scaled(
        of.grouped, lambda sizes, values: of.grouped_out([*sizes[:2], sizes[8]], values), 10, (0, 1, 8, 9), knows=False
    ),
    "aten::mkldnn_linear": _rule(_MATRICES, of.weights(), (0, 1, 2), of.weights_out()),
    "mkldnn::_linear_pointwise": _rule(_MATRICES, _linear_pointwise, (0, 1, 2), of.unknown_out),
    "mkl::_mkl_linear": _rule(_MATRICES, of.weights(0, 2), (0, 2, 3), of.weights_out(0, 2)),
    "inductor::_mm_plus_mm": _rule("2 M N K of both", _pair_of_products, range(4), of.matrices_out()),
    "aten::_weight_int8pack_mm": _rule(_MATRICES, of.weights(), (0, 1, 2), of.weights_out()),
    **_for_each_name(
        "aten",
        "_weight_int4pack_mm _weight_int4pack_mm_for_cpu",
        _packed("2 M N K; N is that of the scales", _size(3, -2), (0, 1, 3)),
    ),
    "aten::_weight_int4pack_mm_with_scales_and_zeros": _packed(
        "2 M N K; N is that of the scales", _size(3), (0, 1, 3, 4)
    ),
    "aten::_mixed_dtypes_linear": _packed("2 M N K; N is that of the scales", _size(2), (0, 1, 2, 3)),
    "aten::_dyn_quant_matmul_4bit": _packed(
        "2 M N K; N is the value `out_features`", lambda _, values: int(values[4]), (0, 1)
    ),
    "aten::_sparse_semi_structured_mm": _rule(
        "M N K: of the half that is kept",
        _sparse_rows,
        (0, 1, 2),
        lambda sizes, _: [(sizes[0][0] * sizes[2][-1], None)],
    ),
}

# --- convolutions

_CONVOLVED = "2 B (points of the output) (elements of the weight); transposed: points of the input"
_GRADIENTS = "what the forward takes, for each of the gradients of input and weight"


def _convolution(rule: Convolution, reads: Sequence[int] = (0, 1, 2)) -> CostRule:
    return _rule(_CONVOLVED, rule.flops, reads, rule.writes)


def _gradients(transposed: int | None, groups: int | None, mask: int) -> CostRule:
    writes = of.convolution_gradients_out(transposed, groups, mask)
    return _rule(_GRADIENTS, of.convolution_gradients(transposed, mask), (0, 1, 2), writes)


def _of_pointwise(sizes: Sizes, values: Values) -> int:
    """Counts a convolution that has two overloads. In the second, an additional tensor comes before the weights, which
    shifts the positions of the weights and of all later arguments by one."""
    return (Convolution(4, 3, 5) if values[3] is not None else Convolution(5, 4, 6, weight=2)).flops(sizes, values)


_CONVOLUTIONS: dict[str, CostRule] = {
    "aten::conv2d": _convolution(Convolution(3, 4, 5)),
    **_for_each_name(
        "aten", "convolution _convolution convolution_overrideable", _convolution(Convolution(3, 4, 5, 6, 7, 8))
    ),
    "aten::convolution_backward": _gradients(7, 9, 10),
    "aten::convolution_backward_overrideable": _gradients(6, 8, 9),
    "aten::cudnn_convolution": _convolution(Convolution(3, 2, 4), (0, 1)),
    **_for_each_name(
        "aten",
        "mkldnn_convolution miopen_convolution miopen_depthwise_convolution",
        _convolution(Convolution(4, 3, 5)),
    ),
    **_for_each_name("aten", "cudnn_convolution_relu miopen_convolution_relu", _convolution(Convolution(3, 4, 5))),
    **_for_each_name(
        "aten",
        "cudnn_convolution_add_relu miopen_convolution_add_relu",
        _convolution(Convolution(5, 6, 7), (0, 1, 2, 4)),
    ),
    "aten::cudnn_convolution_transpose": _convolution(Convolution(4, 2, 5, True, 3, 6), (0, 1)),
    "aten::miopen_convolution_transpose": _convolution(Convolution(5, 3, 6, True, 4, 7)),
    **_for_each_name(
        "aten", "_slow_conv2d_forward slow_conv3d_forward", _convolution(Convolution(4, 5, None), (0, 1, 3))
    ),
    **_for_each_name(
        "aten",
        "_conv_depthwise2d conv_depthwise3d slow_conv_dilated2d slow_conv_dilated3d",
        _convolution(Convolution(4, 5, 6), (0, 1, 3)),
    ),
    **_for_each_name(
        "aten", "slow_conv_transpose2d slow_conv_transpose3d", _convolution(Convolution(4, 5, 7, True, 6), (0, 1, 3))
    ),
    "aten::_slow_conv2d_backward": _gradients(None, None, 6),
    "mkldnn::_convolution_pointwise": _rule(_CONVOLVED, _of_pointwise, (0, 1, 2), of.unknown_out),
}

# --- recurrent layers

_LAYER = "2 (tokens) (elements of the matrices of weights); what the gates do is not counted"
_RECURRENT: dict[str, CostRule] = {
    "aten::mkldnn_rnn_layer": _rule(_LAYER, of.recurrent_layer(1), range(7), of.unknown_out),
    "aten::mkldnn_rnn_layer_backward": _rule(_LAYER + "; twice", of.recurrent_layer(2), range(7), of.unknown_out),
    **_for_each_name("aten", "_cudnn_rnn miopen_rnn", _rule(_LAYER, of.recurrent(), (0, 1), of.unknown_out)),
    "aten::_cudnn_rnn_backward": _rule(
        _LAYER + "; once for inputs, once for weights", of.recurrent(21), (0, 1), of.unknown_out
    ),
    "aten::miopen_rnn_backward": _rule(
        _LAYER + "; once for inputs, once for weights", of.recurrent(20), (0, 1), of.unknown_out
    ),
}

# --- attention

_FORWARD = "2 (pairs of query and key) (heads) (width of keys + width of values)"
_BACKWARD = "2 (pairs of query and key) (heads) (3 widths of keys + 2 widths of values)"


def _attention(attention: Attention, reads: Sequence[int] | None = None) -> CostRule:
    first = attention.first
    # A forward reads query, key and value. A backward also reads the gradient, which comes first, and the forward's
    # result and its logarithms, which come last.
    if reads is None:
        reads = range(6) if attention.is_backward else range(first, first + 3)
    says = _BACKWARD if attention.is_backward else _FORWARD
    return CostRule(attention.flops, reads, attention.writes, True, first, says, attention.masked)


def _dense(mask: at.Masks, reads: int = 3) -> CostRule:
    return _attention(Attention(mask, heads_first=True), range(reads))


def _dense_backward(mask: at.Masks, reads: int) -> CostRule:
    return _attention(Attention(mask, heads_first=True, is_backward=True, first=1), range(reads))


def _packable(
    mask: at.Masks,
    ends: int,
    longest: int,
    absent: Sequence[int] = (),
    reads: Sequence[int] | None = None,
    **more: Any,
) -> CostRule:
    lengths: dict[str, Any] = {"ends": (ends, ends + 1), "longest": (longest, longest + 1), "absent": tuple(absent)}
    return _attention(Attention(mask, **lengths, **more), reads)


def _packable_backward(mask: at.Masks, ends: int, longest: int, absent: Sequence[int] = (), **more: Any) -> CostRule:
    return _packable(mask, ends, longest, absent, is_backward=True, first=1, **more)


_SDPA = "aten::_scaled_dot_product_"
_ATTENTIONS: dict[str, CostRule] = {
    f"{_SDPA}flash_attention": _dense(at.causal_or_quantized(4, 7)),
    f"{_SDPA}flash_attention_for_cpu": _dense(at.causal(4)),
    f"{_SDPA}efficient_attention": _dense(at.causal(6), 4),
    f"{_SDPA}cudnn_attention": _dense(at.causal(6), 4),
    f"{_SDPA}fused_attention_overrideable": _dense(at.causal(5), 4),
    f"{_SDPA}attention_math_for_mps": _dense(at.causal(5), 4),
    f"{_SDPA}flash_attention_backward": _dense_backward(at.causal(11), 6),
    f"{_SDPA}flash_attention_for_cpu_backward": _dense_backward(at.causal(7), 6),
    f"{_SDPA}efficient_attention_backward": _dense_backward(at.causal(11), 7),
    f"{_SDPA}cudnn_attention_backward": _dense_backward(at.causal(14), 6),
    f"{_SDPA}fused_attention_overrideable_backward": _dense_backward(at.causal(13), 8),
    "aten::_flash_attention_forward": _packable(at.causal_in_window(8, 11, 14), 3, 5, (13, 15, 16)),
    "aten::_flash_attention_forward_no_dropout_inplace": _packable(at.causal_in_window(9, 12), 4, 6, (14, 16), first=1),
    "aten::_flash_attention_backward": _packable_backward(at.causal_in_window(11, 15), 6, 8),
    "aten::_efficient_attention_forward": _packable(at.custom_mask(9, 13), 4, 6, (12,), range(4)),
    "aten::_efficient_attention_backward": _packable_backward(at.custom_mask(14, 18), 6, 8, reads=(*range(6), 10)),
    "aten::_cudnn_attention_forward": _packable(at.causal(10), 4, 6, reads=range(4), heads_first=True),
    "aten::_cudnn_attention_backward": _packable_backward(at.causal(14), 9, 11, heads_first=True),
    "torch_attn::_varlen_attn": _packable(at.causal_in_list(7, 9), 3, 5, (11, 12)),
    "torch_attn::_varlen_attn_out": _packable(at.causal_in_list(8, 10), 4, 6, (12, 13), first=1),
    "torch_attn::_varlen_attn_backward": _packable_backward(at.causal_in_list(10, 13), 6, 8),
    "flash_attn::_flash_attn_forward": _attention(Attention(at.in_window)),
    "flash_attn::_flash_attn_varlen_forward": _packable(at.in_window, 3, 5, (15, 16, 17)),
    "flash_attn::_flash_attn_backward": _attention(Attention(at.in_window, is_backward=True, first=1)),
    "flash_attn::_flash_attn_varlen_backward": _packable_backward(at.in_window, 9, 11),
    "flash_attn_3::fwd": _packable(at.in_window, 7, 12, (3, 4, 5, 9, 10, 11, 14, 15, 16)),
    "_vllm_fa3_C::fwd": _packable(at.in_window, 7, 12, (3, 4, 5, 9, 10, 11, 14, 15, 16)),
    "flash_attn_3::bwd": _packable_backward(at.in_window, 9, 13, (11, 12)),
    "_vllm_fa2_C::varlen_fwd": _packable(at.in_window, 4, 10, (6, 7, 8)),
    **_for_each_name(
        "aiter", "mha_fwd fmha_v3_fwd wrapper_fmha_v3_fwd _flash_attn_forward", _attention(Attention(at.in_window))
    ),
    **_for_each_name(
        "aiter",
        "mha_bwd fmha_v3_bwd wrapper_fmha_v3_bwd _flash_attn_backward",
        _attention(Attention(at.in_window, is_backward=True, first=1)),
    ),
    **_for_each_name(
        "aiter", "mha_varlen_fwd fmha_v3_varlen_fwd _flash_attn_varlen_forward", _packable(at.in_window, 3, 5)
    ),
    **_for_each_name("aiter", "mha_varlen_bwd fmha_v3_varlen_bwd", _packable_backward(at.in_window, 6, 8)),
    "aiter::_flash_attn_varlen_backward": _packable_backward(at.in_window, 9, 11),
}

# --- aiter and vLLM


def _marlin(sizes: Sizes, values: Values) -> int:
    """Returns N. The values contain M, N, K one after another, and the input has the sizes [M, K]."""
    rows, inner = prod(sizes[0][:-1]), sizes[0][-1]
    for one, columns, other in zip(values, values[1:], values[2:], strict=False):
        if (one, other) == (rows, inner) and isinstance(columns, int) and not isinstance(columns, bool):
            return columns
    raise ValueError("the sizes of the product are not among the values")


def _experts(sizes: Sizes, _: Values) -> int:
    """Counts the operations of a mixture of experts. The arguments are tokens [T, H], the weights of both layers
    ([E, N, H] and [E, H, I]), the routing weights of the chosen experts, and the chosen experts [T, k]."""
    tokens, first, second, _, chosen = sizes[:5]
    width = second[1]
    if any(len(size) == 1 and size[0] > first[0] for size in sizes[5:]):
        raise ValueError("experts that are elsewhere: how many tokens are for those here is in a tensor")
    if tokens[-1] != width or chosen[0] != tokens[0] or width not in (first[2], 2 * first[2]):
        raise ValueError("sizes that do not fit each other")
    inner = second[2] * (width // first[2])  # if the weights are packed, a byte has two values
    return 2 * int(prod(chosen) * width * (first[1] + inner))


_fp4_weights = _rule("2 M N K of two values in a byte", of.weights(), range(4), of.weights_out(type_=None), _FP4)
_AITER = (
    "gemm_a8w8 gemm_a8w8_ck gemm_a8w8_asm gemm_a8w8_bpreshuffle gemm_a8w8_bpreshuffle_ck gemm_a8w8_bpreshuffle_cktile "
    "gemm_a8w8_blockscale gemm_a8w8_blockscale_ck gemm_a8w8_blockscale_cktile gemm_a8w8_blockscale_bpreshuffle "
    "gemm_a8w8_blockscale_bpreshuffle_ck gemm_a8w8_blockscale_bpreshuffle_cktile gemm_a8w8_blockscale_bpreshuffle_ "
    "flatmm_a8w8_blockscale_asm batched_gemm_a8w8 batched_gemm_bf16 gemm_a16w16 gemm_a16w16_atomic_"
)
_OF_LIBRARIES: dict[str, CostRule] = {
    **_for_each_name("aiter", _AITER, _rule(_MATRICES, of.weights(), (0, 1), of.unknown_out)),
    **_for_each_name("aiter", "gemm_a4w4 _gemm_a4w4_asm", _fp4_weights),
    "aiter::hipb_mm": _rule(_MATRICES, of.matrices(), (0, 1), of.unknown_out),
    "vllm::rocm_unquantized_gemm": _rule(_MATRICES, of.weights(), (0, 1, 2), of.weights_out()),
    **_for_each_name(
        "_rocm_C",
        "wvSplitK wvSplitKrc LLMM1",
        _rule(_MATRICES, of.weights(1, 0), (0, 1), of.weights_out(1, 0)),
    ),
    **_for_each_name(
        "_C",
        "cutlass_scaled_mm cutlass_scaled_mm_azp",
        _rule(_MATRICES, of.matrices(1), range(1, 6), lambda sizes, _: [(prod(sizes[0]), 0)], 1),
    ),
    "_C::cutlass_scaled_fp4_mm": _rule(
        "2 M N K of two values in a byte", of.weights(1, 2), range(1, 6), lambda sizes, _: [(prod(sizes[0]), 0)], _FP4
    ),
    **_for_each_name(
        "_C", "marlin_gemm gptq_marlin_gemm", _rule("2 M N K; N is a value", of.columns(_marlin), (0,), of.unknown_out)
    ),
    "_C::awq_gemm": _packed("2 M N K; N is eight times that of the weights", _size(1, times=8), (0, 1, 2, 3)),
    "_C::gptq_gemm": _packed("2 M N K; N is that of the weights", _size(1), range(5)),
    **{
        name: _rule(
            "2 (tokens) (experts of each) (weights of an expert)",
            _experts,
            range(5),
            lambda sizes, _: [(prod(sizes[0]), 0)],
            (0, 1, 2),
        )
        for name in (
            "vllm::inplace_fused_experts",
            "vllm::outplace_fused_experts",
            "sglang::inplace_fused_experts",
            "sglang::outplace_fused_experts",
            "aiter::fused_moe_",
        )
    },
}

PRODUCTS = _OF_MATRICES | _CONVOLUTIONS | _RECURRENT | _ATTENTIONS | _OF_LIBRARIES

# Ops whose cost a trace does not show, with the reason.
NOT_TOLD: dict[str, str] = {
    "vllm::unified_attention": "lengths of keys are only in the detailed labels of the engine's steps",
    "vllm::unified_attention_with_output": "lengths of keys are only in the detailed labels of the engine's steps",
    "vllm::unified_mla_attention_with_output": "lengths of keys and windows of layers are in no trace",
    **dict.fromkeys(
        ("vllm::moe_forward", "vllm::moe_forward_shared"), "weights and chosen experts are not among its inputs"
    ),
    **dict.fromkeys(
        ("quantized::linear", "quantized::linear_dynamic", "quantized::linear_relu", "quantized::conv2d"),
        "weights are packed in an object without sizes",
    ),
    "aten::_cslt_sparse_mm": "weights are packed in one dimension",
}
