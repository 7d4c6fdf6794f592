"""Compares opspan's time for reading a file and printing a table with SQLite's time for stepping through the columns.

    python tools/bench/read.py            3 million rows: time, memory, growth, the command line, torch (5 minutes)
    python tools/bench/read.py --quick    fewer rounds
    python tools/bench/read.py --long     25 million rows: time and memory (3 minutes, 3 GB of disk)
    python tools/bench/read.py --others   VTune, rocpd, unitrace, and 1 GB of torch.profiler (5 minutes, 2 GB of disk);
                                          with --quick: 3 minutes; with --hta PYTHON: also measures the parser
                                          of HolisticTraceAnalysis, which the interpreter PYTHON must have

nsys_files.py makes the files. Each round is a new process. First SQLite computes the `max()` of each column, on one
thread. Then opspan loads the file, attributes and links its events, and makes the table. The same process measures both
times, so a slow moment of the machine affects both. Figures are medians. Other programs slow opspan more than SQLite,
because opspan uses all processors. So a round in which they took more than a tenth of the processors is repeated.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import nsys_files
from figures import figure, title

ROOT = Path(__file__).parents[2]
MILLION = 1_000_000
ROWS = nsys_files.Size(MILLION, MILLION, MILLION)
SHAPES = nsys_files.Size(MILLION, MILLION, MILLION, shapes=True)
TWICE = nsys_files.Size(2 * MILLION, 2 * MILLION, 2 * MILLION)
FEW = nsys_files.Size(33_334, 33_333, 33_333)
LONG = nsys_files.Size(16 * MILLION, 7 * MILLION, 2 * MILLION)
SMALL = nsys_files.Size(1_000, 1_000, 1_000)
TORCH_OPS = 4_000

MOST_BUSY = 0.1  # the share of the processors that other programs may take in a round
PATIENCE = 10  # the maximum number of attempts of a round
PATIENCE_WITH_OTHERS = 3  # the maximum number of attempts of a round with --others, which reads larger files

GIGABYTE = 900_000_000  # files of this size count as a gigabyte, because the size cannot be chosen exactly


# --- a round, in a new process


def step_through(path: Path) -> float:
    """Returns the seconds that SQLite needs to step through the columns that opspan's reader uses."""
    from opspan.readers.nsys import tables

    used = {
        "StringIds": ("id", "value"),
        tables.NVTX: tuple(tables.NVTX_COLUMNS),
        tables.RUNTIME: tuple(tables.RUNTIME_COLUMNS),
        tables.KERNEL: tuple(tables.KERNEL_COLUMNS),
    }
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    started = time.perf_counter()
    for table, columns in used.items():
        connection.execute(f"SELECT {', '.join(f'max([{column}])' for column in columns)} FROM {table}").fetchall()
    return time.perf_counter() - started


def read(path: Path) -> float:
    import opspan

    started = time.perf_counter()
    opspan.load(path).events().key_averages().table()
    return time.perf_counter() - started


def child(path: Path, database: Path) -> dict[str, float]:
    import opspan.events.column_events  # noqa: F401  imported before the clock starts, like the readers
    from opspan.readers.registry import reader_of
    from opspan.sources import SOURCES

    for source in SOURCES:
        reader_of(source)
    busy = busy_seconds()
    own = sum(os.times()[:4])
    started = time.perf_counter()
    base = step_through(database) if database.exists() else 0.0
    seconds = read(path)
    took = time.perf_counter() - started
    others = (busy_seconds() - busy) - (sum(os.times()[:4]) - own)
    return {
        "base": base,
        "seconds": seconds,
        "peak": peak_bytes(),
        "others": others / took / len(os.sched_getaffinity(0)),
    }


