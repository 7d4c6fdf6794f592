"""Measures the time that launches, small copies and synchronisations take on the host when the device is idle."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import gpu

TIMES = 1000
OF_COPIES = 200
MEGABYTE = 1 << 18  # the number of floats in a megabyte


def main(pieces: gpu.Pieces) -> None:
    pieces.piece("facts", gpu.facts)
    one = torch.ones(1, device=gpu.DEVICE)
    event = torch.cuda.Event()
    stream = torch.cuda.current_stream()
    on_device = torch.ones(MEGABYTE, device=gpu.DEVICE)
    pageable, pinned = torch.ones(MEGABYTE), torch.ones(MEGABYTE).pin_memory()

    def wait_for_event() -> None:
        event.record()
        event.synchronize()

    host = {
        "nothing": lambda: None,
        "synchronize": torch.cuda.synchronize,
        "stream synchronize": stream.synchronize,
        "event record and synchronize": wait_for_event,
        "item": one.item,
        "launch of an empty kernel": lambda: torch.cuda._sleep(0),
        "launch of add_": lambda: one.add_(1),
        "add_ and item": lambda: one.add_(1).item(),
        "add_ and synchronize": lambda: (one.add_(1), torch.cuda.synchronize()),
    }
    copies = {
        "1 MiB, pageable to device": lambda: on_device.copy_(pageable),
        "1 MiB, pageable to device, non_blocking": lambda: on_device.copy_(pageable, non_blocking=True),
        "1 MiB, device to pageable": lambda: pageable.copy_(on_device),
        "1 MiB, pinned to device": lambda: on_device.copy_(pinned),
        "1 MiB, pinned to device, non_blocking": lambda: on_device.copy_(pinned, non_blocking=True),
        "1 MiB, device to pinned": lambda: pinned.copy_(on_device),
        "1 MiB, device to pinned, non_blocking": lambda: pinned.copy_(on_device, non_blocking=True),
        "1 MiB, device to device": lambda: on_device.copy_(on_device.roll(1)),
    }
    for name, call in host.items():
        pieces.piece(name, on_host, call, TIMES)
    for name, call in copies.items():
        pieces.piece(name, on_host, call, OF_COPIES)
    pieces.piece("trace", gpu.profiled, pieces.folder / "synchronisation.json.gz", lambda: each(host | copies))


def on_host(call: Callable[[], Any], times: int) -> dict[str, float]:
    """Returns how long the call takes on the host when the device is idle, and how long it takes until the device has
    done the work that the call started."""
    for _ in range(20):
        call()
    torch.cuda.synchronize()
    took, until_done = [], []
    for _ in range(times):
        begun = time.perf_counter_ns()
        call()
        returned = time.perf_counter_ns()
        torch.cuda.synchronize()
        took.append(returned - begun)
        until_done.append(time.perf_counter_ns() - begun)
    parts = statistics.quantiles(took, n=100)
    return {
        "median_ns": statistics.median(took),
        "p10_ns": parts[9],
        "p90_ns": parts[89],
        "until_done_median_ns": statistics.median(until_done),
    }


def each(calls: dict[str, Callable[[], Any]]) -> None:
    """Runs each call five times, each time within a range that has the name of the call."""
    for name, call in calls.items():
        for _ in range(5):
            with torch.profiler.record_function(f"case {name}"):
                call()
            torch.cuda.synchronize()
