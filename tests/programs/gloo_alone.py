"""Ranks that add up tensors over gloo, without steps: gloo_alone.py FOLDER RANKS SECONDS LATE...

LATE are the ranks that sleep for so long before each collective."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

import opspan

COLLECTIVES = 30


def main(folder: Path, rank: int, ranks: int, seconds: float) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks)
    values, matrix = torch.ones(64), torch.ones(64, 64)
    dist.barrier()
    with opspan.record(path=folder / f"rank{rank}"):
        for _ in range(COLLECTIVES):
            torch.mm(matrix, matrix)
            time.sleep(seconds)
            dist.all_reduce(values)
    dist.barrier()
    dist.destroy_process_group()


FOLDER, RANKS, SECONDS, LATE = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), set(map(int, sys.argv[4:]))
children = []
for number in range(RANKS):
    child = os.fork()
    if not child:
        main(FOLDER, number, RANKS, SECONDS * (number in LATE))
        sys.exit()
    children.append(child)
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0 for child in children))
