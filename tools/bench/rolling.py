"""Measures a rolling recording, which keeps only the newest ranges in a ring of files. A program without torch sends
ranges to the capture sink as fast as possible.

    python tools/bench/rolling.py                       500 million ranges into a ring of 256 MB (3 minutes)
    python tools/bench/rolling.py --ranges N            another number of ranges
    python tools/bench/rolling.py --cost                cost per range, compared with record(): 3 GB of disk, 2 minutes

Disk is the size of the ring's files. Memory is the memory of the process without pages of files. Both are sampled ten
times a second. The growth of memory does not include the first tenth of the run. Cost is processor time, as the median
over rounds. In each round both kinds of recording run. `--folder` sets the folder of the files, for example one on a
file system in memory.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from figures import figure, title

from opspan import libraries

ROOT = Path(__file__).parents[2]
KEEP_BYTES = 256_000_000
COST_RANGES = 20_000_000
ROUNDS = 7
THREADS = 2


@dataclass(frozen=True)
class Run:
    ns: float  # the processor time per range
    lost: int
    disk: int  # the largest size of all files together, in bytes
    memory: list[int]  # the memory at each sample, in bytes
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranges", type=int, default=500_000_000)
    parser.add_argument("--shapes", type=int, default=1000, help="distinct sizes of inputs [default: 1000]")
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        program = build(Path(temporary))
        if options.cost:
            report_cost(program, options.folder, options.shapes)
        else:
            report_flat(program, options.folder, options.ranges, options.shapes)


def build(folder: Path) -> Path:
    program = folder / "rolling"
    source = ROOT / "tools/bench/rolling.cpp"
    command = ["g++", "-std=c++20", "-O2", "-I", ROOT / "native", source, "-o", program, "-ldl", "-pthread"]
    subprocess.run(command, check=True)
    return program


def run(program: Path, parent: Path | None, ranges: int, shapes: int, keep: int) -> Run:
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        command = [program, libraries.sinks(), folder, *map(str, (ranges, THREADS, shapes, keep))]
        began = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            disk, memory = 0, []
            while process.poll() is None:
                disk = max(disk, disk_of(Path(folder)))
                memory += memory_of(process.pid)
                time.sleep(0.1)
            ns, lost = process.communicate()[0].split()
        return Run(float(ns), int(lost), disk, memory, time.perf_counter() - began)


def disk_of(folder: Path) -> int:
    total = 0
    for file in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # the ring may have removed the file meanwhile
            total += file.stat().st_blocks * 512
    return total


def memory_of(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return [int(line.split()[1]) * 1024]
    return []


def report_flat(program: Path, folder: Path | None, ranges: int, shapes: int) -> None:
    result = run(program, folder, ranges, shapes, KEEP_BYTES)
    early = result.memory[len(result.memory) // 10]
    title(
        f"{ranges:,} ranges of {shapes:,} shapes",
        f"{result.seconds:.0f} s, {result.ns:.1f} ns of the processor a range",
    )
    figure("disk at most, of what is to be kept", result.disk / KEEP_BYTES, beside=f"{result.disk:,} bytes", most=1.2)
    beside = f"{max(result.memory):,} bytes"
    figure("memory grows by", (max(result.memory) - early) / 1e6, "MB", beside=beside, most=1)
    figure("units lost", result.lost, "units", most=0)


def report_cost(program: Path, folder: Path | None, shapes: int) -> None:
    plain, ring = [], []
    for _ in range(ROUNDS):
        plain.append(run(program, folder, COST_RANGES, shapes, 0).ns)
        ring.append(run(program, folder, COST_RANGES, shapes, KEEP_BYTES).ns)
    ratio = statistics.median(b / a for a, b in zip(plain, ring, strict=True))
    title("a range of the sinks", f"{COST_RANGES:,} ranges, {ROUNDS} rounds in turn, time of the processor")
    figure("record()", statistics.median(plain), "ns", beside=f"{min(plain):.1f} to {max(plain):.1f}")
    figure("record(keep=...)", statistics.median(ring), "ns", beside=f"{min(ring):.1f} to {max(ring):.1f}")
    figure("record(keep=...), of record()", ratio, most=1)


if __name__ == "__main__":
    main()
