"""HolisticTraceAnalysis says of opspan's Chrome traces what it says of torch.profiler's own.

docs/analysis.md, "Compared with other tools", has what opspan's own figures are beside these.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import opspan
from emit.running import told
from peers.environments import figures_of, python_of

pytestmark = pytest.mark.slow
WITH_DEVICE = (
    "alexnet_sync_events",
    "b200_eager",
    "event_sync_multi_stream",
    "mi300_ddp_resnet18",
    "norm_layers",
    "ns_resolution.pt.trace",
    "rank0_sampled",
    "vllm_graph_execution",
)
OF_DEVICES = {
    "overlap",
    "temporal breakdown",
    "kernel breakdown",
    "launches",
    "queue length",
    "idle time",
    "memory bandwidth",
}
# Figures that cannot agree (docs/profiler.md).
DIFFERENT = {
    "ns_resolution.pt.trace": {"idle time"},  # microseconds since 1970 with decimals are no doubles
    "rank0_sampled": {"memory bandwidth"},  # torch knew nanoseconds, and wrote whole microseconds
}

PROGRAM = """
import sys, threading, torch
from opspan import profiler

cpu = [torch.profiler.ProfilerActivity.CPU]
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def train():
    optimizer.zero_grad()
    with torch.profiler.record_function("forward"):
        loss = model(torch.randn(3, 8)).sum()
    loss.backward()
    optimizer.step()

train()
asked = {"activities": cpu, "record_shapes": True, "schedule": torch.profiler.schedule(wait=0, warmup=0, active=9)}
with torch.profiler.profile(**asked) as theirs, profiler.profile(**asked) as ours:
    for _ in range(4):
        train()
theirs.export_chrome_trace(sys.argv[1])
ours.export_chrome_trace(sys.argv[2])
print("null")
"""


@pytest.fixture(scope="module", autouse=True)
def has_hta() -> None:
    python_of("hta")


def both(theirs: Path, ours: Path) -> list[dict[str, Any]]:
    # In whole microseconds, as it is without this, it takes spans of one for any of the others.
    return [figures_of("hta", path, HTA_DISABLE_NS_ROUNDING="1") for path in (theirs, ours)]


def test_a_run_that_both_watched(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    paths = tmp_path / "theirs.json.gz", tmp_path / "ours.json.gz"
    told(PROGRAM, *paths)
    theirs, ours = both(*paths)
    assert sum(theirs["events"].values()) > 400
    assert ours == theirs


@pytest.mark.parametrize("name", WITH_DEVICE)
def test_traces_of_torch_profiler_with_devices(name: str, traces_dir: Path, tmp_path: Path) -> None:
    source = traces_dir / "kineto" / f"{name}.json.gz"
    if not source.exists():
        pytest.skip(f"{name} is not among the recorded traces")
    opspan.load(source).export(tmp_path / "ours.json.gz")
    theirs, ours = both(source, tmp_path / "ours.json.gz")
    compared = OF_DEVICES - DIFFERENT.get(name, set())
    different = [key for key in compared if not same(ours[key], theirs[key])]
    assert not different, {key: (theirs[key], ours[key]) for key in different}


def same(one: Any, other: Any) -> bool:
    """Microseconds since 1970 are no exact doubles, and HTA adds them up: its sums differ by parts of one."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=1e-3, abs_tol=1.5)
    return bool(one == other)
