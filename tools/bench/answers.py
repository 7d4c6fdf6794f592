"""Measures the times of loading, of analysing and of each question, on an nsys export with 3 million rows.

    python tools/bench/answers.py                1 M ranges, 1 M calls, 1 M kernels (about 2 minutes)
    python tools/bench/answers.py --rows 100000  100,000 ranges, 100,000 calls and 100,000 kernels
    python tools/bench/answers.py --rounds 5     medians of 5 processes
    python tools/bench/answers.py --ranks 64     instead, a training with a file for each of 64 ranks

nsys_files.py makes the export. Each round is a process that loads the file, analyses it and asks each question once.
The process reports the seconds of each action, and the peak of its memory after the analysis and at the end.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import nsys_files
from figures import figure, title


def once(paths: list[str]) -> dict[str, float]:
    import opspan

    times: dict[str, float] = {}

    def timed(name: str, do: Callable[[], object]) -> None:
        started = time.perf_counter()
        do()
        times[name] = time.perf_counter() - started

    started = time.perf_counter()
    trace = opspan.load(*paths)
    _ = trace.analysed.complete
    times["load and analyse"] = time.perf_counter() - started
    times["MiB then"] = peak()
    timed("steps", trace.steps)
    timed("devices", lambda: trace.analysed.devices)
    timed("idle", trace.idle)
    timed("launches", trace.launches)
    timed("waits", trace.waits)
    timed("path", trace.path)
    timed("what if", lambda: trace.path(what_if={"aten::mm": 0.5, "launch": 0.5}))
    timed("queues", lambda: trace.analysed.queues)
    timed("copies", lambda: trace.analysed.copies)
    timed("memory", trace.memory_use)
    timed("flops", trace.flops)
    timed("comm", trace.comm)
    timed("findings", trace.findings)
    times["MiB at the end"] = peak()
    return times


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=0)
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(once(options.child)))
        return
    with tempfile.TemporaryDirectory() as folder:
        if options.ranks:
            paths = nsys_files.training(Path(folder), ranks=options.ranks, straggler=(options.ranks // 2, 1.5))
        else:
            size = nsys_files.Size(ranges=options.rows, calls=options.rows, work=options.rows)
            paths = [nsys_files.sqlite(Path(folder) / "run.sqlite", size)]
        command = [sys.executable, __file__, "--child", *map(str, paths)]
        rounds = [
            json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
            for _ in range(options.rounds)
        ]
    medians = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
    loading = medians.pop("load and analyse")
    before, after = medians.pop("MiB then"), medians.pop("MiB at the end")
    what = f"{options.ranks} ranks" if options.ranks else f"{3 * options.rows:,} rows"
    title(what, f"load and analyse {loading:.2f} s, peak {before:.0f} MiB")
    for name, seconds in medians.items():
        most = 0.5 if name == "what if" else None
        figure(f"{name}, of loading", seconds / loading, beside=f"{seconds:.2f} s", most=most)
    total = sum(seconds for name, seconds in medians.items() if name not in ("findings", "what if"))
    figure("all analyses together, of loading", total / loading, beside=f"{total:.2f} s", most=1)
    figure("peak at the end, of that after loading", after / before, most=2)


if __name__ == "__main__":
    main()
