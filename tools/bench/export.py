"""Measures time and memory of the export of timelines, with 1 million and with 10 million rows.

    python tools/bench/export.py            both sizes: 5 GB of disk, 3 minutes
    python tools/bench/export.py --rows N   another number of rows

Half of the rows are ranges, a quarter are calls, and a quarter are kernels. A call launches each kernel. A new process
writes each file, after it has loaded and analysed the trace. Memory is the peak during the export, minus the memory
before the export.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from figures import figure, title
from nsys_files import Size, parquet

CHILD = """
import json, os, sys, time
from pathlib import Path
import opspan

def status(key):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(key)) / 1024

trace = opspan.load(sys.argv[1])
trace.analysed.attributed
Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
before, cpu, began = status("VmRSS"), sum(os.times()[:2]), time.perf_counter()
trace.export(sys.argv[2])
took, cpu = time.perf_counter() - began, sum(os.times()[:2]) - cpu
print(json.dumps([took, cpu, before, status("VmHWM"), os.path.getsize(sys.argv[2])]))
"""
NAMES = ("run.json", "run.json.gz", "run.perfetto-trace", "run.perfetto-trace.gz")


def report(folder: Path, rows: int) -> None:
    source = folder / "source"
    parquet(source, Size(ranges=rows // 2, calls=rows // 4, work=rows // 4))
    title(f"timelines of {rows:,} rows", "time of the processors; memory is of the peak, above that of the trace")
    for name in NAMES:
        command = [sys.executable, "-c", CHILD, source, folder / name]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        took, processors, before, peak, size = json.loads(done.stdout)
        figure(name, processors, "s", beside=f"{took:.1f} s by the clock, {size / 1e6:,.0f} MB")
        figure(f"{name}: memory", peak - before, "MiB", beside=f"above {before:,.0f} MiB")
        (folder / name).unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, metavar="N", help="default: 1 million, then 10 million")
    options = parser.parse_args()
    for rows in [options.rows] if options.rows else [1_000_000, 10_000_000]:
        with tempfile.TemporaryDirectory() as folder:
            report(Path(folder), rows)


if __name__ == "__main__":
    main()
