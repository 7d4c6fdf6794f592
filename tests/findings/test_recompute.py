"""Forward ops that run again in the backward, of made runs and of torch's own checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import opspan
from findings.made import FIRST, Case, Made, case_tests, each
from opspan.findings import findings

SIZES = "[[64, 64], [64, 64]]"


def checkpointed(
    length: int, sizes: str = SIZES, gradient: int | None = None, op: str = "aten::mm", waits: bool = True
) -> Made:
    """A forward op that runs again in its backward, for `length` on the device, and then its gradient, with a seq if
    `gradient` says one. The host waits for all of it."""
    made = Made().range("aten::mm", 0, 40, seq=1, sizes=SIZES).launch(5, "gemm", 50, 300)
    made.range("MmBackward0", 100, 250, kind="backward", seq=1, forward_tid=1, tid=2)
    made.range(op, 110, 50, seq=2, sizes=sizes, tid=2).launch(115, "gemm", 350, length, tid=2)
    made.range("aten::mm", 200, 50, seq=gradient, sizes=SIZES, tid=2).launch(205, "gemm", 350 + length, 100, tid=2)
    return made.call("cudaDeviceSynchronize", 360, length + 100) if waits else made


CASES = [
    Case(
        "recompute",
        lambda: checkpointed(100),
        1000,
        0.1,
        {"ns": 1000, "ns_share": 0.1, "ops": 10},
        {
            "4.9%": lambda: checkpointed(49),
            "another op": lambda: checkpointed(100, op="aten::mul"),
            "other sizes": lambda: checkpointed(100, "[[64, 64], [64, 1]]"),
            "gradients that are differentiated again": lambda: checkpointed(100, gradient=3),
        },
        ops=("aten::mm",),
        steps=FIRST,
        ranges=each(350, 100),
        words={"op": "aten::mm"},
    ),
]


test_it_fires, test_it_is_silent = case_tests(CASES)


def test_where_the_host_sets_the_pace_its_part_counts() -> None:
    # The node begins at 100 and computes its gradient from 200 on.
    assert checkpointed(100, waits=False).findings()["recompute"].evidence.at_stake_ns == 10 * 100


def test_ops_in_a_module_are_found() -> None:
    made = checkpointed(100).range("layer", 105, 60, kind="module", tid=2)
    assert made.findings()["recompute"].evidence.figures["ops"] == 10


def recorded(path: Path, reentrant: bool | None, twice: bool = False) -> list[dict[str, Any]]:
    """Three steps of a net whose two layers are checkpointed, unless `reentrant` is None; what torch's profiler says of
    them. `twice`: gradients are differentiated again."""
    torch = pytest.importorskip("torch")
    from torch.utils.checkpoint import checkpoint

    layers = [torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.GELU()) for _ in range(2)]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
        for _ in range(3):
            start = x = torch.randn(1024, 512, requires_grad=True)
            for layer in layers:
                x = layer(x) if reentrant is None else checkpoint(layer, x, use_reentrant=reentrant)
            loss = x.square().sum()
            if twice:
                loss = loss + torch.autograd.grad(loss, start, create_graph=True)[0].square().sum()
            loss.backward()
            profiler.step()
    profiler.export_chrome_trace(str(path))
    events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return [one for one in events if one.get("cat") == "cpu_op"]


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_of_torch(reentrant: bool, tmp_path: Path) -> None:
    events = recorded(tmp_path / "run.json", reentrant)
    found = {one.rule.id: one.evidence for one in findings(opspan.load(tmp_path / "run.json").analysed)}["recompute"]

    backward = [one for one in events if "Backward" in one["name"]]
    again = [
        one
        for one in events
        if one["name"] in ("aten::linear", "aten::gelu")
        and any(two["ts"] < one["ts"] < two["ts"] + two["dur"] and two["tid"] == one["tid"] for two in backward)
    ]
    assert len(again) == found.figures["ops"] == 3 * 2 * 2
    # A checkpoint adds little of its own.
    assert found.at_stake_ns == pytest.approx(sum(one["dur"] for one in again) * 1000, rel=0.2)


@pytest.mark.parametrize("twice", [False, True])
def test_runs_of_torch_without_checkpoints(twice: bool, tmp_path: Path) -> None:
    recorded(tmp_path / "run.json", None, twice)
    assert "recompute" not in {one.rule.id for one in findings(opspan.load(tmp_path / "run.json").analysed)}
