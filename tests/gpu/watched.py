"""watched.py PROGRAM FOLDER WATCHER: one step of a program of programs.py, watched.

WATCHER is plain (nobody), torch (torch.profiler), record (record(device=True)) or profile (opspan.profiler). Prints
as JSON what the results were, bit for bit, what was warned of, and what the profiler itself says.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import opspan
from opspan import profiler
from programs import ACTIVITIES, HAS_GPU, digest, wait, warm


def averages(found: Any) -> list[list[Any]]:
    return [
        [
            one.key,
            str(one.device_type).rpartition(".")[2],
            one.count,
            one.self_device_time_total,
            one.device_time_total,
            bool(getattr(one, "is_user_annotation", False)),
        ]
        for one in found
    ]


def watch(run: Callable[[], object], watcher: str, folder: Path) -> dict[str, Any]:
    if watcher == "torch":
        with torch.profiler.profile(activities=ACTIVITIES) as prof:
            run()
        prof.export_chrome_trace(str(folder / "torch.json"))
        return {"averages": averages(prof.key_averages())}
    if watcher == "record":
        with opspan.record(folder / "recorded", device=True):
            run()
        return {}
    if watcher == "profile":
        with profiler.profile(activities=ACTIVITIES, path=folder / "recorded") as ours:
            run()
        ours.export_chrome_trace(folder / "opspan.json")
        return {"averages": averages(ours.key_averages())}
    run()
    return {}


def main() -> None:
    name, folder, watcher = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    step = warm(name)
    results: list[torch.Tensor] = []

    def run() -> None:
        results.extend(step())
        wait()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        said = watch(run, watcher, folder)
    said |= {
        "digest": digest(results),
        "warnings": [str(one.message) for one in caught],
        "has_gpu": HAS_GPU,
        "profiles_on": torch.autograd._profiler_enabled(),
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main()
