"""A fork in the middle of a range: parent and child both go on running ops."""

import os

import torch
from session import run

import opspan


def main() -> None:
    torch.set_num_threads(1)
    with opspan.annotate("around the fork"):
        torch.ones(3).add(1)
        child = os.fork()
        if child == 0:
            for _ in range(10):
                torch.ones(3).mul(2)
            os._exit(0)
        for _ in range(10):
            torch.ones(3).sub(1)
    _, status = os.waitpid(child, 0)
    if status:
        raise SystemExit(f"the child ended with {status}")


if __name__ == "__main__":
    run(main)
