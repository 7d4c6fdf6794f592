"""Costs of ops that torch's CPU runs, with the arguments that they are really given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from opspan.analysis.formulas import RULES  # noqa: E402
from opspan.analysis.op_cost import cost  # noqa: E402


class Counted(TorchDispatchMode):
    """The operations of each op that is a product, by the rules, as a trace would show its arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.flops: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given, kwargs = list(args), kwargs or {}
        for argument in func._schema.arguments[len(args) :]:
            given.append(kwargs.get(argument.name, argument.default_value))
        name = func.name().partition(".")[0]
        if name in RULES and RULES[name].is_product:
            values = [None if isinstance(one, torch.Tensor) else one for one in given]
            found = cost(RULES[name], [self.sizes(one) for one in given], values, None)
            assert found.flops is not None, name
            self.flops[name] = self.flops.get(name, 0) + found.flops
        return func(*args, **kwargs)

    def sizes(self, given: Any) -> list[Any]:
        if isinstance(given, torch.Tensor):
            return list(given.shape)
        is_list = isinstance(given, (list, tuple)) and given and isinstance(given[0], torch.Tensor)
        return [list(one.shape) for one in given] if is_list else []


def counted(program: Callable[[], Any]) -> dict[str, int]:
    with Counted() as found:
        program()
    return found.flops


@pytest.mark.filterwarnings("ignore:TF32 acceleration on top of oneDNN")
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layers", [1, 3])
def test_an_lstm_in_one_op_counts_its_products(layers: int, bidirectional: bool) -> None:
    lstm = torch.nn.LSTM(5, 6, layers, bidirectional=bidirectional)
    state = [torch.randn(layers * (1 + bidirectional), 2, 6, requires_grad=True) for _ in range(2)]

    def run() -> None:
        lstm(torch.randn(4, 2, 5, requires_grad=True), tuple(state))[0].sum().backward()

    with torch.backends.mkldnn.flags(enabled=False), FlopCounterMode(display=False) as counter:
        run()  # a product for each step, which torch's counter sees
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this build of torch has no oneDNN: its LSTM is no op of its own")
    found = counted(run)
    assert found.keys() == {"aten::mkldnn_rnn_layer", "aten::mkldnn_rnn_layer_backward"}
    assert sum(found.values()) == counter.get_total_flops() > 0


def random(*sizes: int) -> Any:
    return torch.randn(*sizes)


def int4() -> Any:
    codes = torch.randint(0, 15, (48, 64), dtype=torch.int32)
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes, 8)
    scales = random(2, 48, 2).bfloat16()
    return torch.ops.aten._weight_int4pack_mm_for_cpu(random(3, 64).bfloat16(), packed, 32, scales)


def dynamic_int4() -> Any:
    codes = torch.randint(0, 255, (48, 32), dtype=torch.uint8)
    packed = torch.ops.aten._dyn_quant_pack_4bit_weight(codes, random(48, 1), None, 64, 64, 48)
    return torch.ops.aten._dyn_quant_matmul_4bit(random(3, 64), packed, 64, 64, 48)


def int8() -> Any:
    codes = torch.ones(48, 64, dtype=torch.int8)
    return torch.ops.aten._weight_int8pack_mm(random(3, 64).bfloat16(), codes, random(48).bfloat16())


def of_blocks() -> Any:
    ends = torch.tensor([8, 16], dtype=torch.int32)
    return torch._grouped_mm(random(16, 32).bfloat16(), random(2, 32, 16).bfloat16(), offs=ends)


def scaled() -> Any:
    one, other = (random(16, 32).to(torch.float8_e4m3fn) for _ in range(2))
    return torch._scaled_mm(one, other.t(), torch.tensor(1.0), torch.tensor(1.0), out_dtype=torch.bfloat16)


def oned_nn() -> Any:
    weight = torch.ops.mkldnn._reorder_linear_weight(random(48, 64), 3)
    return torch.ops.mkldnn._linear_pointwise(random(3, 64), weight, random(48), "none", [], "")


def oned_nn_convolution() -> Any:
    weight = torch.ops.mkldnn._reorder_convolution_weight(random(6, 3, 3, 3), [1, 1], [1, 1], [1, 1], 1, [2, 3, 8, 8])
    return torch.ops.mkldnn._convolution_pointwise(
        random(2, 3, 8, 8), weight, random(6), [1, 1], [1, 1], [1, 1], 1, "none", [], ""
    )


@pytest.mark.parametrize(
    ("program", "name", "expected"),
    [
        (int4, "aten::_weight_int4pack_mm_for_cpu", 2 * 3 * 64 * 48),
        (dynamic_int4, "aten::_dyn_quant_matmul_4bit", 2 * 3 * 64 * 48),
        (int8, "aten::_weight_int8pack_mm", 2 * 3 * 64 * 48),
        (of_blocks, "aten::_grouped_mm", 2 * 16 * 32 * 16),
        (scaled, "aten::_scaled_mm", 2 * 16 * 32 * 16),
        (oned_nn, "mkldnn::_linear_pointwise", 2 * 3 * 64 * 48),
        (oned_nn_convolution, "mkldnn::_convolution_pointwise", 2 * 2 * 64 * 6 * 3 * 9),
        (lambda: random(3, 5).addmm_(random(3, 4), random(4, 5)), "aten::addmm_", 2 * 3 * 4 * 5),
        (lambda: torch.addbmm(random(3, 5), random(2, 3, 4), random(2, 4, 5)), "aten::addbmm", 2 * 2 * 3 * 4 * 5),
        (lambda: torch.addmv(random(3), random(3, 4), random(4)), "aten::addmv", 2 * 3 * 4),
        (
            lambda: torch._addmm_activation(random(5), random(3, 4), random(4, 5)),
            "aten::_addmm_activation",
            2 * 3 * 4 * 5,
        ),
        (
            lambda: torch._int_mm(torch.ones(32, 16, dtype=torch.int8), torch.ones(16, 8, dtype=torch.int8)),
            "aten::_int_mm",
            2 * 32 * 16 * 8,
        ),
    ],
)
def test_ops_that_torch_runs(program: Callable[[], Any], name: str, expected: int) -> None:
    try:
        found = counted(program)
    except (NotImplementedError, AttributeError) as error:
        pytest.skip(f"this torch does not have it: {error}")
    assert found == {name: expected}
