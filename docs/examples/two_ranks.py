"""Trains on two processes with DistributedDataParallel (gloo), and reads both captures as the ranks of one run.

    python docs/examples/two_ranks.py

Leaves the folders rank0 and rank1, which `opspan table rank0 rank1` reads together. To run it again, delete them.
"""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

import opspan

RANKS = 2


def train(rank: int, meeting_place: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{meeting_place}", rank=rank, world_size=RANKS)
    torch.set_num_threads(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 32))
    with opspan.record(f"rank{rank}", record_shapes=True):  # a folder for each rank
        for _ in range(3):
            model(torch.randn(16 * (rank + 1), 64)).sum().backward()  # rank 1 has twice the work
    dist.barrier()
    del model
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(train, args=(str(Path(folder) / "meeting"),), nprocs=RANKS)

    # One trace, on one clock. The table's column "Node ID" and the frames' column `rank` say whose a row is.
    trace = opspan.load(*(f"rank{rank}" for rank in range(RANKS)))
    print(trace.events().key_averages().table(sort_by="self_cpu_time_total", row_limit=8))
    meetings = trace.ranges.filter(name="gloo:all_reduce")
    for (rank,), rows in meetings.group_by("rank", maintain_order=True):
        waited_ns = (rows["end_ns"] - rows["start_ns"]).sum()
        print(f"rank {rank} was in all_reduce {len(rows)} times, {waited_ns / 1e6:.1f} ms together")
