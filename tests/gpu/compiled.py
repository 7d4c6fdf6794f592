"""compiled.py MODE FOLDER WATCHER: three small functions that torch.compile makes Triton kernels of, watched.

MODE is default or reduce-overhead. Prints the results' bits as JSON, of a run before it is watched and of the watched
one: another process may choose other kernels for the same function.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from watched import watch

from programs import DEVICE, HAS_GPU, digest, same_each_time, wait

TURNS = 2


def pointwise(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.relu(x * 2 + y) * torch.sigmoid(x)


def reduction(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x * x + y, -1)


def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.relu(x @ y + 1)


def main() -> None:
    mode, folder, watcher = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    same_each_time()
    x, y = (torch.randn(256, 256, device=DEVICE) for _ in range(2))
    functions = [
        torch.compile(one, mode=None if mode == "default" else mode) for one in (pointwise, reduction, product)
    ]
    results: list[torch.Tensor] = []

    def run() -> None:
        for _ in range(TURNS):
            results.extend([function(x, y).clone() for function in functions])
        wait()

    with torch.no_grad():
        for _ in range(3):
            results.clear()
            run()
        before = digest(results)
        results.clear()
        watch(run, watcher, folder)
        eager = [function(x, y) for function in (pointwise, reduction, product)]
    apart = max(float((one - other).abs().max()) for one, other in zip(results, eager, strict=False))
    said = {"before": before, "digest": digest(results), "apart": apart, "turns": TURNS, "has_gpu": HAS_GPU}
    print(json.dumps(said))


main()
