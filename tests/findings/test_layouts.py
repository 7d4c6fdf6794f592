"""Copies that only change the order of elements in memory: made runs, and real programs on a CPU."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from findings.made import FIRST, Case, Made, case_tests, each
from findings.test_small_programs import STEPS, evidence, recorded, self_times, spans
from opspan.findings.rules.layouts import converted

SAME, WIDER = '["float", "float", "Scalar"]', '["float", "c10::BFloat16", "Scalar"]'
SIZES, STRIDES = "[[400, 600], [400, 600], []]", "[[600, 1], [1, 400], []]"


def copying(length: int, sizes: str = SIZES, types: str = SAME, strides: str | None = STRIDES) -> Made:
    """In each step, a copy inside of aten::contiguous, which takes 10 itself, and a product."""
    made = Made().range("aten::contiguous", 100, length + 10)
    made.range("aten::copy_", 105, length, sizes=sizes, input_types=types, input_strides=strides)
    return made.range("aten::mm", 600, 300)


CASES = [
    Case(
        "layouts",
        lambda: copying(50),
        600,  # aten::contiguous goes with the copy
        0.06,
        {"ns": 500, "ns_share": 0.05, "copies": 10},
        {
            "4.9%": lambda: copying(49),
            "of the same order": lambda: copying(50, strides="[[600, 1], [700, 1], []]"),
            "of a tensor that was expanded": lambda: copying(50, strides="[[600, 1], [0, 1], []]"),
            "of two types": lambda: copying(50, types=WIDER),
            "of two sizes": lambda: copying(50, "[[400, 600], [600], []]", strides="[[600, 1], [1], []]"),
            "nobody recorded strides": lambda: copying(50, strides=None),
            "a device is there": lambda: copying(50).work("gemm", 0, 1),
        },
        ops=("aten::contiguous",),
        steps=FIRST,
        ranges=each(105, 50),
        words={"tensor": "400x600 (dimensions 1 0 to 0 1)", "causes": "aten::contiguous"},
    ),
]


test_it_fires, test_it_is_silent = case_tests(CASES)


def test_reorders_of_onednn_convert_layouts() -> None:
    made = Made().range("aten::mkldnn_reorder_conv2d_weight", 100, 50).range("aten::to_dense", 200, 500)
    found = made.findings()["layouts"].evidence
    assert (found.at_stake_ns, found.figures["copies"]) == (500, 10)
    assert found.words["tensor"] == "sizes that the file does not have"


def test_the_op_that_needs_a_copy_is_named() -> None:
    found = copying(50).range("aten::reshape", 90, 80).findings()["layouts"].evidence
    assert found.ops == ("aten::reshape",)


@pytest.mark.parametrize(
    ("size", "to", "from_", "is_converted"),
    [
        ([4, 16, 64, 64], [65536, 1, 1024, 16], [65536, 4096, 64, 1], True),
        ([4, 1, 64, 64], [4096, 1, 64, 1], [4096, 4096, 64, 1], False),  # a dimension of one element
        ([1, 16, 1, 1], [16, 1, 16, 16], [16, 1, 1, 1], False),
        ([8, 8], [8, 1], [1, 1], False),  # rows that overlap
        ([], [], [], False),
    ],
)
def test_an_order_is_that_of_dimensions_with_several_elements(
    size: list[int], to: list[int], from_: list[int], is_converted: bool
) -> None:
    texts = (json.dumps([size, size, []]), SAME, json.dumps([to, from_, []]))
    assert (converted(*texts) is not None) == is_converted


@pytest.mark.parametrize(
    "texts",
    [
        ("", "", ""),
        ("[" * 100_000, SAME, STRIDES),
        ("{}", SAME, STRIDES),
        (SIZES, '["", "", ""]', STRIDES),
        (SIZES, SAME, "[[600, 1], [1], []]"),
        (SIZES, SAME, "[[600, 1], [1, null], []]"),
        (json.dumps([[2] * 65] * 2), SAME, json.dumps([list(range(1, 66)), list(range(65, 0, -1))])),
    ],
)
def test_texts_that_say_no_strides_are_no_conversions(texts: tuple[str, str, str]) -> None:
    assert converted(*texts) is None


# --- real programs


def programs() -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """By what is planted: a step, and one without the plant that computes the same."""
    torch = pytest.importorskip("torch")
    weight, rows = torch.randn(600, 400), torch.randn(64, 600)
    transposed = weight.t().contiguous()
    images, channels_last = torch.randn(4, 8, 64, 64), torch.channels_last
    images_last = images.to(memory_format=channels_last)
    return {
        "a transposed weight": (lambda: rows @ weight.t().contiguous().t(), lambda: rows @ transposed.t()),
        "channels_last and back": (
            lambda: images.contiguous(memory_format=channels_last).relu().contiguous(),
            lambda: images_last.relu(),
        ),
    }


@pytest.mark.parametrize("name", ["a transposed weight", "channels_last and back"])
def test_layouts_of_a_real_program_are_those_of_the_file(name: str, tmp_path: Path) -> None:
    planted, twin = programs()[name]
    run = recorded(planted, tmp_path / "planted.json", record_shapes=True)

    (found,) = evidence(run, "layouts")

    events = json.loads((tmp_path / "planted.json").read_text())["traceEvents"]
    ops = [one for one in events if one.get("ph") == "X" and one["cat"] == "cpu_op"]
    steps = spans([one for one in events if one.get("ph") == "X" and one["name"].startswith("ProfilerStep#")])
    copies = {begin for begin, _ in spans([one for one in ops if one["name"] == "aten::copy_"])}
    ns = [
        ns for at, ns in self_times(spans(ops)) if at in copies and any(since <= at < until for since, until in steps)
    ]
    assert found.figures["copies"] == len(ns) >= STEPS
    assert found.figures["ns"] == pytest.approx(sum(ns), abs=len(ns))
    assert (found.at_stake_ns or 0) >= found.figures["ns"]
    assert set(found.ops) <= {"aten::contiguous", "aten::clone"}
    assert not evidence(recorded(twin, tmp_path / "twin.json", record_shapes=True), "layouts")
