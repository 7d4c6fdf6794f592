"""Profiles CUDA graphs with torch.profiler. Writes traces of a run without a graph, of the capture, and of replays.

The traces answer these questions: Do the kernels of a replay run in the order of their capture, on one stream and on
two streams? Do the launches of a capture name the kernel that they launch? Which ids connect launches and kernels?
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import gpu

WIDTH, HEADS, TOKENS, REPLAYS = 256, 4, 64, 3
OF_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
OF_HOST = ("cuda_runtime", "cuda_driver")
IDS = ("correlation", "External id", "stream", "graph id", "graph node id")


class Block(nn.Module):
    """A transformer block. If there is a second stream, attention runs on it, in parallel with two linear layers."""

    def __init__(self, second: Any = None) -> None:
        super().__init__()
        self.second = second
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def attention(self, tokens: torch.Tensor) -> torch.Tensor:
        parts = self.qkv(self.before(tokens)).chunk(3, dim=-1)
        query, key, value = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in parts)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        if self.second is None:
            tokens = tokens + self.attention(tokens)
            return tokens + self.down(functional.gelu(self.up(self.after(tokens))))
        first = torch.cuda.current_stream()
        self.second.wait_stream(first)
        with torch.cuda.stream(self.second):
            attended = self.attention(tokens)
        fed = self.down(functional.gelu(self.up(self.after(tokens))))
        first.wait_stream(self.second)
        return tokens + attended + fed


def main(pieces: gpu.Pieces) -> None:
    pieces.piece("facts", gpu.facts)
    torch.set_grad_enabled(False)
    dtype = torch.float32 if gpu.DRY else torch.bfloat16
    tokens = torch.randn(8, TOKENS, WIDTH, device=gpu.DEVICE, dtype=dtype)
    second = torch.cuda.Stream()
    for name, block in (("one_stream", Block()), ("two_streams", Block(second))):
        block.to(gpu.DEVICE, dtype)
        captured(pieces, name, block, tokens)
        pieces.piece(f"{name}: capture and replays in one trace", together, pieces.folder, name, block, tokens)
    if not gpu.DRY:
        reduced(pieces, Block().to(gpu.DEVICE, dtype), tokens)


def captured(pieces: gpu.Pieces, name: str, block: nn.Module, tokens: torch.Tensor) -> None:
    for _ in range(3):
        block(tokens)
    torch.cuda.synchronize()
    pieces.piece(f"{name}: eager", traced, pieces.folder / f"{name}-eager.json.gz", lambda: block(tokens))
    graph = torch.cuda.CUDAGraph()

    def capture() -> None:
        with torch.cuda.graph(graph):
            block(tokens)

    def replay() -> None:
        for _ in range(REPLAYS):
            graph.replay()
            torch.cuda.synchronize()

    pieces.piece(f"{name}: debug mode", graph.enable_debug_mode)  # a graph can be dumped only in debug mode
    pieces.piece(f"{name}: capture", traced, pieces.folder / f"{name}-capture.json.gz", capture)
    pieces.piece(f"{name}: replays", traced, pieces.folder / f"{name}-replays.json.gz", replay)
    pieces.piece(f"{name}: dump", graph.debug_dump, str(pieces.folder / f"{name}.dot"))
    compare(pieces, name)


def together(folder: Path, name: str, block: nn.Module, tokens: torch.Tensor) -> dict[str, Any]:
    """Traces a capture and its replays in one recording, because ids of different recordings cannot be compared."""
    graph = torch.cuda.CUDAGraph()

    def both() -> None:
        with torch.cuda.graph(graph):
            block(tokens)
        for _ in range(REPLAYS):
            graph.replay()
            torch.cuda.synchronize()

    return traced(folder / f"{name}-together.json.gz", both)


def reduced(pieces: gpu.Pieces, block: nn.Module, tokens: torch.Tensor) -> None:
    compiled = torch.compile(block, mode="reduce-overhead")

    def call(times: int) -> None:
        for _ in range(times):
            torch.compiler.cudagraph_mark_step_begin()
            compiled(tokens)
            torch.cuda.synchronize()

    name = "reduce_overhead"
    pieces.piece(f"{name}: compilation", call, 1)
    pieces.piece(f"{name}: capture", traced, pieces.folder / f"{name}-capture.json.gz", lambda: call(2))
    pieces.piece(f"{name}: replays", traced, pieces.folder / f"{name}-replays.json.gz", lambda: call(REPLAYS))


def traced(path: Path, function: Callable[[], Any]) -> dict[str, Any]:
    """Traces the function. Returns its launches and its work, in order of time, and the number of events of each
    kind."""
    seen = gpu.profiled(path, function, record_shapes=True)
    events = gpu.events_of(path)
    calls = [event for event in events if event.get("cat") in OF_HOST]
    work = [event for event in events if event.get("cat") in OF_DEVICE]
    by_launch: dict[Any, list[dict[str, Any]]] = {}
    for event in work:
        by_launch.setdefault(event["args"].get("correlation"), []).append(event)
    return {
        "events": seen,
        "launches": [brief(call) for call in calls if launches(call["name"])][:80],
        "replays": [
            {"launch": brief(call), "work": [brief(event) for event in by_launch.get(correlation_of(call), [])]}
            for call in calls
            if "GraphLaunch" in call["name"]
        ],
        "work": [brief(event) for event in work][:120],
    }


def launches(name: str) -> bool:
    return any(word in name for word in ("Launch", "Memcpy", "Memset"))


def correlation_of(event: dict[str, Any]) -> Any:
    return event["args"].get("correlation")


def brief(event: dict[str, Any]) -> dict[str, Any]:
    """Returns an event's name and ids. Its other args are in the trace."""
    return {"name": event["name"][:160]} | {key: event["args"][key] for key in IDS if key in event.get("args", {})}


def compare(pieces: gpu.Pieces, name: str) -> None:
    """Compares the kernels of each replay with those of the run without a graph, with and without their order. Also
    checks whether all replays have the same order."""

    def compared() -> dict[str, Any]:
        eager = [one["name"] for one in pieces.results[f"{name}: eager"]["work"]]
        replays = [[one["name"] for one in replay["work"]] for replay in pieces.results[f"{name}: replays"]["replays"]]
        return {
            "eager_kernels": len(eager),
            "kernels_of_replays": [len(replay) for replay in replays],
            "replays_in_eager_order": [replay == eager for replay in replays],
            "replays_with_eager_kernels": [sorted(replay) == sorted(eager) for replay in replays],
            "replays_in_one_order": len({tuple(replay) for replay in replays}) == 1,
        }

    pieces.piece(f"{name}: order", compared)
