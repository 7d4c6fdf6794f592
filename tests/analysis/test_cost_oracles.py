"""Costs of products against torch's own formulas over drawn sizes, and against loops where torch has none."""

from __future__ import annotations

from math import log2, prod
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
from torch.utils.flop_counter import flop_registry  # noqa: E402

from analysis.schemas import Named, Tensor, arguments_of, cost_of  # noqa: E402
from opspan.analysis.formulas import RULES  # noqa: E402

size = st.integers(1, 9)
few = st.integers(1, 3)
BY_TORCH = {str(op).replace(".", "::"): formula for op, formula in flop_registry.items()}


def by_torch(name: str, *tensors: Any, out: Any = None, **more: Any) -> int:
    return int(BY_TORCH[name](*tensors, out_val=out, **more))


def meta(sizes: Any) -> Any:
    return torch.empty(sizes, device="meta")


@settings(max_examples=40)
@given(size, size, size, size)
def test_matrices_as_torch_counts_them(batch: int, rows: int, inner: int, columns: int) -> None:
    one, other, added = Tensor([rows, inner]), Tensor([inner, columns]), Tensor([columns])
    many, further = Tensor([batch, *one]), Tensor([batch, *other])
    scale = Tensor([1])
    scaled: Named = {"self": one, "mat2": other, "scale_a": scale, "scale_b": scale}
    one_product = by_torch("aten::mm", one, other)
    assert cost_of("aten::mm", {"self": one, "mat2": other}).flops == one_product
    assert cost_of("aten::_scaled_mm", scaled).flops == by_torch("aten::_scaled_mm", one, other, scale, scale)
    whole = by_torch("aten::bmm", many, further)
    assert cost_of("aten::bmm", {"self": many, "mat2": further}).flops == whole
    for name in ("baddbmm", "baddbmm_", "addbmm", "addbmm_"):
        given_ = {"self": added, "batch1": many, "batch2": further}
        assert cost_of(f"aten::{name}", given_).flops == whole == by_torch("aten::baddbmm", added, many, further)
    for name in ("addmm", "addmm_", "_addmm_activation"):
        given_ = {"self": added, "mat1": one, "mat2": other}
        assert cost_of(f"aten::{name}", given_).flops == by_torch("aten::addmm", added, one, other)
    assert cost_of("aten::_int_mm", {"self": one, "mat2": other}).flops == one_product
    vector = {"self": Tensor([rows]), "mat": one, "vec": Tensor([inner])}
    assert cost_of("aten::addmv", vector).flops == cost_of("aten::addmv_", vector).flops == 2 * rows * inner


CONVOLUTIONS = {
    "aten::convolution": "input",
    "aten::_convolution": "input",
    "aten::convolution_overrideable": "input",
    "aten::cudnn_convolution": "self",
    "aten::mkldnn_convolution": "self",
    "aten::miopen_convolution": "self",
    "aten::miopen_depthwise_convolution": "self",
    "aten::cudnn_convolution_relu": "self",
    "aten::miopen_convolution_relu": "self",
    "aten::cudnn_convolution_add_relu": "self",
    "aten::_slow_conv2d_forward": "self",
    "aten::slow_conv_dilated2d": "self",
    "aten::_conv_depthwise2d": "self",
    "mkldnn::_convolution_pointwise": "X",
}
TRANSPOSED = {
    "aten::convolution": "input",
    "aten::_convolution": "input",
    "aten::cudnn_convolution_transpose": "self",
    "aten::miopen_convolution_transpose": "self",
    "aten::slow_conv_transpose2d": "self",
}


