"""Casts between types: by the types of a copy's ends, else by the names of kernels."""

from __future__ import annotations

import pytest

from findings.made import FIRST, Case, Made, case_tests, each

ELEMENTWISE = "void at::native::{}_elementwise_kernel<at::native::{}>"
CAST = ELEMENTWISE.format("vectorized", "bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)")
COPY = ELEMENTWISE.format("vectorized", "direct_copy_kernel_cuda(at::TensorIteratorBase&)")
LOADS = ELEMENTWISE.format("unrolled", "direct_copy_kernel_cuda(), LoadWithCast<1>, StoreWithCast<1>")
ADDS = ELEMENTWISE.format("unrolled", "CUDAFunctor_add<float>, LoadWithCast<2>, StoreWithCast<1>")
WIDER, SAME = '["float", "c10::BFloat16", "Scalar"]', '["float", "float", "Scalar"]'


def casting(
    length: int, types: str | None = WIDER, kernel: str = COPY, op: str = "aten::copy_", then: int = 40
) -> Made:
    """A cast that aten::linear asks for, of which the host does 20, and then a product, for which the host waits."""
    made = Made().range("aten::linear", 0, 60).range("aten::to", 10, 20).range("aten::_to_copy", 11, 18)
    made.range(op, 12, 16, input_types=types).launch(15, "short", 30, length, full_name=kernel)
    end = max(30 + length, then + 20) + 700
    return made.launch(then, "gemm", end - 700, 700).call("cudaStreamSynchronize", then + 15, end + 5 - then - 15)


def on_the_host(types: str) -> Made:
    return Made().range("aten::linear", 100, 500).range("aten::copy_", 200, 100, input_types=types)


CASES = [
    Case(
        "casts",
        lambda: casting(100),
        # The product begins when its launch has returned: at 30 without the cast, at 130 with it.
        1000,
        0.1,
        {"ns": 1000, "ns_share": 0.1, "casts": 10},
        {
            "4.9%": lambda: casting(49),
            "of one type": lambda: casting(100, SAME, LOADS),
            "of one type, as nobody says": lambda: casting(100, None),
            "another op of two types": lambda: casting(100, WIDER, ADDS, "aten::add_"),
            "what came next was launched late": lambda: casting(100, then=130),
        },
        ops=("aten::linear",),
        steps=FIRST,
        ranges=each(30, 100),
        words={"types": "BFloat16 to float", "causes": "aten::linear"},
    ),
]


test_it_fires, test_it_is_silent = case_tests(CASES)


@pytest.mark.parametrize("kernel", [CAST, LOADS, CAST.replace("bfloat16_", "bfloat16tofloat32_")])
def test_a_kernel_of_a_cast_is_one_by_its_name(kernel: str) -> None:
    found = casting(100, None, kernel).findings()["casts"].evidence
    assert (found.at_stake_ns, found.words["types"]) == (1000, "types that the file does not name")


def test_casts_of_the_host_count_where_there_is_no_device() -> None:
    found = on_the_host(WIDER).findings()["casts"].evidence
    assert (found.at_stake_ns, found.ops, found.words["types"]) == (1000, ("aten::linear",), "BFloat16 to float")
    assert "casts" not in on_the_host(SAME).findings()


def test_the_backward_of_a_cast_is_of_the_op_that_asked_for_it() -> None:
    made = Made().range("aten::linear", 10, 40).range("aten::to", 15, 30).range("aten::_to_copy", 20, 20, seq=1)
    made.range("ToCopyBackward0", 60, 30, kind="backward", seq=1, forward_tid=1, tid=2)
    made.range("aten::copy_", 65, 20, tid=2, input_types=WIDER).launch(65, "short", 80, 100, tid=2)
    made.launch(88, "gemm", 180, 700, tid=2).call("cudaStreamSynchronize", 100, 785)
    found = made.findings()["casts"].evidence
    assert found.ops == ("aten::linear",)
