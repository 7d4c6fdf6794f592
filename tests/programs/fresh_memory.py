"""Steps on blocks of 40 MB: fresh_memory.py FOLDER HOW.

HOW is "planted", which takes new blocks in each step, or "twin", which writes into blocks that are there.
glibc's malloc gives blocks of more than 32 MB back to the system when they are freed."""

from __future__ import annotations

import sys

import torch

import opspan

STEPS, NUMBERS = 10, 10 << 20
torch.set_num_threads(1)
values = torch.ones(NUMBERS)
buffers = [torch.ones(NUMBERS), torch.ones(NUMBERS)]
with opspan.record(path=sys.argv[1], memory=True) as session:
    for _ in range(STEPS):
        for _ in range(3):
            if sys.argv[2] == "planted":
                sums = values + 1
                products = sums * 2
            else:
                torch.add(values, 1, out=buffers[0])
                torch.mul(buffers[0], 2, out=buffers[1])
        session.step()