@settings(max_examples=60)
@given(few, few, few, few, st.lists(few, min_size=2, max_size=2), few, st.integers(0, 2), few, st.data())
def test_convolutions_as_torch_counts_them(
    batch: int, each: int, out: int, groups: int, kernel: list[int], step: int, around: int, apart: int, data: Any
) -> None:
    name, given_name = data.draw(st.sampled_from(sorted(CONVOLUTIONS.items())))
    is_slow = name == "aten::_slow_conv2d_forward"
    apart = 1 if is_slow else apart
    inner = [data.draw(st.integers(7, 12)) for _ in kernel]
    x, w = [batch, groups * each, *inner], [groups * out, each, *kernel]
    real = torch.nn.functional.conv2d(meta(x), meta(w), None, step, around, apart, groups)
    values = {"stride": [step], "padding": [around] * 2, "dilation": [apart], "groups": groups, "transposed": False}
    values |= {"kernel_size": kernel, "output_padding": [0]}
    weight = "W" if given_name == "X" else "weight"
    named = {given_name: Tensor(x), weight: Tensor(w), **values}
    named = {key: value for key, value in named.items() if key in arguments_of(name)}
    theirs = by_torch("aten::convolution", x, w, None, None, None, None, False, out=real)
    found = cost_of(name, named)
    assert found.flops == theirs
    if found.bytes is not None:
        assert found.bytes == 4 * (prod(x) + prod(w) + real.numel())


@settings(max_examples=40)
@given(few, few, few, few, st.lists(few, min_size=2, max_size=2), st.integers(1, 3), st.data())
def test_transposed_convolutions_as_torch_counts_them(
    batch: int, each: int, out: int, groups: int, kernel: list[int], step: int, data: Any
) -> None:
    name, given_name = data.draw(st.sampled_from(sorted(TRANSPOSED.items())))
    groups = 1 if "slow" in name else groups
    more = data.draw(st.integers(0, step - 1))
    x, w = [batch, groups * each, 5, 6], [groups * each, out, *kernel]
    real = torch.nn.functional.conv_transpose2d(meta(x), meta(w), None, step, 0, more, groups)
    values = {"stride": [step], "padding": [0], "dilation": [1], "groups": groups, "transposed": True}
    values |= {"kernel_size": kernel, "output_padding": [more]}
    named = {given_name: Tensor(x), "weight": Tensor(w), **values}
    named = {key: value for key, value in named.items() if key in arguments_of(name)}
    found = cost_of(name, named)
    assert found.flops == by_torch("aten::convolution", x, w, None, None, None, None, True, out=real)
    assert found.bytes == 4 * (prod(x) + prod(w) + real.numel())


@settings(max_examples=40)
@given(
    few, few, few, st.lists(few, min_size=2, max_size=2), st.booleans(), st.lists(st.booleans(), min_size=3, max_size=3)
)
def test_gradients_of_convolutions_as_torch_counts_them(
    batch: int, channels: int, out: int, kernel: list[int], transposed: bool, mask: list[bool]
) -> None:
    x = [batch, channels, 7, 8]
    w = [channels, out, *kernel] if transposed else [out, channels, *kernel]
    of = torch.nn.functional.conv_transpose2d if transposed else torch.nn.functional.conv2d
    gradient = list(of(meta(x), meta(w)).shape)
    named = {"grad_output": Tensor(gradient), "input": Tensor(x), "weight": Tensor(w), "transposed": transposed}
    named |= {"stride": [1], "padding": [0], "dilation": [1], "output_padding": [0], "groups": 1, "output_mask": mask}
    theirs = by_torch(
        "aten::convolution_backward", gradient, x, w, None, None, None, None, transposed, None, 1, mask,
        out=(meta(x), meta(w), meta([out])),
    )  # fmt: skip
    assert cost_of("aten::convolution_backward_overrideable", named).flops == theirs
    assert cost_of("aten::convolution_backward", named).flops == theirs
    if not transposed:
        slow = {"grad_output": Tensor(gradient), "self": Tensor(x), "weight": Tensor(w), "output_mask": mask}
        assert cost_of("aten::_slow_conv2d_backward", slow, overload="output_mask").flops == theirs


