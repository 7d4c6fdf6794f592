"""An op that raises in the middle of nested ranges; the program goes on afterwards."""

import torch
from session import run

import opspan


def main() -> None:
    for _ in range(3):
        try:
            with opspan.annotate("doomed"), torch.profiler.record_function("also doomed"):
                torch.ones(2, 3) @ torch.ones(2, 3)
        except RuntimeError:
            pass
        torch.ones(2, 3).sum()


if __name__ == "__main__":
    run(main)
