"""Measures the time and memory to analyse many ranks, with one process, with two processes and on a Dask cluster.

    python tools/bench/ranks.py            64 ranks with 100,000 ranges each, and 1,000 ranks with 10,000 ranges each
                                           (some minutes, 2 GB of disk)
    python tools/bench/ranks.py --quick    a quarter of the ranks

All ranks have the same file under different names. nsys_files.py makes the file, which does not contain the number of a
rank. A new program loads the files and asks `idle`, which needs the full analysis of ranges, calls and work. Its time
counts from its start to its end. Memory is the sum of the Pss of the program and its child processes, sampled every
50 ms. Pss counts shared pages once. The bench also checks that many ranks do not need much more memory than a few. A
round in which other programs took more than a tenth of the processors is repeated, as in read.py.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import nsys_files
import read
from distributed import LocalCluster
from figures import figure, title

LARGE = nsys_files.Size(100_000, 50_000, 50_000)
SMALL = nsys_files.Size(10_000, 5_000, 5_000)
FEW = 10  # the memory for many ranks is compared with the memory for this number of ranks
PROGRAM = "import sys, opspan; opspan.load_many(sys.argv[1], {}).idle()"
PAUSE_S = 0.05
PROCESSORS = len(os.sched_getaffinity(0))


class Round(NamedTuple):
    seconds: float
    peak: int
    work: float  # processor seconds of the program and its child processes
    others: float  # the share of the processors that other programs took


def ranks(folder: Path, size: nsys_files.Size, count: int) -> Path:
    folder.mkdir()
    first = nsys_files.sqlite(folder / "rank0000.sqlite", size)
    for number in range(1, count):
        os.link(first, folder / f"rank{number:04}.sqlite")
    return folder


def once(folder: Path, how: str) -> Round:
    busy, own = read.busy_seconds(), children_seconds()
    started = time.perf_counter()
    program = subprocess.Popen([sys.executable, "-c", PROGRAM.format(how), str(folder)])
    peak = 0
    while program.poll() is None:
        peak = max(peak, sum(map(pss, family(program.pid))))
        time.sleep(PAUSE_S)
    seconds = time.perf_counter() - started
    if program.returncode:
        raise SystemExit(f"the program for {folder} failed")
    work = children_seconds() - own
    others = (read.busy_seconds() - busy) - work
    return Round(seconds, peak, work, others / seconds / PROCESSORS)


def children_seconds() -> float:
    return sum(os.times()[:4])


def family(pid: int) -> list[int]:
    """Returns the process and all its descendants."""
    pids = [pid]
    for parent in pids:
        with suppress(OSError):
            pids += map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split())
            for thread in Path(f"/proc/{parent}/task").iterdir():
                if thread.name != str(parent):
                    pids += map(int, (thread / "children").read_text().split())
    return list(dict.fromkeys(pids))


def pss(pid: int) -> int:
    with suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return 0


class Rounds:
    def __init__(self, count: int, patience: int) -> None:
        self.count, self.patience = count, patience
        self.disturbed = 0

    def of(self, folder: Path, how: str) -> Round:
        """Returns the medians of the rounds. `how` is an argument of load_many, as text."""
        rounds = [self._quiet(folder, how) for _ in range(self.count)]
        return Round(*(statistics.median(column) for column in zip(*rounds, strict=True)))  # type: ignore[arg-type]

    def _quiet(self, folder: Path, how: str) -> Round:
        for _ in range(self.patience):
            result = once(folder, how)
            if result.others <= read.MOST_BUSY:
                return result
        self.disturbed += 1
        return result


def report(folder: Path, parts: int, rounds: Rounds) -> None:
    for size, count in ((LARGE, 64 // parts), (SMALL, 1_000 // parts)):
        run = ranks(folder / f"{count}", size, count)
        megabytes = sum(path.stat().st_size for path in run.iterdir()) / 1e6
        rows = f"{size.ranges:,} ranges, {size.calls + size.work:,} calls and kernels"
        title(f"{count:,} ranks of {rows}", f"{megabytes:,.0f} MB")
        one, two = rounds.of(run, "processes=1"), rounds.of(run, "processes=2")
        figure("one process", one.seconds, "s", beside=f"{one.peak / 1e6:.0f} MB")
        beside = f"{two.seconds:.1f} s, {two.peak / 1e6:.0f} MB"
        figure("two processes, of one", two.seconds / one.seconds, beside=beside, most=0.6)
        # The best possible time is the time in which two processes keep all processors busy. (One process can use
        # several processors, too.)
        beside = f"{one.work / one.seconds:.2f} processors busy with one"
        figure("two processes, of one, at best", two.work / PROCESSORS / one.seconds, beside=beside)
        beside = f"{two.work:.1f} / {one.work:.1f} s"
        figure("processor time of two processes, of one", two.work / one.work, beside=beside)
        with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
            # Do not measure memory, because the workers are not child processes of the program.
            on_cluster = [once(run, f"dask={cluster.scheduler_address!r}").seconds for _ in range(rounds.count)]
        seconds = statistics.median(on_cluster)
        figure("a cluster of two workers, of one process", seconds / one.seconds, beside=f"{seconds:.1f} s")
        few = rounds.of(ranks(folder / f"{count} few", size, FEW), "processes=2")
        beside = f"{few.peak / 1e6:.0f} MB"
        figure(f"memory, of that of {FEW} ranks", two.peak / few.peak, beside=beside, most=1.5)
    if rounds.disturbed:
        print(f"  {rounds.disturbed} rounds were taken while other programs ran: times are longer than they are alone")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a quarter of the ranks, one round")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report(
            Path(folder), 4 if arguments.quick else 1, Rounds(1 if arguments.quick else 3, 1 if arguments.quick else 5)
        )


if __name__ == "__main__":
    main()
