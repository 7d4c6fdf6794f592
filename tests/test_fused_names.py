"""Names of compiled kernels, and the ops in them."""

from __future__ import annotations

import pytest

from opspan.fused_names import extern_op, fused_ops, without_graph

NAMES = {
    "triton_poi_fused_add_native_layer_norm_2": "add native_layer_norm",
    "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_1": "_to_copy add mean mul pow rsqrt",
    "triton_per_fused__softmax__unsafe_view_add_0": "_softmax _unsafe_view add",
    "cpp_fused_add_native_layer_norm_native_layer_norm_backward_relu_threshold_backward_0": (
        "add native_layer_norm native_layer_norm_backward relu threshold_backward"
    ),
    "graph_3_cpp_fused_sum_1": "sum",
    "triton_tem_fused_addmm_relu_t_3": "addmm relu t",
    "triton_for_fused_8": "",
    "triton_poi_fused_copy__1": "copy_",
    "triton_poi_fused_add_constant_pad_nd_slice_scatter_0": "add constant_pad_nd slice_scatter",
}


@pytest.mark.parametrize("name", NAMES)
def test_ops_are_read_from_the_name(name: str) -> None:
    assert fused_ops(name) == (tuple(f"aten::{op}" for op in NAMES[name].split()), False)


def test_words_that_torch_does_not_know_are_one_op_of_the_program() -> None:
    assert fused_ops("triton_poi_fused_cat_fmha_v3_fwd_mul_0") == (("aten::cat", "fmha_v3_fwd", "aten::mul"), False)


@pytest.mark.parametrize(
    ("name", "ops"),
    [
        ("triton_poi_fused_add_mul", ("aten::add", "aten::mul")),
        ("triton_poi_fused_add_native_lay", ("aten::add",)),
        ("triton_poi_fused", ()),
    ],
)
def test_a_name_without_a_number_was_cut(name: str, ops: tuple[str, ...]) -> None:
    assert fused_ops(name) == (ops, True)


@pytest.mark.parametrize("name", ["", "aten::mm", "ampere_sgemm_32x32", "triton_kernel", "my_fused_add_0", "x" * 9000])
def test_other_names_are_not_of_the_compiler(name: str) -> None:
    assert fused_ops(name) is None


def test_a_long_name_is_read_in_time() -> None:
    result = fused_ops("triton_poi_fused_" + "_".join(["native"] * 5000))

    assert result is not None
    assert result.is_cut


def test_a_range_of_a_cpp_kernel_has_the_number_of_its_graph() -> None:
    assert without_graph("graph_12_cpp_fused_add_0") == ("cpp_fused_add_0", 12)
    assert without_graph("graph_12_other") == ("graph_12_other", None)


@pytest.mark.parametrize(
    ("kernel", "op"),
    [
        ("extern_kernels.addmm", "aten::addmm"),
        ("torch.ops.aten.sort.stable", "aten::sort"),
        ("aten.randint.low_out", "aten::randint"),
        ("torch.ops.test.baz.default", "test::baz"),
        ("aoti_torch_cuda_mm_out", "aten::mm"),
        ("triton_poi_fused_add_0", None),
        ("", None),
    ],
)
def test_extern_kernels_are_ops(kernel: str, op: str | None) -> None:
    assert extern_op(kernel) == op
