"""Ranks that train over gloo, of which one sleeps in each step: gloo_late.py FOLDER RANKS LATE_RANK SECONDS."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

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


def in_fork(*arguments: Any) -> int:
    """Before anything was done: what all import takes longer than what they do."""
    child = os.fork()
    if not child:
        main(*arguments)
        sys.exit()
    return child


RANKS, LATE = map(int, sys.argv[2:4])
ranks = [in_fork(Path(sys.argv[1]), rank, RANKS, LATE, float(sys.argv[4])) for rank in range(RANKS)]
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1]) != 0 for rank in ranks))
