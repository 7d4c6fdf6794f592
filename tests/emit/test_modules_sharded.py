"""A model that FSDP shards computes the same with labels of modules, and each of its modules has one name."""

from __future__ import annotations

from pathlib import Path

import pytest

import opspan
from emit.running import TRAINING, forked

fsdp = pytest.importorskip("torch.distributed.fsdp")

_PROGRAM = """
import contextlib, sys
import torch
import torch.distributed as dist
import opspan

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

def run(labels):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    if sys.argv[1] == "fully_shard":
        from torch.distributed.fsdp import fully_shard
        for part in (model[0], model[2], model):
            fully_shard(part)
    else:
        from torch.distributed.fsdp import FullyShardedDataParallel
        model = FullyShardedDataParallel(model, device_id=torch.device("cpu"))
    optimizer = torch.optim.Adam(model.parameters())
    losses = []
    with labels:
        for _ in range(3):
            loss = model(torch.ones(2, 8)).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    return losses

plain = run(contextlib.nullcontext())
assert run(opspan.record(sys.argv[2], modules=True)) == plain
dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "inner"),
    [("fully_shard", "FSDPSequential"), ("FullyShardedDataParallel", "FullyShardedDataParallel._fsdp_wrapped_module")],
)
def test_a_sharded_model(how: str, inner: str, tmp_path: Path) -> None:
    if not hasattr(fsdp, how):
        pytest.skip(f"this torch has no {how}")
    done = forked(_PROGRAM, how, tmp_path / "run", imported=TRAINING)
    assert done.returncode == 0, done.stderr
    modules = opspan.load(tmp_path / "run").table(by="module")

    rows = {line.split()[0] for line in str(modules).splitlines() if line.strip().startswith((inner, "0", "2"))}

    assert rows == {inner, f"{inner}.0", f"{inner}.1", f"{inner}.2"}
