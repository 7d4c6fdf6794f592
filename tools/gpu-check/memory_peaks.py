"""Records the memory of one run in three ways: the allocator's statistics, its snapshot, and a profile. Then makes an
allocation fail on purpose."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import torch
from torch import nn

import gpu

TOO_MANY = 1 << 40  # more bytes than any card has
STEPS = 4


def main(pieces: gpu.Pieces) -> None:
    pieces.piece("facts", gpu.facts)
    if not gpu.DRY:
        pieces.piece("history begins", record_history)
    pieces.piece("profile", profile, pieces.folder)
    pieces.piece("peak of the profile", peak_of_profile, pieces.folder / "memory.json.gz")
    if not gpu.DRY:
        pieces.piece("out of memory", out_of_memory)
        pieces.piece("snapshot", snapshot, pieces.folder)
        pieces.piece("after emptying the cache", statistics_after)


def record_history() -> dict[str, Any]:
    torch.cuda.memory._record_memory_history(max_entries=100_000, stacks="python")
    return {"allocated_bytes": torch.cuda.memory_allocated()}


def train(steps: int) -> None:
    model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 2048), nn.GELU(), nn.Linear(2048, 10))
    model.to(gpu.DEVICE)
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(steps):
        with torch.profiler.record_function(f"step {step}"):
            loss = model(torch.randn(256, 512, device=gpu.DEVICE)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()


def profile(folder: Path) -> dict[str, Any]:
    """Profiles a training. Creates the model while the profiler runs, so that the statistics and the profile cover the
    same allocations."""
    torch.cuda.reset_peak_memory_stats()
    before = 0 if gpu.DRY else torch.cuda.memory_allocated()
    options = {"profile_memory": True, "record_shapes": True, "with_stack": True}
    seen = gpu.profiled(folder / "memory.json.gz", lambda: train(STEPS), **options)
    statistics = {} if gpu.DRY else torch.cuda.memory_stats()
    return {"allocated_before_bytes": before, "peak_bytes": torch.cuda.max_memory_allocated(), "trace": seen} | {
        name: value for name, value in statistics.items() if name.endswith("all.peak") or name.startswith("num_")
    }


def peak_of_profile(path: Path) -> dict[str, Any]:
    """Returns the peak of allocated and of reserved memory for each device, according to the memory events of the
    trace."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        events = [event for event in json.load(file)["traceEvents"] if event.get("name") == "[memory]"]
    answer: dict[str, Any] = {"events": len(events), "args": sorted({key for event in events for key in event["args"]})}
    for event in events:
        device = f"device type {event['args'].get('Device Type')}, {event['args'].get('Device Id')}"
        so_far = answer.setdefault(device, {"events": 0, "most_allocated": 0, "most_reserved": 0})
        so_far["events"] += 1
        so_far["most_allocated"] = max(so_far["most_allocated"], event["args"].get("Total Allocated", 0))
        so_far["most_reserved"] = max(so_far["most_reserved"], event["args"].get("Total Reserved", 0))
    return answer


def out_of_memory() -> dict[str, Any]:
    try:
        torch.empty(TOO_MANY, dtype=torch.uint8, device=gpu.DEVICE)
    except torch.OutOfMemoryError as error:
        return {"message": str(error), "type": type(error).__name__}
    raise RuntimeError("there was room for all")


def snapshot(folder: Path) -> dict[str, Any]:
    """Writes the snapshot, and returns two peaks from its events. In the first peak, a block counts until the program
    asks to free it. In the second peak, it counts until the allocator has freed it."""
    path = folder / "snapshot.pickle"
    torch.cuda.memory._dump_snapshot(str(path))
    data = path.read_bytes()
    path.unlink()
    (folder / "snapshot.pickle.gz").write_bytes(gzip.compress(data))
    content = pickle.loads(data)
    traces = content["device_traces"][0]
    kinds: dict[str, int] = {}
    for entry in traces:
        kinds[entry["action"]] = kinds.get(entry["action"], 0) + 1
    return {
        "bytes": len(data),
        "keys": sorted(content),
        "actions": kinds,
        "entry_keys": sorted({key for entry in traces for key in entry}),
        "peak_until_free_requested": peak(traces, "free_requested"),
        "peak_until_free_completed": peak(traces, "free_completed"),
        "out_of_memory": [
            {key: value for key, value in entry.items() if key != "frames"}
            for entry in traces
            if entry["action"] == "oom"
        ],
        "settings": content.get("allocator_settings"),
    }


def peak(entries: list[dict[str, Any]], freed: str) -> int:
    now = most = 0
    for entry in entries:
        if entry["action"] == "alloc":
            now += entry["size"]
            most = max(most, now)
        elif entry["action"] == freed:
            now -= entry["size"]
    return most


def statistics_after() -> dict[str, Any]:
    torch.cuda.empty_cache()
    torch.cuda.memory._record_memory_history(enabled=None)
    return {"allocated_bytes": torch.cuda.memory_allocated(), "reserved_bytes": torch.cuda.memory_reserved()}
