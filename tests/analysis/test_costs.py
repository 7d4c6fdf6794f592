"""Operations and bytes of ops: torch's counter and the tensors' own sizes as oracles, and costs that count once."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.frames import nested_rows, range_rows, table
from analysis.frames import ranges as made
from analysis.test_flops import ranges
from emit.running import forked
from opspan.analysis import nest
from opspan.analysis.costs import costs, register_flops
from opspan.analysis.formulas import RULES
from opspan.questions import BY
from opspan.tables import Metadata
from opspan.trace import Trace

COUNTED = """
import json
import torch, opspan
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode, register_flop_formula

def random(*sizes):
    return torch.randn(*sizes, requires_grad=True)

@torch.library.custom_op("opspan_test::twice", mutates_args=())
def twice(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (one @ other) @ other

@register_flop_formula(torch.ops.opspan_test.twice)
def of_twice(one, other, out_shape=None, **_):
    return 2 * 2 * one[0] * one[1] * other[1]

opspan.register_flops("opspan_test::twice", lambda sizes, _: 4 * sizes[0][0] * sizes[0][1] * sizes[1][1])

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.norm, self.end = nn.BatchNorm2d(4), nn.Linear(4, 3)

    def forward(self, x):
        x = functional.relu(x + self.other(functional.relu(self.norm(self.one(x)))))
        return self.end(functional.adaptive_avg_pool2d(x, 1).flatten(1))

mlp = nn.Sequential(nn.Linear(5, 7), nn.GELU(), nn.Linear(7, 3))
net = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.ReLU(), nn.Conv2d(4, 6, (3, 2), padding="same"), nn.MaxPool2d(2))
encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), 2)
lstm = nn.LSTM(5, 6, num_layers=2)
embedding, block = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)), Block()

def attention():
    # The math has products of its own, of which both know the operations.
    with sdpa_kernel(SDPBackend.MATH):
        return encoder(random(2, 5, 8))

def recurrent():
    with torch.backends.mkldnn.flags(enabled=False):  # else it is one op, of which neither has a formula
        return lstm(random(4, 2, 5))[0]

PROGRAMS = {
    "mlp": lambda: mlp(random(6, 5)),
    "conv net": lambda: net(random(2, 3, 16, 15)),
    "grouped": lambda: functional.conv2d(random(2, 4, 9, 8), random(6, 2, 3, 3), groups=2, dilation=2),
    "transposed": lambda: functional.conv_transpose2d(random(2, 4, 5, 4), random(4, 3, 2, 2), stride=2),
    "conv1d and 3d": lambda: functional.conv1d(random(2, 3, 9), random(4, 3, 3)).sum()
    + functional.conv3d(random(1, 2, 4, 5, 6), random(4, 2, 3, 2, 1)).sum(),
    "transformer": attention,
    "lstm": recurrent,
    "einsum": lambda: torch.einsum("bij,bjk->bik", random(2, 3, 4), random(2, 4, 5)),
    "baddbmm and addmm": lambda: torch.baddbmm(random(2, 3, 5), random(2, 3, 4), random(2, 4, 5)).sum()
    + torch.addmm(random(5), random(3, 4), random(4, 5)).sum(),
    "embedding": lambda: embedding(torch.tensor([[1, 2, 3], [3, 2, 1]])),
    "residual": lambda: block(random(2, 4, 6, 6)),
    "custom op": lambda: twice(random(3, 4).detach(), random(4, 4).detach()) @ random(4, 2),
}
found = {}
for name, program in PROGRAMS.items():
    with FlopCounterMode(display=False) as counter:
        program().sum().backward()
    with opspan.record(record_shapes=True) as rec:
        program().sum().backward()
    rows = rec.trace.flops()
    ours = {op: flops for op, flops in rows.select("op", "product_flops").iter_rows() if flops}
    theirs = {str(op).replace(".", "::"): flops for op, flops in counter.get_flop_counts()["Global"].items()}
    found[name] = [ours, theirs, rec.trace.flops("run")["product_flops"][0]]
print(json.dumps(found))
"""
BYTES = """
import json
from collections import Counter
import torch, opspan
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

moved, dtype = Counter(), torch.float32

