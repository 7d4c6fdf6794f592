"""What a large capture costs: memory and time a range of `opspan table`, of 30 million ranges beside 1 million.

    python tools/bench/large.py             30 million: 2 GB of disk, 2 minutes
    python tools/bench/large.py --ranges N  another number

Each is read by a process of its own. Memory is that process' peak, less that of one that reads a capture of 1,000
ranges.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from captures import capture

CHILD = """
import sys
from opspan.cli import main
try:
    main(["table", *sys.argv[1:]])
except SystemExit as exited:
    status = exited.code
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:"))
print(int(peak) * 1024, file=sys.stderr)
raise SystemExit(status)
"""
MOST_BYTES = 100
ROUNDS = 3


def cost(*arguments: str) -> tuple[int, float]:
    """Peak bytes and seconds of a process; the fastest of some for a small file."""
    started = time.perf_counter()
    command = [sys.executable, "-c", CHILD, *arguments]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=True)
    return int(done.stderr.split()[-1]), time.perf_counter() - started


def report(folder: Path, ranges: int, by: str) -> None:
    for shapes in (False, True):
        few = capture(folder / "few.opspan", 1000, shapes)
        some = capture(folder / "some.opspan", 1_000_000, shapes)
        many = capture(folder / "many.opspan", ranges, shapes)
        # The first read of a file is the disk's, and says nothing of ours.
        base, start = min(cost(str(few), "--by", by) for _ in range(ROUNDS))
        _, one_s = min((cost(str(some), "--by", by) for _ in range(ROUNDS)), key=lambda found: found[1])
        peak, seconds = cost(str(many), "--by", by)
        a_range, an_ns = (peak - base) / ranges, (seconds - start) / ranges * 1e9
        one_ns = (one_s - start) / 1e6 * 1e9
        what = "with shapes" if shapes else "without shapes"
        met = "met" if a_range <= MOST_BYTES else "MISSED"
        print(f"{ranges:,} ranges {what}, by {by}: {seconds:.1f} s, peak {peak / 1e6:,.0f} MB", flush=True)
        print(f"  memory a range   {a_range:6.1f} bytes   <= {MOST_BYTES} bytes   {met}", flush=True)
        print(f"  time a range     {an_ns:6.0f} ns, of 1,000,000 ranges {one_ns:.0f} ns: {an_ns / one_ns:.2f} x")
        many.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranges", type=int, default=30_000_000)
    parser.add_argument("--by", default="name")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report(Path(folder), arguments.ranges, arguments.by)


if __name__ == "__main__":
    main()