def test_every_op_that_torch_counts_has_a_rule() -> None:
    # Names without a library, as of flex_attention, are not ops of a trace.
    assert {name for name in BY_TORCH if "::" in name} - RULES.keys() == set()
    assert len(BY_TORCH) >= 21


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), size, size, st.booleans())
def test_grouped_products_by_loops(groups: list[int], one: int, other: int, is_scaled: bool) -> None:
    """A product for each group: `groups` are the sizes of what the offsets cut."""
    many, whole = len(groups), sum(groups)
    cases = {
        "rows": (([whole, one], [many, one, other]), [(rows, one, other) for rows in groups]),
        "columns": (([many, one, other], [other, whole]), [(one, other, columns) for columns in groups]),
        "inner": (([one, whole], [whole, other]), [(one, inner, other) for inner in groups]),
        "batches": (([many, one, 3], [many, 3, other]), [(one, 3, other)] * many),
    }
    for left_and_right, products in cases.values():
        left, right = map(Tensor, left_and_right)
        named = {"self": left, "mat2": right, "offs": Tensor([many])}
        expected = sum(2 * rows * inner * columns for rows, inner, columns in products)
        type_ = "c10::Float8_e4m3fn" if is_scaled else "c10::BFloat16"
        name = "aten::_scaled_grouped_mm" if is_scaled else "aten::_grouped_mm"
        found = cost_of(name, named, {"self": type_, "mat2": type_, "offs": "int"})
        assert found.flops == expected
        if not is_scaled:
            out = sum(rows * columns for rows, _, columns in products)
            assert found.bytes == 2 * (prod(left) + prod(right) + out) + 4 * many


def loops_of_lstm(gates: int, layers: int, ways: int, inputs: int, hidden: int, projected: int, tokens: int) -> int:
    counted = 0
    for layer in range(layers):
        for _ in range(ways):
            out = projected or hidden
            for _ in range(tokens):
                counted += gates * hidden * (inputs if layer == 0 else ways * out)  # weights of the input
                counted += gates * hidden * out  # weights of the hidden state
                counted += projected * hidden
    return 2 * counted


@settings(max_examples=30)
@given(st.sampled_from([1, 3, 4]), few, st.integers(1, 2), size, size, st.integers(0, 3), few, few)
def test_recurrent_layers_by_loops(
    gates: int, layers: int, ways: int, inputs: int, hidden: int, projected: int, steps: int, batch: int
) -> None:
    out, weights = projected or hidden, []
    for layer in range(layers):
        for _ in range(ways):
            weights += [[gates * hidden, inputs if layer == 0 else ways * out], [gates * hidden, out]]
            weights += [[gates * hidden], [gates * hidden]] + [[projected, hidden]] * bool(projected)
    expected = loops_of_lstm(gates, layers, ways, inputs, hidden, projected, steps * batch)
    named = {"input": Tensor([steps, batch, inputs]), "weight": Tensor(weights)}
    for name in ("aten::_cudnn_rnn", "aten::miopen_rnn"):
        assert cost_of(name, named).flops == expected
        assert cost_of(name, named | {"input": Tensor([steps * batch, inputs])}).flops == expected  # packed
        assert cost_of(name, named | {"weight": Tensor([])}).flops is None
        for mask, times in (([True, True, True, True], 2), ([True, False, False, False], 1)):
            assert cost_of(f"{name}_backward", named | {"output_mask": mask}).flops == times * expected


@pytest.mark.parametrize(
    ("name", "named", "expected"),
    [
        ("aten::_fft_c2c", {"self": Tensor([3, 8, 16]), "dim": [1, 2]}, 5 * 3 * 128 * log2(128)),
        ("aten::_fft_c2c", {"self": Tensor([3, 8]), "dim": [-1]}, 5 * 24 * log2(8)),
        ("aten::_fft_r2c", {"self": Tensor([3, 16]), "dim": [1], "onesided": True}, 2.5 * 48 * log2(16)),
        ("aten::_fft_c2r", {"self": Tensor([3, 9]), "dim": [1], "last_dim_size": 16}, 2.5 * 48 * log2(16)),
        ("aten::_fft_c2c", {"self": Tensor([3, 1]), "dim": [1]}, 0),
    ],
)
def test_fourier_transforms_by_the_usual_convention(name: str, named: Named, expected: float) -> None:
    assert cost_of(name, named).flops == round(expected)


