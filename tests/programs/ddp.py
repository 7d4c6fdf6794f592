"""Two processes with DistributedDataParallel over gloo. Started without a rank, it starts both and waits."""

import itertools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from session import run

meetings = itertools.count()


def main() -> None:
    dist.init_process_group(
        "gloo",
        init_method=f"file://{os.environ['RENDEZVOUS']}{next(meetings)}",
        rank=int(os.environ["RANK"]),
        world_size=2,
    )
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    for _ in range(3):
        model(torch.randn(3, 4)).sum().backward()
    dist.barrier()
    # torch 2.13 alone aborts now and then ("terminate called without an active exception") when the model goes last.
    del model
    dist.destroy_process_group()


def start_both() -> int:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RENDEZVOUS"] = str(Path(folder) / "meet")
        ranks = [subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, "RANK": str(r)}) for r in (0, 1)]
        return max(rank.wait() for rank in ranks)


if __name__ == "__main__":
    if "RANK" in os.environ:
        run(main)
    else:
        sys.exit(start_both())
