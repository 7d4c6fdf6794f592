"""Runs a linear layer, forward and backward. opspan labels it with emit_nvtx, or `opspan run` labels it from outside.

labelled.py               runs steps without labels, which `opspan run` can label from outside
labelled.py auto torch    runs two steps under emit_nvtx for each form of labels, within an NVTX range `labels FORM`
"""

from __future__ import annotations

import contextlib
import sys

import torch

import gpu
import opspan


def steps(layer: torch.nn.Module, numbers: torch.Tensor) -> None:
    for step in range(2):
        with opspan.annotate(f"step {step}"):
            layer(numbers).relu().sum().backward()
    torch.cuda.synchronize()


def main(forms: list[str]) -> None:
    layer = torch.nn.Linear(64, 64).to(gpu.DEVICE)
    numbers = torch.randn(16, 64, device=gpu.DEVICE)
    steps(layer, numbers)
    for form in forms or [""]:
        around = opspan.emit_nvtx(record_shapes=True, labels=form) if form else contextlib.nullcontext()
        torch.cuda.nvtx.range_push(f"labels {form or 'from outside'}")
        with around as session:
            steps(layer, numbers)
        torch.cuda.nvtx.range_pop()
        if form:
            print(f"labels {form}: {session.labels}, {session.stats}", flush=True)


if __name__ == "__main__":
    if gpu.DRY:
        gpu.replace_cuda()
    main(sys.argv[1:])
