"""opspan flops: causal attention, whole and half; and which ops have no cost, with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import opspan as package
from builders import kineto
from cli.answers import rows
from cli.test_flops import read, write
from emit.running import opspan

QUERY = [2, 8, 64, 32]  # sequences, heads, tokens, width
WHOLE = 2 * 2 * 8 * 64 * 64 * (32 + 32)
SEEN = 64 * 65 // 2  # pairs of a query and a key that is not after it
PEAK = 989.4e12  # bf16 on an H100


def attention(at: int, *values: str) -> list[Any]:
    """A step of 100 us with one call of attention, whose kernel takes 10."""
    sized = {"Input Dims": [QUERY, QUERY, QUERY, [], [], [], []], "Input type": ["c10::BFloat16"] * 3 + ["Scalar"] * 4}
    concrete = {"Concrete Inputs": ["", "", "", *values]} if values else {}
    return [
        kineto.span("user_annotation", f"ProfilerStep#{at}", kineto.MAIN, at, 100),
        kineto.op("aten::_scaled_dot_product_flash_attention", kineto.MAIN, at + 10, 20, **sized, **concrete),
        kineto.call("cudaLaunchKernel", kineto.MAIN, at + 11, 4, at + 1),
        kineto.kernel("flash_fwd_kernel", at + 40, 10, at + 1),
    ]


def test_causal_attention_counts_whole_and_half_and_both_are_named(tmp_path: Path) -> None:
    path = write(tmp_path, "NVIDIA H100 80GB HBM3", attention(1000, "0.0", "True", "False", "0.125"))
    (row,) = rows("flops", path)
    needed = WHOLE * SEEN // 64**2
    assert (row["flops"], row["masked_flops"]) == (WHOLE, WHOLE - needed)
    assert row["flops_per_s"] == pytest.approx(WHOLE / 10e-6)
    # The part that a mask hides need not be computed: with it a share of the peak could be more than 1.
    assert row["compute_share"] == pytest.approx(needed / 10e-6 / PEAK)
    (whole,) = rows("flops", path, "--by", "run")
    (step,) = rows("flops", path, "--by", "step")
    time_s = whole["wall_ns"] / 1e9
    for use in (whole, step):
        assert use["mfu"] == pytest.approx(needed / time_s / PEAK)
        assert use["mfu_whole"] == pytest.approx(WHOLE / time_s / PEAK)
    said = opspan("flops", path).stdout
    assert f"{100 * whole['mfu_whole']:.1f}% if causal attention counts whole" in said
    hidden = f"{(WHOLE - needed) / 1e6:.3g} MFLOP ({100 * (WHOLE - needed) / WHOLE:.1f}%)"
    assert f"FLOP and FLOP/s count attention whole; causal masks and windows hide {hidden}" in said


@pytest.mark.parametrize("values", [("0.0", "False", "False", "0.125"), ()])
def test_attention_without_a_mask_and_with_one_that_is_not_known(tmp_path: Path, values: tuple[str, ...]) -> None:
    path = write(tmp_path, "NVIDIA H100 80GB HBM3", attention(1000, *values))
    (row,) = rows("flops", path)
    assert (row["flops"], row["masked_flops"]) == (WHOLE, 0)
    said = opspan("flops", path).stdout
    assert "whole;" not in said
    unknown = "The trace does not say whether 1 op of attention is causal: it counts whole"
    assert (unknown in said) == (not values)


def test_every_op_of_one_percent_that_has_no_cost_is_named_with_the_reason(tmp_path: Path) -> None:
    took = {"vllm::moe_forward": 500, "aten::mm": 200, "lib::a": 100, "lib::b": 90, "lib::c": 80, "lib::d": 15}
    took |= {"lib::e": 11, "lib::f": 3, "lib::g": 1}
    events = []
    for number, (name, us) in enumerate(took.items()):
        begin = 1000 * number + 10
        given_ = {"Input Dims": [[3], [4]]} if name == "aten::mm" else {}
        events += [
            kineto.op(name, kineto.MAIN, begin, 20, **given_),
            kineto.call("cudaLaunchKernel", kineto.MAIN, begin + 1, 4, number + 1),
            kineto.kernel("kernel", begin + 40, us, number + 1),
        ]
    said = opspan("flops", write(tmp_path, "NVIDIA H100 80GB HBM3", events)).stdout
    assert (
        "Nothing is known of the cost of 100.0% of the device time: vllm::moe_forward 50.0% (weights and chosen "
        "experts are not among its inputs), aten::mm 20.0% (its inputs do not tell), lib::a 10.0%, lib::b 9.0%, "
        "lib::c 8.0%, lib::d 1.5%, lib::e 1.1% (no formula), 2 others 0.4%"
    ) in said


def test_attention_of_recorded_files_is_that_of_their_json(traces_dir: Path) -> None:
    name = "aten::_scaled_dot_product_flash_attention"
    for file, masked in (("bert_h100_foreign_thread_functions", False), ("compiled_flux_step", True)):
        path = traces_dir / "kineto" / f"{file}.json.gz"
        whole = hidden = 0
        for op in (event["args"] for event in read(path) if event["name"] == name):
            (batch, heads, queries, width), (*_, keys, _), _ = op["Input Dims"][:3]
            whole += 4 * batch * heads * queries * keys * width
            if op["Concrete Inputs"][4] == "True":
                pairs = sum(max(0, keys - query - 1) for query in range(queries))
                hidden += 4 * batch * heads * pairs * width
        found = {row["op"]: row for row in package.load(path).flops().to_dicts()}[name]
        assert (found["flops"], found["masked_flops"]) == (whole, hidden)
        assert whole > 0
        assert (hidden > 0) == masked


def test_the_label_of_an_engine_tells_the_lengths_of_its_attention(traces_dir: Path) -> None:
    path = traces_dir / "kineto" / "vllm_graph_execution.json.gz"
    found = {row["op"]: row for row in package.load(path).flops().to_dicts()}
    assert found["vllm::rocm_unquantized_gemm"]["flops"] == 2 * 46 * 2880 * 201088
    layers, heads, width, pairs = 24, 64, 64, 7671310 + 34489
    assert found["vllm::unified_attention_with_output"]["flops"] == 4 * layers * heads * width * pairs