class Count(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        tensors = [one for one in tree_flatten((args, kwargs, out))[0] if isinstance(one, torch.Tensor)]
        moved[func.name().partition(".")[0]] += sum(one.nbytes for one in tensors)
        return out

def random(*sizes):
    return torch.randn(*sizes, dtype=dtype, requires_grad=True)

def program():
    x, y = random(4, 6), random(6, 5)
    z = torch.addmm(random(5), x, y) + torch.bmm(random(2, 4, 3), random(2, 3, 5))[0]
    z = functional.layer_norm(z, (5,), random(5), random(5)) * random(5)
    z = functional.gelu(z).tanh() / random(4, 1)
    z = torch.softmax(z, -1) @ random(5, 2)
    image = functional.conv2d(random(2, 4, 8, 8), random(6, 2, 3, 3), random(6), groups=2)
    image = functional.conv_transpose2d(image, random(6, 2, 2, 2), random(2), stride=2, output_padding=1)
    image = functional.max_pool2d(functional.group_norm(image, 2, random(2), random(2)), 2)
    out = z.sum(0, keepdim=True).mean() + image.sum((2, 3)).amax(1).sum()
    out = out + torch.where(z > 0, z, -z).exp().mean(1).sum()
    out = out + functional.embedding(torch.tensor([1, 2, 1]), random(5, 4)).sum()
    out = out + functional.avg_pool2d(image, 3, stride=(2, 1), padding=1).sum()
    out = out + torch.var(z, 1).sum() + torch.cumsum(z, 1).sum() + torch.linalg.vector_norm(z, dim=0).sum()
    out.backward()
    with torch.no_grad():
        x.add_(1.5).mul_(x.clone())
        torch._foreach_mul_([x, y], 2.0)

found = {}
for dtype in (torch.float32, torch.float64):
    moved.clear()
    with Count():
        program()
    with opspan.record(record_shapes=True) as rec:
        program()
    rows = rec.trace.flops()
    found[str(dtype)] = [dict(rows.select("op", "bytes").drop_nulls().iter_rows()), dict(moved)]
print(json.dumps(found))
"""
# Ops that torch's counter sees inside ours.
INSIDE = {"aten::conv2d": "aten::convolution"}


def printed(program: str) -> Any:
    pytest.importorskip("torch")
    done = forked(program)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_the_same_operations_as_torchs_counter() -> None:
    found = printed(COUNTED)
    assert len(found) == 12
    # Torch's counter takes no notice of groups where it counts the gradient of the weight, which costs what the forward
    # does. So do we, of one group.
    backward, groups = "aten::convolution_backward", 2
    forward = found["grouped"][1]["aten::convolution"]
    of_weight = found["grouped"][1][backward] - forward
    assert of_weight == groups * forward
    found["grouped"][1][backward] = forward + of_weight // groups
    for name, (ours, theirs, total) in found.items():
        sums: dict[str, int] = {}
        for op, flops in ours.items():
            sums[INSIDE.get(op, op)] = sums.get(INSIDE.get(op, op), 0) + flops
        assert sums == theirs, name
        assert total == sum(theirs.values()) > 0, name


@pytest.mark.slow
def test_bytes_are_those_of_the_tensors() -> None:
    for dtype, (ours, theirs) in printed(BYTES).items():
        item = {"torch.float32": 4, "torch.float64": 8}[dtype]
        # Torch shows the convolution that is inside, and of what is written in place no output.
        ours["aten::convolution"] += ours.pop("aten::conv2d")
        theirs["aten::_foreach_mul_"] *= 2
        ours["aten::_foreach_mul_"] *= item // 4  # the trace has no types for lists
        # Not all of a table is read, nor are inputs of which a backward needs no more than the shape.
        theirs["aten::embedding"] -= (5 - 3) * 4 * item
        theirs["aten::max_pool2d_with_indices_backward"] -= 2 * 2 * 13 * 13 * item
        theirs["aten::native_layer_norm_backward"] -= 5 * item
        # The gradients are added in place or not, as autograd likes; a number is a tensor of a double.
        ours["aten::add"] += ours.pop("aten::add_")
        theirs["aten::add"] += theirs.pop("aten::add_") + 8
        theirs["aten::where"] -= 2 * item  # the other value is a number, which has no size here
        both = ours.keys() & theirs.keys()
        assert {op: ours[op] for op in both} == {op: theirs[op] for op in both}, dtype
        # Every op that has a rule has a cost here, so that all of them are compared.
        assert sorted(theirs.keys() & RULES.keys() - both) == []
        assert ours.keys() - both == {"aten::copy_", "aten::fill_", "aten::zero_"}  # inside ops that make tensors
        assert len(both) > 30


def ops_with_costs(rows: list[dict], named: list[int]) -> list[dict]:
    sizes = ["[[2, 3], [3, 4]]", "[[2, 3]]", None, "[[2, 0], [0, 3]]"]
    names = ["aten::mm", "aten::relu", "aten::linear", "aten::mm"]
    return [row | {"name": names[name], "sizes": sizes[name]} for row, name in zip(rows, named, strict=True)]


@given(nested_rows(), st.data())
def test_a_cost_counts_in_the_outermost_op_that_has_one(rows: list[dict], data: st.DataObject) -> None:
    named = data.draw(st.lists(st.integers(0, 3), min_size=len(rows), max_size=len(rows)))
    found = nest(made(*ops_with_costs(rows, named)))
    parents = found["parent"].to_list()
    expected = []
    for row, name in enumerate(named):
        around, above = [], parents[row]
        while above is not None:
            around.append(named[above])
            above = parents[above]
        # An op without sizes, or without useful ones, has no cost and does not hide the ops inside it.
        if name < 2 and not any(other < 2 for other in around):
            expected.append((row, (48, 6)[name]))
    assert sorted(costs(found).rows.select("range", "flops").iter_rows()) == expected


@settings(max_examples=20)  # each is a whole analysis
@given(range_rows(), st.booleans(), st.data())
def test_whatever_the_trace_holds_there_is_an_answer(rows: list[dict], has_work: bool, data: st.DataObject) -> None:
    named = data.draw(st.lists(st.integers(0, 3), min_size=len(rows), max_size=len(rows)))
    given_ = made(*ops_with_costs(rows, named))
    work = [
        {"start_ns": at, "end_ns": 2 * at, "named_range_id": at, "device_id": at % 3, "name": "gemm"}
        for at in range(-1, 9)
    ]
    work = table("work", work if has_work else [], rank=0, pid=1, kind="kernel")
    trace = Trace((Metadata(source="test", paths=()),), ranges=given_, work=work)
    found = {by: trace.flops(by, peak=["H100 SXM"]) for by in BY["flops"]}
    # A row has at most 292 years.
    sums = {
        by: (rows["flops"].sum(), min(sum(rows["time_ns"].to_list()), 2**63 - 1))
        for by, rows in found.items()
        if by != "step"
    }
    assert len(set(sums.values())) == 1
    if has_work:
        # None begins before the trace; of those that are left each has its time, in a range or in none.
        assert sums["op"][1] == sum(range(9))
    assert all((rows["known_ns"] <= rows["time_ns"]).all() for rows in found.values())


def one(name: str, sizes: str | None, inputs: str | None = None, types: str | None = None) -> tuple[Any, ...] | None:
    frame = ranges((name, sizes, inputs, None)).with_columns(
        input_types=pl.Series([types], dtype=pl.Categorical), parent=pl.lit(None, dtype=pl.UInt32)
    )
    rows = costs(frame).rows.drop("range", "masked_flops").rows()
    return rows[0] if rows else None


@pytest.mark.parametrize(
    ("name", "sizes", "inputs", "types", "expected"),
    [
        # flops, bytes, type, is it a product, was a type assumed
        ("aten::mm", "[[2, 3], [3, 4]]", None, '["c10::Half", "c10::Half"]', (48, 2 * 26, "fp16", True, False)),
        ("aten::mm", "[[2, 3], [3, 4]]", None, None, (48, 4 * 26, "fp32", True, True)),
        ("aten::mul", "[[4, 1], [3]]", None, '["float", "c10::BFloat16"]', (12, 16 + 6 + 48, "fp32", False, False)),
        ("aten::mul", "[[4], []]", None, '["c10::Half", "double"]', (4, 8 + 8 + 8, "fp16", False, False)),
        ("aten::gt", "[[4], []]", None, '["float", "Scalar"]', (4, 16 + 4, "fp32", False, False)),
        ("aten::copy_", "[[4], [4], []]", None, '["c10::Half", "float", "Scalar"]', (0, 24, "fp32", False, False)),
        ("aten::fill_", "[[4], []]", None, '["c10::Half", "Scalar"]', (0, 8, "fp32", False, False)),
        ("aten::sum", "[[2, 3], []]", None, '["float", ""]', (6, 24 + 4, "fp32", False, False)),
        ("aten::sum", "[[2, 3], [], []]", "[null, [0], false]", '["int", "", ""]', (6, 48, None, False, False)),
        # along which dimensions is not in the trace: then the bytes are not known
        ("aten::sum", "[[2, 3], [], [], []]", None, '["float", "", "", ""]', (6, None, "fp32", False, False)),
        ("aten::cat", "[[[2, 3], [1, 3]], []]", None, '["TensorList", "Scalar"]', (0, 72, "fp32", False, True)),
        ("aten::cat", "[[], []]", None, '["TensorList", "Scalar"]', None),
        ("aten::_fused_adamw_", "[[[3]], [[3]], [[3]], [[3]], []]", None, None, (45, 4 * 3 * 7, "fp32", False, True)),
        (
            "aten::index_select",
            "[[5, 4], [], [3]]",
            "[null, 1, null]",
            '["float", "Scalar", "long"]',
            (0, 24 + 2 * 60, "fp32", False, False),
        ),
        (
            "aten::_scaled_mm",
            "[[2, 3], [3, 4], [1], [1], [], [], [], []]",
            "[null, null, null, null, null, null, 15, false]",
            '["c10::Float8_e4m3fn", "c10::Float8_e4m3fn", "float", "float", "", "", "Scalar", "Scalar"]',
            (48, 6 + 12 + 8 + 16, "fp8", True, False),
        ),
        ("aten::dot", "[[2], [2]]", None, '["c10::complex<float>", "c10::complex<float>"]', (4, 40, None, True, False)),
        ("aten::mm", "[[2, 3], [3, 4]]", None, '["Unheard", "Unheard"]', (48, None, None, True, False)),
        ("aten::mul", "[[4], [4]]", None, '["long long", "__int64"]', (4, 3 * 32, None, False, False)),
        ("aten::mul", "[[4], [4]]", None, '["Float", "Unheard"]', (4, None, None, False, False)),
        ("aten::add", "[[4], [], []]", None, '["float", "Int", "Int"]', (4, 32, "fp32", False, False)),
        ("aten::mean", "[[2, 3], []]", None, '["c10::Half", ""]', (6, 12 + 2, "fp16", False, False)),
        ("aten::copy_", "[[4], [4]]", None, '["unsigned int", "c10::bits8"]', (0, 4 + 16, None, False, False)),
        (
            "aten::_scaled_mm",
            "[[2, 3], [3, 4], [1], [1], [], [], [], []]",
            "[null, null, null, null, null, null, 15, false]",
            '["c10::Float4_e2m1fn_x2", "c10::Float4_e2m1fn_x2", "float", "float", "", "", "Scalar", "Scalar"]',
            (96, 6 + 12 + 8 + 16, None, True, False),
        ),
        # without dimensions to sum over it sums over all
        ("aten::sum", "[[2, 3], [], []]", "[null, null, true]", '["float", "", ""]', (6, 28, "fp32", False, False)),
        (
            "aten::baddbmm",
            "[[2, 3, 5], [2, 3, 4], [2, 4, 5]]",
            None,
            None,
            (240, 4 * (30 + 24 + 40 + 30), "fp32", True, True),
        ),
        (
            "aten::native_dropout_backward",
            "[[4], [4], []]",
            None,
            '["float", "bool", "Scalar"]',
            (8, 16 + 4 + 16, "fp32", False, False),
        ),
        # without a weight it has no gradient
        (
            "aten::native_layer_norm_backward",
            "[[4, 6], [4, 6], [], [4, 1], [4, 1], [], [], []]",
            None,
            '["float", "float", "", "float", "float", "", "", ""]',
            (13 * 24, 4 * (24 + 24 + 4 + 4 + 24), "fp32", False, False),
        ),
        ("aten::mul", "[[4, 2], [3]]", None, None, None),
        ("aten::mm", "[[2, 3], [3, 4]]", None, '["", "float"]', None),
        ("aten::mm", "[[2, 3], [3, 4]]", None, "nonsense", None),
        ("aten::mm", "nonsense", None, None, None),
        ("somebody::else", "[[2, 3]]", None, None, None),
    ],
)  # fmt: skip
def test_costs_by_hand(
    name: str, sizes: str, inputs: str | None, types: str | None, expected: tuple[Any, ...] | None
) -> None:
    assert one(name, sizes, inputs, types) == expected


def test_a_users_formula_is_asked_once_for_what_is_alike_and_counts_with_what_is_inside() -> None:
    asked = []

    def formula(sizes: Any, inputs: Any) -> tuple[int, int]:
        asked.append((sizes, inputs))
        return 7, 9

    frame = ranges(
        ("mylib::op", "[[2]]", "[null, 3]", None),
        ("aten::relu", "[[2]]", None, 0),
        ("mylib::op", "[[2]]", "[null, 3]", None),
    )
    register_flops("mylib::op", formula, is_product=False)
    try:
        assert costs(frame).rows.rows() == [(row, 7, 9, "fp32", False, True, 0) for row in (0, 2)]
    finally:
        register_flops("mylib::op", None)
    assert asked == [([[2]], [None, 3])]
    assert costs(frame).rows["range"].to_list() == [1]


@pytest.mark.parametrize("said", [-1, 2.5, True, "many", (1, -1), 1 << 63, ZeroDivisionError("by\x1b[2J zero")])
def test_a_users_formula_that_fails_is_said_and_nothing_is_known(said: Any) -> None:
    def formula(*_: Any) -> Any:
        if isinstance(said, Exception):
            raise said
        return said

    register_flops("mylib::op", formula)
    try:
        found = costs(ranges(("mylib::op", "[[2]]", None, None), ("aten::relu", "[[2]]", None, 0)))
    finally:
        register_flops("mylib::op", None)
    assert found.rows["range"].to_list() == [1]
    assert len(found.failed) == 1
    assert found.failed[0].startswith("The formula of mylib::op failed for [[2]]")
    assert "\x1b" not in found.failed[0]


def test_without_rows() -> None:
    assert costs(ranges()).rows.height == 0
