"""Measures memory and time per range of `opspan table`, on captures with 30 million ranges and with 1 million.

    python tools/bench/large.py             30 million ranges: 2 GB of disk, 2 minutes
    python tools/bench/large.py --ranges N  N ranges instead of 30 million

Each capture is read by a new process. Memory is the peak of that process, minus the peak of a process that reads 1,000
ranges. Time is processor time, because other programs may run at the same time.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from captures import capture
from figures import figure, title

CHILD = """
import os, sys
from opspan.cli import main
try:
    main(["table", *sys.argv[1:]])
except SystemExit as exited:
    status = exited.code
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:"))
print(int(peak) * 1024, sum(os.times()[:2]), file=sys.stderr)
raise SystemExit(status)
"""
MOST_BYTES = 100
FEW = 1_000_000
ROUNDS = 3


@dataclass(frozen=True)
class Cost:
    peak: int
    processor_s: float
    seconds: float


def cost(*arguments: str) -> Cost:
    """Returns the memory and time of a new process that runs `opspan table` with these arguments."""
    started = time.perf_counter()
    command = [sys.executable, "-c", CHILD, *arguments]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=True)
    peak, processor_s = done.stderr.split()[-2:]
    return Cost(int(peak), float(processor_s), time.perf_counter() - started)


def least(*arguments: str) -> Cost:
    """Returns the cost of the fastest of several processes, because the first read of a file mainly measures the
    disk."""
    return min((cost(*arguments) for _ in range(ROUNDS)), key=lambda one: one.processor_s)


def report(folder: Path, ranges: int, by: str) -> None:
    for shapes in (False, True):
        few = least(str(capture(folder / "few.opspan", 1000, shapes)), "--by", by)
        some = least(str(capture(folder / "some.opspan", FEW, shapes)), "--by", by)
        many = cost(str(capture(folder / "many.opspan", ranges, shapes)), "--by", by)
        a_range = (many.peak - few.peak) / ranges
        an_ns = (many.processor_s - few.processor_s) / ranges * 1e9
        one_ns = (some.processor_s - few.processor_s) / FEW * 1e9
        what = "with shapes" if shapes else "without shapes"
        title(f"{ranges:,} ranges {what}, by {by}", f"{many.seconds:.1f} s, peak {many.peak / 1e6:,.0f} MB")
        figure("memory a range", a_range, "bytes", most=MOST_BYTES)
        beside = f"{an_ns:.0f} / {one_ns:.0f} ns"
        figure(f"processor time a range, of that of {FEW:,}", an_ns / one_ns, beside=beside, most=1.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranges", type=int, default=30_000_000)
    parser.add_argument("--by", default="name")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report(Path(folder), arguments.ranges, arguments.by)


if __name__ == "__main__":
    main()
