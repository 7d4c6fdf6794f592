"""Operations and bytes of ops: torch's counter and the tensors' own sizes as oracles, and costs that count once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import opspan
from analysis.frames import nested_rows
from analysis.frames import ranges as made
from analysis.test_flops import ranges
from emit.running import forked
from opspan.analysis import nest
from opspan.analysis.costs import costs, register_flops

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
    out = z.sum(0, keepdim=True).mean() + image.sum((2, 3)).amax(1).sum() + torch.where(z > 0, z, -z).exp().mean(1).sum()
    out = out + functional.embedding(torch.tensor([1, 2, 1]), random(5, 4)).sum()
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
# What torch's counter sees inside ours.
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
        print(
            dtype,
            {op: (ours[op], theirs.get(op)) for op in ours if ours[op] != theirs.get(op)},
            set(theirs) - set(ours),
        )
        assert False
