"""Two ranks that reduce over gloo, with a profiler on: gloo_ranks.py FOLDER record|opspan|torch."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

import opspan
import opspan.profiler


def work(rank: int) -> None:
    for _ in range(3):
        time.sleep(0.1 * rank)
        dist.all_reduce(torch.ones(1000))
    dist.all_reduce(torch.ones(16, 16, dtype=torch.float64))
    dist.broadcast(torch.ones(7, dtype=torch.int64), 0)
    dist.barrier()


def main(folder: Path, how: str, rank: int) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    dist.barrier()
    if how == "record":
        with opspan.record(path=folder / f"rank{rank}", record_shapes=True):
            work(rank)
    else:
        profiler = opspan.profiler if how == "opspan" else torch.profiler
        cpu = [profiler.ProfilerActivity.CPU]
        with profiler.profile(record_shapes=True, activities=cpu) as profile:
            work(rank)
        profile.export_chrome_trace(str(folder / f"rank{rank}.json"))
    dist.destroy_process_group()


other = os.fork()  # before anything was done: what both import takes longer than what they do
main(Path(sys.argv[1]), sys.argv[2], 1 if other else 0)
if other:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]))
