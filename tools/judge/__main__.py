"""How good findings are: measured on runs whose truth is known, as they were made, with and without a fault.

    python tools/judge                      seeds 0 and 1: every plant twice, 40 runs without one, 40 questions what-if
    python tools/judge --seeds 2-3          other seeds
    python tools/judge --only slow-rank     one plant; or clean, what-if. May be given several times
    python tools/judge --only clean --seeds 0 --nth 7    one run without a plant
    python tools/judge --only programs --seeds 0         real programs of a CPU, ten times each: that takes half an hour
    python tools/judge --only gpu --seeds 0              those of a GPU: that takes five minutes on 16 processors
    python tools/judge --only 'a late rank' --seeds 0    one program
    python tools/judge --only gpu --recordings FOLDER    and keeps the run with and the run without the plant there
    python tools/judge --keep               and writes the tables of docs/findings.md: of simulated runs, and
                                            with --only programs of these

A run is drawn by its seed, written as a file of torch.profiler or nsys, and read by opspan. Its truth is the same run
simulated without the plant. Each miss is a line: what was planted, what is true, and what was said.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # the files are small: more threads only wait for each other
sys.path.append(str(Path(__file__).parents[2] / "tests"))

import report
import simulated
from plants import PLANTS

import programs

Some = TypeVar("Some")
GPU = "gpu"  # no table has what was measured of these
PARTS = ("clean", "what-if", report.PROGRAMS, GPU)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parsed(arguments)
    began = time.perf_counter()
    results = report.Results(options.seeds_text, part=options.part)
    numbers = [seed * simulated.OF_SEED + nth for seed in options.seeds for nth in options.nth]
    print(report.HEAD)
    for kind in options.wanted:
        if kind == "clean":
            for number in numbers:
                results.clean_runs += 1
                results.false += show(list(simulated.clean(number)), report.of_clean)
        elif kind == "what-if":
            for number in numbers:
                results.what_ifs += show([simulated.what_if(number)], report.of_what_ifs)
        elif kind in PLANTS:
            some = [simulated.planted(kind, seed) for seed in options.seeds]
            results.trials += show(some, partial(report.of_kind, kind))
    for of in (programs.PROGRAMS, programs.DEVICE_PROGRAMS):
        if wanted := [of[kind] for kind in options.wanted if kind in of]:
            for trial in (one for seed in options.seeds for one in programs.trials(wanted, seed, options.recordings)):
                results.trials += show([trial], partial(report.of_kind, trial.kind))
    print("", *report.measures(results), f"{time.perf_counter() - began:.0f} s", sep="\n")
    if options.keep:
        report.keep(results)
    return 0


def show(some: list[Some], lines: Callable[[list[Some]], Iterator[str]]) -> list[Some]:
    """Prints what is said of them as soon as they are judged: all of them take minutes."""
    for line in lines(some):
        print(line, flush=True)
    return some


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0-1", metavar="A-B", help="[default: 0-1]")
    names = [*PLANTS, *programs.PROGRAMS, *programs.DEVICE_PROGRAMS, *PARTS]
    parser.add_argument("--only", action="append", metavar="PLANT", help=f"of {', '.join(names)}")
    parser.add_argument(
        "--nth", type=int, metavar="N", help="of the runs without a plant, or questions, of a seed: one"
    )
    parser.add_argument(
        "--recordings", type=Path, metavar="FOLDER", help="keep what programs recorded, of each the medians"
    )
    parser.add_argument("--keep", action="store_true", help="write the table of docs/findings.md that this measures")
    options = parser.parse_args(arguments)
    if unknown := set(options.only or ()) - set(names):
        parser.error(f"no plant is called {', '.join(sorted(unknown))}: there are {', '.join(names)}")
    options.part = report.PROGRAMS if options.only == [report.PROGRAMS] else report.SIMULATED
    if options.keep and ((options.only and options.part == report.SIMULATED) or options.nth is not None):
        parser.error("--keep writes what was measured of all: leave out --nth, and --only but for --only programs")
    whole = {
        None: [*PLANTS, *PARTS[:2]],
        report.PROGRAMS: [*programs.PROGRAMS],
        GPU: [*programs.DEVICE_PROGRAMS],
    }
    options.wanted = [name for one in options.only or [None] for name in whole.get(one, [one])]
    first, _, last = options.seeds.partition("-")
    if not (first.isdigit() and (last or first).isdigit() and int(first) <= int(last or first)):
        parser.error(f"--seeds {options.seeds!r}: expected a number, or two such as 0-1")
    options.seeds_text, options.seeds = options.seeds, range(int(first), int(last or first) + 1)
    options.nth = range(simulated.OF_SEED) if options.nth is None else [options.nth]
    return options


if __name__ == "__main__":
    sys.exit(main())
