"""Activation checkpointing: forward ops run a second time, inside backward."""

import torch
from session import run
from torch.utils.checkpoint import checkpoint


def main() -> None:
    block = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU(), torch.nn.Linear(4, 4))
    x = torch.randn(2, 4, requires_grad=True)
    for reentrant in (False, True):
        checkpoint(block, x, use_reentrant=reentrant).sum().backward()


if __name__ == "__main__":
    run(main)