FP8, FP4, BF16 = "c10::Float8_e4m3fn", "c10::Float4_e2m1fn_x2", "c10::BFloat16"


@pytest.mark.parametrize(
    ("name", "named", "types", "expected"),
    [
        # Two values in a byte: only the types say so. Scales of blocks may be those of either.
        ("aten::_scaled_mm", {"scale_a": Tensor([1])}, {"self": FP8}, 2 * 16 * 32 * 8),
        ("aten::_scaled_mm", {"scale_a": Tensor([512])}, {"self": FP8}, 2 * 16 * 32 * 8),
        ("aten::_scaled_mm", {"scale_a": Tensor([512])}, {"self": FP4}, 4 * 16 * 32 * 8),
        ("aten::_scaled_mm", {"scale_a": Tensor([512])}, None, None),
        ("aten::_scaled_mm", {"scale_a": Tensor([16, 1])}, None, 2 * 16 * 32 * 8),
        ("aten::_scaled_mm", {"scale_a": Tensor([512])}, {"self": "c10::Unheard"}, None),
        ("aten::_scaled_mm_v2", {}, {"self": FP4}, 4 * 16 * 32 * 8),
        ("aten::_scaled_mm_v2", {}, None, None),
        ("aten::_scaled_grouped_mm", {}, None, None),
        ("aten::_scaled_grouped_mm_v2", {}, {"self": FP4}, 4 * 16 * 32 * 8),
    ],
)
def test_scaled_products_of_packed_types(name: str, named: Named, types: Any, expected: int | None) -> None:
    both = {"self": Tensor([16, 32]), "mat2": Tensor([32, 8])}
    known = None if types is None else types | {"mat2": types["self"]}
    assert cost_of(name, both | named, known).flops == expected


@pytest.mark.parametrize(
    ("name", "named"),
    [
        # 3 rows, 64 that are summed over, 48 columns
        ("aten::_weight_int8pack_mm", {"self": Tensor([3, 64]), "mat2": Tensor([48, 64]), "scales": Tensor([48])}),
        (
            "aten::_weight_int4pack_mm",
            {"self": Tensor([3, 64]), "mat2": Tensor([6, 2, 32, 4]), "qScaleAndZeros": Tensor([2, 48, 2])},
        ),
        (
            "aten::_weight_int4pack_mm_for_cpu",
            {"self": Tensor([3, 64]), "mat2": Tensor([48, 32]), "qScaleAndZeros": Tensor([2, 48, 2])},
        ),
        (
            "aten::_weight_int4pack_mm_with_scales_and_zeros",
            {"self": Tensor([3, 64]), "mat2": Tensor([48, 8]), "qScale": Tensor([2, 48]), "qZeros": Tensor([2, 48])},
        ),
        ("aten::_dyn_quant_matmul_4bit", {"inp": Tensor([3, 64]), "packed_weights": Tensor([9]), "out_features": 48}),
        ("aten::_mixed_dtypes_linear", {"input": Tensor([3, 64]), "weight": Tensor([64, 24]), "scale": Tensor([48])}),
        ("mkl::_mkl_linear", {"X": Tensor([3, 64]), "MKL_W": Tensor([1, 9]), "ORI_W": Tensor([48, 64])}),
        ("mkldnn::_linear_pointwise", {"X": Tensor([3, 64]), "W": Tensor([48, 64])}),
        ("_C::cutlass_scaled_mm", {"out": Tensor([3, 48]), "a": Tensor([3, 64]), "b": Tensor([64, 48])}),
        ("_C::cutlass_scaled_fp4_mm", {"out": Tensor([3, 48]), "a": Tensor([3, 32]), "b": Tensor([48, 32])}),
        ("_C::gptq_marlin_gemm", {"a": Tensor([3, 64]), "b_q_type": 7, "size_m": 3, "size_n": 48, "size_k": 64}),
        ("_C::marlin_gemm", {"a": Tensor([3, 64]), "size_m": 3, "size_n": 48, "size_k": 64}),
        ("_C::awq_gemm", {"_in_feats": Tensor([3, 64]), "_kernel": Tensor([64, 6]), "_zeros": Tensor([1, 6])}),
        ("_rocm_C::wvSplitK", {"in_a": Tensor([48, 64]), "in_b": Tensor([3, 64])}),
        ("aiter::gemm_a8w8_blockscale_ck", {"XQ": Tensor([3, 64]), "WQ": Tensor([48, 64])}),
        ("aiter::gemm_a16w16", {"A": Tensor([3, 64]), "B": Tensor([48, 64])}),
        ("aiter::gemm_a4w4", {"A": Tensor([3, 32]), "B": Tensor([48, 32])}),
        ("vllm::rocm_unquantized_gemm", {"x": Tensor([3, 64]), "weight": Tensor([48, 64])}),
    ],
)  # fmt: skip
def test_weights_that_are_packed_or_turned(name: str, named: Named) -> None:
    assert cost_of(name, named).flops == by_torch("aten::mm", [3, 64], [64, 48])


