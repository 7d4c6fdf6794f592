"""Compares a loop over the objects of `events()` with a loop over torch's own EventList of the same size.

    python tools/bench/walk.py              1 million ranges (1 minute, needs torch)
    python tools/bench/walk.py --rows N     N ranges

For torch, the time includes creating the events and building their tree, because torch's profiler does this before it
returns the events. For opspan, the time includes loading the file; the events are created during the loop. Both run in
separate processes, in turn. The figure is the median of the ratios of processor time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import nsys_files
from figures import figure, title

ROUNDS = 3


def walk(events: Iterable[Any]) -> int:
    return sum(
        1 for event in events if (event.name, event.cpu_time, event.self_cpu_time_total, event.time_range, event.thread)
    )


def ours(path: Path) -> int:
    import opspan

    return walk(opspan.load(path).events())


def torchs(rows: int) -> int:
    from torch.autograd import DeviceType
    from torch.autograd.profiler_util import EventList, FunctionEvent

    events = EventList(
        [
            FunctionEvent(
                at, "aten::mm", 1, at * 10, at * 10 + 5, device_type=DeviceType.CPU
            )  # each event ends before the next event begins
            for at in range(rows)
        ]
    )
    events._build_tree()
    return walk(events)


def child(path: Path, rows: int) -> None:
    """Prints the number of events, and the processor seconds of the walk. Imports do not count."""
    if path.is_file():
        import opspan.events.column_events
        import opspan.readers.nsys  # noqa: F401
    else:
        import torch.autograd.profiler_util  # noqa: F401
    started = time.process_time()
    count = ours(path) if path.is_file() else torchs(rows)
    print(json.dumps([count, time.process_time() - started]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child, arguments.rows)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = nsys_files.sqlite(Path(folder) / "rows.sqlite", nsys_files.Size(arguments.rows, 1, 1))
        ratios, seconds = [], []
        for _ in range(ROUNDS):
            took = []
            for what in (path, Path(folder) / "torch"):
                command = [sys.executable, __file__, "--rows", str(arguments.rows), "--child", str(what)]
                count, used = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
                took.append(used / count * arguments.rows)
            seconds.append(took)
            ratios.append(took[0] / took[1])
        mine, theirs = (statistics.median(one) for one in zip(*seconds, strict=True))
        title(f"{arguments.rows:,} events", "time of the processors")
        figure(
            "loaded and walked, of torch's", statistics.median(ratios), beside=f"{mine:.2f} / {theirs:.2f} s", most=0.3
        )


if __name__ == "__main__":
    main()
