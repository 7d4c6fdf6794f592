"""Profiles a compiled model in three ways: with torch's defaults, with provenance, and with options of newer torch.

Provenance is torch's record of where each compiled kernel comes from. Each of the three ways has its own process and
cache, because kernels from a cache that was filled without provenance have no provenance. The processes run in
parallel, because no times are measured.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import processes
import torch
from torch import nn

import gpu

LIMIT_S = 70  # seconds for all processes, which is less than the limit of this part in __main__.py
PROVENANCE = {"INDUCTOR_PROVENANCE": "1"}
WAYS: dict[str, dict[str, str]] = {
    "default": {},
    "provenance": PROVENANCE,
    "extended": PROVENANCE | {"TORCH_COMPILE_DEBUG_EXTEND": "1", "TORCH_COMPILE_DEBUG_FUSION": "1"},
}
ARGS_SHOWN = 40


def main(pieces: gpu.Pieces) -> None:
    pieces.piece("facts", gpu.facts)
    with tempfile.TemporaryDirectory(prefix="gpu-check-caches-") as caches:  # temporary: thousands of files
        run_each(pieces, Path(caches))


def run_each(pieces: gpu.Pieces, caches: Path) -> None:
    started = []
    for way, variables in WAYS.items():
        folder = pieces.folder / way
        folder.mkdir()
        own = {"TORCHINDUCTOR_CACHE_DIR": str(caches / way), "TRITON_CACHE_DIR": str(caches / f"{way}-triton")}
        if variables:
            own["TORCH_TRACE"] = str(folder / "torch-trace")
        with (folder / "printed.txt").open("wb") as log:
            command = [sys.executable, __file__, str(folder)]
            process = processes.start(command, os.environ | variables | own, log)
        started.append((way, folder, process))
    end = time.monotonic() + LIMIT_S
    for way, folder, process in started:
        pieces.piece(way, answer, folder, processes.wait(process, end))


def answer(folder: Path, code: int | None) -> dict[str, Any]:
    """Returns the results of the process. `code` is its exit code, or None if it was ended at its time limit."""
    result = folder / "result.json"
    found = json.loads(result.read_text(encoding="utf-8")) if result.exists() else {}
    if code != 0:
        printed = (folder / "printed.txt").read_text(encoding="utf-8", errors="replace").splitlines()
        why = f"ended at its limit of {LIMIT_S} s: " if code is None else f"exit code {code}: "
        found["failed"] = why + " | ".join(printed[-6:])
    return found | {"files": {str(path.relative_to(folder)): path.stat().st_size for path in folder.rglob("*")}}


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(256), nn.Linear(256, 512), nn.Linear(512, 256)

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        hidden = torch.nn.functional.gelu(self.up(self.norm(numbers)))
        return (self.down(hidden) + numbers).softmax(dim=-1).square().mean()


def program(folder: Path) -> None:
    pieces = gpu.Pieces(folder)
    model = Model().to(gpu.DEVICE)
    numbers = torch.randn(128, 256, device=gpu.DEVICE)
    compiled = torch.compile(model)

    def step() -> None:
        compiled(numbers).backward()

    pieces.piece("compilation", step)
    pieces.piece("provenance after the first step", provenance)
    step()
    options = {"record_shapes": True, "with_stack": True}
    pieces.piece("trace", gpu.profiled, folder / "compiled.json.gz", lambda: [step() for _ in range(2)], **options)
    pieces.piece("fields", fields, folder / "compiled.json.gz")


def provenance() -> Any:
    from torch._inductor import debug

    return {"kernel_information": json.loads(json.dumps(debug.create_kernel_information_json(), default=str))}


def fields(path: Path) -> dict[str, Any]:
    """Returns names of kernels, the ranges that torch.compile adds, and the args of Triton's kernels and launches."""
    events = gpu.events_of(path)
    names = [event["name"] for event in events if event.get("cat") != "python_function"]
    of_triton = [event for event in events if event["name"].startswith("triton_")]
    on_host = [event for event in of_triton if event.get("cat") != "kernel"]
    of_launches = [event for event in events if event.get("cat") in ("cuda_runtime", "cuda_driver")]
    return {
        "kernels": sorted({event["name"] for event in events if event.get("cat") == "kernel"}),
        "ranges": sorted({name for name in names if "Compiled" in name or "graph_" in name or name.startswith("##")}),
        "categories_of_ranges": sorted({str(event.get("cat")) for event in events if "Compiled" in event["name"]}),
        "triton_on_host": [{"name": one["name"], "cat": one.get("cat"), "args": shown(one)} for one in on_host[:12]],
        "triton_on_device": [{"name": one["name"], "args": shown(one)} for one in of_triton if one not in on_host][:6],
        "launches": sorted({event["name"] for event in of_launches}),
        "stacks": sorted({event["args"]["Call stack"] for event in events if "Call stack" in event.get("args", {})})[
            :9
        ],
    }


def shown(event: dict[str, Any]) -> dict[str, str]:
    return {key: str(value)[:300] for key, value in list(event.get("args", {}).items())[:ARGS_SHOWN]}


if __name__ == "__main__":
    if gpu.DRY:
        gpu.replace_cuda()
    program(Path(sys.argv[1]))