def test_the_type_of_a_product_is_that_of_its_inputs() -> None:
    packed = {"A": Tensor([3, 32]), "B": Tensor([48, 32])}
    assert cost_of("aiter::gemm_a4w4", packed, {"A": "unsigned char", "B": "unsigned char"}).type is None
    weights = {"self": Tensor([3, 64]), "mat2": Tensor([48, 64]), "scales": Tensor([48])}
    types = {"self": BF16, "mat2": "signed char", "scales": BF16}
    assert cost_of("aten::_weight_int8pack_mm", weights, types).type == "bf16"


def loops_of_experts(tokens: int, chosen: int, width: int, first: int, inner: int) -> int:
    counted = 0
    for _ in range(tokens * chosen):
        counted += 2 * width * first + 2 * inner * width
    return counted


@pytest.mark.parametrize(("packed", "type_"), [(1, BF16), (2, "unsigned char")])
def test_experts_by_loops(packed: int, type_: str) -> None:
    named = {
        "hidden_states": Tensor([5, 32]),
        "w1": Tensor([4, 24, 32 // packed]),
        "w2": Tensor([4, 32, 12 // packed]),
        "topk_weights": Tensor([5, 2]),
        "topk_ids": Tensor([5, 2]),
    }
    types = {"hidden_states": BF16, "w1": type_, "w2": type_, "topk_weights": "float", "topk_ids": "int"}
    found = cost_of("vllm::inplace_fused_experts", named, types)
    assert found.flops == loops_of_experts(5, 2, 32, 24, 12)
    # Whether values that are packed are unpacked, or multiplied as they are, is not in the trace.
    assert found.type == ("bf16" if packed == 1 else None)
    # With experts on several devices each device has a part of the tokens.
    assert cost_of("vllm::inplace_fused_experts", named | {"expert_map": Tensor([8])}, types).flops is None


def test_names_of_torch_are_those_of_its_ops() -> None:
    known = {schema.name for schema in torch._C._jit_get_all_schemas()}
    prefixes = ("aten", "mkldnn", "mkl", "inductor")
    ours = {name for name in RULES if name.startswith(prefixes)}
    assert len(ours) > 250
    # The rules of elementwise ops name an op in place for each, which some do not have.
    assert {name for name in ours - known if not name.endswith("_")} == set()
