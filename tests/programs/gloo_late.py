"""Ranks that train over gloo, of which one sleeps in each step: gloo_late.py FOLDER RANK RANKS LATE_RANK SECONDS."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

import opspan

STEPS = 20


def main(folder: Path, rank: int, ranks: int, late: int, seconds: float) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks)
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters())
    dist.barrier()
    with opspan.record(path=folder / f"rank{rank}", record_shapes=True):
        for step in range(STEPS):
            with opspan.annotate(f"ProfilerStep#{step}"):
                if rank == late:
                    time.sleep(seconds)
                optimizer.zero_grad()
                model(torch.ones(8, 64)).sum().backward()
                for parameter in model.parameters():
                    dist.all_reduce(parameter.grad)
                optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


main(Path(sys.argv[1]), *map(int, sys.argv[2:5]), float(sys.argv[5]))
