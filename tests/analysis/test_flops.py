"""Floating-point operations of ops: torch's counter as the oracle of the formulas that torch.profiler does not have."""

from __future__ import annotations

import json

import polars as pl
import pytest

from emit.running import forked
from opspan.analysis.flops import flops
from opspan.inputs import from_torch, to_torch, values_of

PROGRAM = """
import json, sys
import torch, opspan
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

def random(*sizes):
    return torch.randn(*sizes, requires_grad=True)

def attention(causal):
    # By this one on CPU torch's counter has no formula: the math, which it counts, does the same products.
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION if recording else SDPBackend.MATH):
        q, k, v = random(2, 3, 7, 8), random(2, 3, 5, 8), random(2, 3, 5, 8)
        return functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

PROGRAMS = {
    "conv1d": lambda: functional.conv1d(random(2, 3, 9), random(4, 3, 3), stride=2, padding=1),
    "conv2d": lambda: functional.conv2d(random(2, 3, 9, 8), random(4, 3, 3, 2), random(4), dilation=2),
    "conv2d same": lambda: functional.conv2d(random(2, 3, 9, 8), random(4, 3, 3, 3), padding="same"),
    "conv3d": lambda: functional.conv3d(random(1, 2, 4, 5, 6), random(4, 2, 3, 2, 1)),
    "transposed": lambda: functional.conv_transpose2d(random(2, 3, 5, 4), random(3, 4, 2, 2), stride=2),
    "matrices": lambda: torch.addmm(random(5), random(3, 4), random(4, 5)),
    "batches": lambda: torch.baddbmm(random(2, 3, 5), random(2, 3, 4), random(2, 4, 5)),
    "attention": lambda: attention(False),
}
found = {}
for name, program in PROGRAMS.items():
    recording = False
    with FlopCounterMode(display=False) as counter:
        out = program()
        forward = counter.get_total_flops()
        out.sum().backward()
    recording = True
    with opspan.record(record_shapes=True) as rec:
        out = program()
        with opspan.annotate("backward"):
            out.sum().backward()
    events = rec.trace.events(with_flops=True)
    [mark] = [event for event in events if event.name == "backward"]
    began = mark.time_range.start
    ours = [
        sum(event.flops for event in events if (event.time_range.start > began) is later) for later in (False, True)
    ]
    found[name] = [ours, [forward, counter.get_total_flops() - forward]]
print(json.dumps(found))
"""


@pytest.mark.slow
def test_the_same_numbers_as_torchs_counter() -> None:
    pytest.importorskip("torch")
    done = forked(PROGRAM)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == 8
    # The fused backward computes the scores once more, which the backward of the math keeps.
    scores = 2 * 2 * 3 * 7 * 5 * 8
    found["attention"][1][1] += scores
    for name, (ours, theirs) in found.items():
        assert ours == theirs, name
        assert min(ours) > 0, name


def ranges(*rows: tuple[str, str | None, str | None, int | None]) -> pl.DataFrame:
    """name, sizes, inputs, parent"""
    schema = {"name": pl.Categorical, "sizes": pl.Categorical, "inputs": pl.Categorical, "parent": pl.UInt32}
    frame = pl.DataFrame(list(rows), schema=schema, orient="row")
    return frame.with_columns(input_types=pl.lit(None, dtype=pl.Categorical))


CONVOLUTION = ("[[1, 1, 3, 3], [1, 1, 2, 2], []]", "[null, null, null, [1, 1], [0, 0], [1, 1], false, [0, 0], 1]")


def test_a_further_op_counts_where_nothing_around_it_has() -> None:
    found = flops(
        ranges(
            ("aten::convolution", *CONVOLUTION, None),
            ("aten::_convolution", *CONVOLUTION, 0),  # in one of its kind
            ("aten::conv2d", CONVOLUTION[0], "[null, null, null, [1, 1], [0, 0], [1, 1], 1]", None),
            ("somebody::else", None, None, 2),
            ("aten::convolution", *CONVOLUTION, 3),  # deep in one that has counted
            ("aten::conv2d", CONVOLUTION[0], None, None),  # its values are not known
            ("aten::convolution", *CONVOLUTION, 5),
            ("aten::mm", "[[2, 3], [3, 4]]", None, 1),  # torch counts each, so the two around it do not count again
        )
    )
    assert found.to_list() == [None, None, 32, None, None, None, 32, 48]


@pytest.mark.parametrize(
    ("name", "sizes", "inputs"),
    [
        ("aten::mm", "[]", None),
        ("aten::mm", "[[], []]", None),
        ("aten::mm", "not sizes", None),
        ("aten::mm", "[[2, 0], [0, 3]]", None),
        ("aten::mm", "[[99999999999, 99999999999], [99999999999, 2]]", None),
        ("aten::conv2d", "[[1, 1, 3, 3], [1, 1, 2, 2]]", '[null, null, null, [0, 0], "same", 7, [1]]'),
        ("aten::convolution", "[[3], [1]]", "[1, 2, 3, 4, 5, 6, 7]"),
        ("aten::convolution_backward", "[[1], [1], [1]]", "{}"),
        ("aten::_scaled_dot_product_flash_attention", "[[2]]", "nonsense"),
        ("aten::add", None, None),
    ],
)
def test_what_cannot_have_been_is_not_known(name: str, sizes: str | None, inputs: str | None) -> None:
    assert flops(ranges((name, sizes, inputs, None))).to_list() == [None]


def test_without_rows() -> None:
    assert flops(ranges()).to_list() == []


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("[null, [4, 4], 0.1, false]", '["", "[4, 4]", "0.1", "False"]'),
        ('["inf", "nan", "-inf"]', '["inf", "nan", "-inf"]'),
        ('["1.0-2.0j", 1e-30, [true], []]', '["1.0-2.0j", "1e-30", "[True]", "[]"]'),
        ('[["1.0+0.5j", null]]', '["[1.0+0.5j, ]"]'),
    ],
)
def test_values_as_torch_writes_them(ours: str, theirs: str) -> None:
    assert to_torch(ours) == theirs
    assert from_torch(theirs) == ours
    assert len(values_of(ours)) == len(json.loads(ours))


def test_values_that_are_none() -> None:
    assert from_torch('["", ""]') is None
    assert from_torch("3") is None
    assert from_torch("[") is None
    assert from_torch('["1.", "0.10000000000000001", "word"]') == '[1.0, 0.1, "word"]'
    assert values_of(None) == []
    assert values_of('{"a": 1}') == []
    assert values_of("[" * 100_000) == []
