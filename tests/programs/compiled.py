"""torch.compile, forward and backward. The backend is the first argument: aot_eager or inductor."""

import sys

import torch
from session import run

BACKEND = sys.argv.pop(1)


def main() -> None:
    torch.compiler.reset()  # each session sees it compiled
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    step = torch.compile(model, backend=BACKEND)
    for _ in range(3):
        step(torch.ones(2, 4)).sum().backward()


if __name__ == "__main__":
    run(main)
