"""What a rolling recording costs and takes: the capture sink at full rate, driven as by the observer, without torch.

    python tools/bench/rolling.py                       500 million ranges into a ring of 256 MB (3 minutes)
    python tools/bench/rolling.py --ranges N            another number
    python tools/bench/rolling.py --cost                cost a range beside that of record(): 3 GB of disk, 2 minutes

Disk is what the files of the ring take, memory the process' without pages of files, both looked at ten times a second;
memory grows by what is above that at a tenth of the way. Cost is the processors' time, medians over rounds that take
turns; `--folder` says where, a file system in memory for one.
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
    ns: float  # of the processors, a range
    lost: int
    disk: int  # peak
    memory: list[int]  # at each look
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranges", type=int, default=500_000_000)
    parser.add_argument("--shapes", type=int, default=1000, help="distinct sizes of inputs [default: 1000]")
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        program = built(Path(made))
        if asked.cost:
            report_cost(program, asked.folder, asked.shapes)
        else:
            report_flat(program, asked.folder, asked.ranges, asked.shapes)


def built(folder: Path) -> Path:
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
        with contextlib.suppress(FileNotFoundError):  # its time has come
            total += file.stat().st_blocks * 512
    return total


def memory_of(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return [int(line.split()[1]) * 1024]
    return []


def report_flat(program: Path, folder: Path | None, ranges: int, shapes: int) -> None:
    found = run(program, folder, ranges, shapes, KEEP_BYTES)
    early = found.memory[len(found.memory) // 10]
    title(
        f"{ranges:,} ranges of {shapes:,} shapes", f"{found.seconds:.0f} s, {found.ns:.1f} ns of the processor a range"
    )
    figure("disk at most, of what is to be kept", found.disk / KEEP_BYTES, beside=f"{found.disk:,} bytes", most=1.2)
    beside = f"{max(found.memory):,} bytes"
    figure("memory grows by", (max(found.memory) - early) / 1e6, "MB", beside=beside, most=1)
    figure("units lost", found.lost, "units", most=0)


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
