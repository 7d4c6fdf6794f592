"""graphs.py STREAMS FOLDER WATCHER: a block with attention, once as it is, then captured as a CUDA graph and replayed.

STREAMS is 1 or 2. WATCHER is torch, record or plain. What is watched: `eager` (a range), `capture` (a range), and three
replays, which are in no range. Prints the results' bits and how often each was done, as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from torch.nn import functional
from watched import watch

from programs import DEVICE, HAS_GPU, digest, on_stream, same_each_time, wait

REPLAYS = 3
STREAMS = int(sys.argv[1])


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(128)
        self.inward = torch.nn.Linear(128, 384)
        self.outward = torch.nn.Linear(128, 128)
        self.wide = torch.nn.Linear(128, 512)
        self.narrow = torch.nn.Linear(512, 128)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (4, 32)).transpose(1, 2) for part in self.inward(self.norm(x)).chunk(3, -1))
        attended = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + self.outward(attended)
        return x + self.narrow(functional.gelu(self.wide(x)))


def main() -> None:
    same_each_time()
    blocks = [Block().to(DEVICE).eval() for _ in range(STREAMS)]
    x = torch.randn(4, 64, 128, device=DEVICE)
    side = torch.cuda.Stream() if HAS_GPU else None

    def forward() -> torch.Tensor:
        """The second block, if there is one, on the other stream."""
        if STREAMS == 2 and side is not None:
            side.wait_stream(torch.cuda.current_stream())
        results = [blocks[0](x)]
        if STREAMS == 2:
            with on_stream(side):
                results.append(blocks[1](x))
            if side is not None:
                torch.cuda.current_stream().wait_stream(side)
        return torch.stack(results).sum(0)

    captured: list[torch.Tensor] = []

    def run() -> None:
        with torch.profiler.record_function("eager"):
            eager = forward()
            wait()
        if not HAS_GPU:
            captured.extend([eager, eager])
            return
        graph = torch.cuda.CUDAGraph()
        with torch.profiler.record_function("capture"), torch.cuda.graph(graph):
            result = forward()
        for _ in range(REPLAYS):
            graph.replay()
            wait()
        captured.extend([eager, result.clone()])

    folder, watcher = Path(sys.argv[2]), sys.argv[3]
    with torch.no_grad():
        warming = torch.cuda.Stream() if HAS_GPU else None
        with on_stream(warming):
            for _ in range(3):
                forward()
        wait()
        watch(run, watcher, folder)
        wait()
    print(json.dumps({"digests": [digest([one]) for one in captured], "replays": REPLAYS, "has_gpu": HAS_GPU}))


if __name__ == "__main__":
    main()
