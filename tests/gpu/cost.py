"""cost.py MODE FOLDER: how long the host takes for 5,000 small launches, in microseconds each, watched or not.

MODE is plain, record, device (record with its device), nvtx (emit_nvtx without a tool), profile (opspan.profiler with
CPU and CUDA) or torch (torch.profiler with both). Prints JSON.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch

import opspan
from opspan import profiler
from programs import ACTIVITIES, DEVICE, HAS_GPU, wait

LAUNCHES, TURNS = 5_000, 5


def watching(mode: str, folder: Path) -> AbstractContextManager[Any]:
    if mode in ("record", "device"):
        return opspan.record(folder / "recorded", device=mode == "device")
    if mode == "nvtx":
        return opspan.emit_nvtx()
    if mode == "profile":
        return profiler.profile(activities=ACTIVITIES, path=folder / "recorded")
    if mode == "torch":
        return torch.profiler.profile(activities=ACTIVITIES)
    return nullcontext()


def timed(x: torch.Tensor) -> tuple[float, float]:
    """Microseconds a launch until all are launched, and until all are done."""
    wait()
    begin = time.perf_counter()
    for _ in range(LAUNCHES):
        x.add_(1)
    launched = time.perf_counter()
    wait()
    return (launched - begin) / LAUNCHES * 1e6, (time.perf_counter() - begin) / LAUNCHES * 1e6


def main() -> None:
    mode, folder = sys.argv[1], Path(sys.argv[2])
    warnings.simplefilter("ignore")  # warns that no NVTX tool is there
    x = torch.zeros(32, device=DEVICE)
    before = [timed(x) for _ in range(2)][-1]
    began = time.perf_counter()
    with watching(mode, folder):
        entered = time.perf_counter()
        turns = [timed(x) for _ in range(TURNS)]
        left = time.perf_counter()
    ended = time.perf_counter()
    after = timed(x)
    print(
        json.dumps(
            {
                "mode": mode,
                "launched_us": [round(one, 3) for one, _ in turns],
                "done_us": [round(one, 3) for _, one in turns],
                "before_us": before,
                "after_us": after,
                "enter_ms": (entered - began) * 1e3,
                "exit_ms": (ended - left) * 1e3,
                "sum": x.sum().item(),
                "launches": LAUNCHES,
                "turns": TURNS,
                "has_gpu": HAS_GPU,
            }
        )
    )


main()