def peak_bytes() -> int:
    """Returns the peak memory of this process. getrusage would also include the memory of the parent process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def busy_seconds() -> float:
    """Returns the processor seconds of all programs so far."""
    user, nice, system, _, _, irq, softirq, *_ = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


class Rounds:
    def __init__(self, count: int, patience: int = PATIENCE) -> None:
        self.count = count
        self.patience = patience
        self.disturbed = 0

    def say_disturbed(self) -> None:
        if self.disturbed:
            print(f"  {self.disturbed} rounds were taken while other programs ran: times are longer than alone")

    def of(self, path: Path, database: Path | None = None) -> list[dict[str, float]]:
        return [self._one(path, database or path) for _ in range(self.count)]

    def _one(self, path: Path, database: Path) -> dict[str, float]:
        for _ in range(self.patience):
            command = [sys.executable, __file__, "--child", str(path), str(database)]
            measures = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
            if measures["others"] <= MOST_BUSY:
                return measures
            time.sleep(1)
        self.disturbed += 1
        return measures


# --- the command line, and torch


def shell(path: Path, rounds: int) -> tuple[float, float]:
    """Returns the seconds of `opspan table`, and the ratio of its processor time to that of `import polars`.

    Both commands run in turn. Their modules are already compiled, as after an installation by pip.
    """
    compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(path.parent / "compiled")}
    commands = [["-m", "opspan", "table", str(path)], ["-c", "import polars"]]

    def used(command: list[str]) -> tuple[float, float]:
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([sys.executable, *command], check=True, capture_output=True, env=os.environ | compiled)
        took, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
        return took, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    results = [[used(command) for command in commands] for _ in range(1 + rounds)][1:]
    return statistics.median(ours[0] for ours, _ in results), statistics.median(
        ours[1] / polars[1] for ours, polars in results
    )


def clock(what: Callable[[], object], rounds: int) -> list[float]:
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        what()
        times.append(time.perf_counter() - started)
    return times


def against_torch(folder: Path, rounds: int) -> tuple[float, float] | None:
    """Returns the seconds of torch's load_nvprof, then those of opspan's load_nvprof. Each loads the file and makes the
    table of events."""
    if importlib.util.find_spec("torch") is None:
        return None
    import warnings

    import opspan

    sys.path.insert(0, str(ROOT / "tests"))
    from builders.nvprof import call, marker, on_gpu, profile

    warnings.simplefilter("ignore")  # torch warns that its load_nvprof is deprecated
    from torch.autograd.profiler import load_nvprof

    numbers = range(1, TORCH_OPS + 1)
    path = profile(
        folder / "torch.nvprof",
        {
            "MARKER": [row for at in numbers for row in marker(at, at * 1000, at * 1000 + 900, name=1 + at % 50)],
            "RUNTIME": [call(at, at * 1000 + 100, at * 1000 + 200) for at in numbers],
            "CONCURRENT_KERNEL": [on_gpu(at, at * 1000 + 300, at * 1000 + 800, name=51) for at in numbers],
        },
        [*(f"aten::op{at}, seq = {at}" for at in range(50)), "_Z4gemmIfEvPT_i"],
    )
    ours, theirs = (
        clock(lambda load=load: load(str(path)).table(), rounds) for load in (opspan.load_nvprof, load_nvprof)
    )
    return statistics.median(theirs), statistics.median(ours)


# --- the table


def ratio(what: str, results: list[dict[str, float]], most: float | None = None) -> None:
    times = statistics.median(one["seconds"] / one["base"] for one in results)
    figure(what, times, beside=f"{median(results, 'seconds'):.2f} s", most=most)


def median(results: list[dict[str, float]], what: str) -> float:
    return statistics.median(one[what] for one in results)


def report(folder: Path, count: int) -> None:
    rounds = Rounds(count)
    database = nsys_files.sqlite(folder / "rows.sqlite", ROWS)
    results = rounds.of(database)
    title(f"{ROWS.rows:,} rows", f"SQLite's own step through them {median(results, 'base'):.2f} s")
    ratio("SQLite -> nested, attributed, linked -> key_averages().table()", results, 0.6)
    ratio("the same from parquetdir", rounds.of(nsys_files.parquet(folder / "rows", ROWS), database), 0.4)
    ratio("SQLite, labels with shapes", rounds.of(nsys_files.sqlite(folder / "shapes.sqlite", SHAPES)))

    peak, twice = median(results, "peak"), median(rounds.of(nsys_files.sqlite(folder / "twice.sqlite", TWICE)), "peak")
    figure("peak memory of the process", peak / 1e6, "MB", most=400)
    a_row = (twice - peak) / (TWICE.rows - ROWS.rows)
    figure(f"each row past that, to {TWICE.rows:,}", a_row, "bytes", most=200)

    few = rounds.of(nsys_files.sqlite(folder / "few.sqlite", FEW))
    growth = median(results, "seconds") / ROWS.rows / (median(few, "seconds") / FEW.rows)
    figure(f"time a row, of that with {FEW.rows:,} rows", growth, most=1.2)

    seconds, of_polars = shell(nsys_files.sqlite(folder / "small.sqlite", SMALL), max(9, count))
    figure("opspan table on a small file, from the shell", seconds, "s", most=0.8)
    figure("the same, processor time, of `import polars`", of_polars, most=1.3)
    if both := against_torch(folder, min(3, count)):
        theirs, ours = both
        beside = f"{ours:.3f} / {theirs:.2f} s"
        figure(f"load_nvprof to the table, {TORCH_OPS:,} ops, of torch's", ours / theirs, beside=beside)
    rounds.say_disturbed()


def long_run(folder: Path) -> None:
    results = Rounds(1).of(nsys_files.sqlite(folder / "long.sqlite", LONG))
    peak = median(results, "peak")
    title(f"{LONG.rows:,} rows")
    ratio(f"{LONG.ranges:,} ranges, {LONG.calls:,} calls, {LONG.work:,} kernels", results)
    figure("peak memory of the process", peak / 1e9, "GB", most=3)


# --- other sources

JSON_BASE = (
    "import json, sys, time; t = time.perf_counter(); json.load(open(sys.argv[1])); print(time.perf_counter() - t)"
)
HTA_BASE = """
import sys, time
from hta.common.trace_parser import parse_trace_dataframe
from hta.configs.parser_config import ParserConfig
started = time.perf_counter()
parse_trace_dataframe(sys.argv[1], ParserConfig.get_default_cfg())
seconds = time.perf_counter() - started
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:"))
print(seconds, int(peak) * 1024)
"""


def other_sources(folder: Path, count: int, hta: str | None) -> None:
    import other_files

    rounds = Rounds(count, PATIENCE_WITH_OTHERS)
    some = nsys_files.Size(300_000, 180_000, 180_000, shapes=True)
    gigabyte = nsys_files.Size(1_060_000, 640_000, 640_000, shapes=True)
    title("other sources", f"of SQLite's step through every column, or Python's json.load; medians of {count}")
    events = f"{gigabyte.rows:,} events and arrows"
    files = (
        (f"VTune, {some.ranges:,} tasks with metadata", 2, other_files.vtune(folder / "r000hs", some)),
        (f"rocpd (RPD), {some.rows:,} rows", 1.5, other_files.rpd(folder / "run.rpd", some)),
        (f"unitrace, {some.rows:,} events and their arrows", 0.1, other_files.unitrace(folder / "app.json", some)),
        (f"torch.profiler, {events}", 0.08, other_files.kineto(folder / "run.pt.trace.json", gigabyte)),
    )
    for what, most, path in files:
        file = path / "sqlite-db" / "dicer.db" if path.is_dir() else path
        is_json = path.suffix == ".json"
        size = file.stat().st_size
        # `base` is the time of SQLite, or of Python's json. For a gigabyte, measure it only once, because Python's json
        # needs most of a minute.
        bases = 1 if size >= GIGABYTE else count
        base = statistics.median(
            base_of(JSON_BASE, file)[0] if is_json else step_through_all(file) for _ in range(bases)
        )
        results = rounds.of(path, folder / "no database")
        seconds, peak = median(results, "seconds"), median(results, "peak")
        figure(what, seconds / base, beside=f"{size / 1e6:.0f} MB in {seconds:.2f} s", most=most)
        beside = f"{peak / 1e6:.0f} MB"
        figure(f"{what}: peak memory, of the file", peak / size, beside=beside, most=1.3 if size >= GIGABYTE else None)
    rounds.say_disturbed()
    if hta:
        theirs, memory = base_of(HTA_BASE, path, hta)
        beside = f"{theirs:.1f} s, {memory / 1e6:.0f} MB"
        figure("HTA's parser on the same file, of ours", theirs / seconds, beside=beside, least=1)


def step_through_all(path: Path) -> float:
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    columns = {table: [row[1] for row in connection.execute(f"PRAGMA table_info([{table}])")] for table in tables}
    started = time.perf_counter()
    for table, names in columns.items():
        connection.execute(f"SELECT {', '.join(f'max([{name}])' for name in names)} FROM [{table}]").fetchall()
    return time.perf_counter() - started


def base_of(program: str, path: Path, python: str = sys.executable) -> list[float]:
    done = subprocess.run([python, "-c", program, str(path)], stdout=subprocess.PIPE, check=True, text=True)
    return [float(figure) for figure in done.stdout.split()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--long", action="store_true", help="25 million rows")
    parser.add_argument("--others", action="store_true", help="other sources than nsys")
    parser.add_argument("--hta", metavar="PYTHON", help="an interpreter that has HolisticTraceAnalysis")
    parser.add_argument("--child", nargs=2, type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(child(*arguments.child)))
        return
    with tempfile.TemporaryDirectory() as folder:
        if arguments.others:
            other_sources(Path(folder), 2 if arguments.quick else 5, arguments.hta)
        elif arguments.long:
            long_run(Path(folder))
        else:
            report(Path(folder), 3 if arguments.quick else 9)


if __name__ == "__main__":
    main()
