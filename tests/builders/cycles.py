"""Traces that one process wrote one after the other, as torch's `schedule(repeat=...)` does: with the same ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from builders import kineto

APART_US = 5_000_000.0
RANK = kineto.HEAD["distributedInfo"]


def written(
    path: Path,
    cycle: int,
    *,
    pid: int = kineto.PID,
    rank: int | None = None,
    host: str | None = "node-3",
    late_us: float = 0.0,
    longer: float = 1.0,
    step: int | None = None,
) -> Path:
    """The events of the builder, in a cycle of their own; each takes `longer` times as long."""
    events: list[dict[str, Any]] = json.loads(json.dumps(kineto.events()))
    begin = cycle * APART_US + late_us
    for event in events:
        for name in ("pid", "tid"):
            if event.get(name) == kineto.PID:
                event[name] = pid
        if "ts" in event:
            event["ts"] = begin + event["ts"] * longer
        if "dur" in event:
            event["dur"] = event["dur"] * longer
        if event["name"] == "ProfilerStep#7":
            event["name"] = f"ProfilerStep#{7 + 4 * cycle if step is None else step}"
    head = {name: value for name, value in kineto.HEAD.items() if name not in ("distributedInfo", "host_name")}
    head["baseTimeNanoseconds"] = kineto.BASE_NS
    if rank is not None:
        head["distributedInfo"] = {**RANK, "rank": rank, "world_size": 2}
    if host is not None:
        head["host_name"] = host
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**head, "traceEvents": events}))
    return path


def handled(folder: Path, cycle: int, host: str = "node-3", pid: int = kineto.PID, **more: Any) -> Path:
    """Named as tensorboard_trace_handler does."""
    name = f"{host}_{pid}.{1_700_000_000_000_000_000 + cycle}.pt.trace.json"
    return written(folder / name, cycle, pid=pid, host=host, **more)


def two_cycles(folder: Path) -> list[Path]:
    return [handled(folder, 0), handled(folder, 1, longer=1.5)]


def two_ranks(folder: Path) -> list[Path]:
    """Writes the files of two ranks with two cycles each; returns them in the order of a folder."""
    return [
        handled(folder, cycle, pid=700 + rank, rank=rank, late_us=100.0 * rank, longer=1 + cycle / 2 + rank / 4)
        for rank in (0, 1)
        for cycle in (0, 1)
    ]
