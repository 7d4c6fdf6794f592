"""Measures how often opspan's findings are right. Each run is made with and without a fault, so the truth is known.

    python tools/judge                      seeds 0, 1: every plant twice, 40 runs without plants, 40 what-if questions
    python tools/judge --seeds 2-3          other seeds
    python tools/judge --only slow-rank     one plant, or clean, or what-if. Can be given several times
    python tools/judge --only clean --seeds 0 --nth 7    only one run without a plant, the one with number 7
    python tools/judge --only programs --seeds 0         real programs on a CPU, ten times each (half an hour)
    python tools/judge --only gpu --seeds 0              real programs on a GPU (five minutes with 16 processors)
    python tools/judge --only 'a late rank' --seeds 0    one program
    python tools/judge --only gpu --recordings FOLDER    also keeps the recordings with and without the plant in FOLDER
    python tools/judge --keep               also writes the measurements of simulated runs (with --only programs: of
                                            real programs) into docs/judge.json, for the tables in docs/findings.md

A plant is a fault that is put into a run. A run is drawn at random from its seed, written as a file of torch.profiler
or nsys, and read by opspan. The same run is simulated without the plant, to know the truth. For each plant that opspan
misses, a line shows the plant, the truth, and what opspan said.
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

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # the files are small, so more threads would only cost time
sys.path.append(str(Path(__file__).parents[2] / "tests"))

import report
import simulated
from plants import PLANTS

import programs

Some = TypeVar("Some")
GPU = "gpu"  # docs/findings.md has no table of this part
PARTS = ("clean", "what-if", report.PROGRAMS, GPU)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    began = time.perf_counter()
    results = report.Results(options.seeds_text, part=options.part)
    numbers = [seed * simulated.OF_SEED + nth for seed in options.seeds for nth in options.nth]
    print(report.HEAD)
    for kind in options.wanted:
        if kind == "clean":
            for number in numbers:
                results.clean_runs += 1
                results.false += show(list(simulated.clean(number)), report.false_finding_lines)
        elif kind == "what-if":
            for number in numbers:
                results.what_ifs += show([simulated.what_if(number)], report.what_if_lines)
        elif kind in PLANTS:
            some = [simulated.planted_trial(kind, seed) for seed in options.seeds]
            results.trials += show(some, partial(report.kind_lines, kind))
    for of in (programs.PROGRAMS, programs.DEVICE_PROGRAMS):
        if wanted := [of[kind] for kind in options.wanted if kind in of]:
            for trial in (one for seed in options.seeds for one in programs.trials(wanted, seed, options.recordings)):
                results.trials += show([trial], partial(report.kind_lines, trial.kind))
    print("", *report.measure_lines(results), f"{time.perf_counter() - began:.0f} s", sep="\n")
    if options.keep:
        report.keep(results)
    return 0


def show(some: list[Some], lines: Callable[[list[Some]], Iterator[str]]) -> list[Some]:
    """Prints these results immediately, because the next results take minutes. Returns the same results."""
    for line in lines(some):
        print(line, flush=True)
    return some


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
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
    members = {
        None: [*PLANTS, *PARTS[:2]],
        report.PROGRAMS: [*programs.PROGRAMS],
        GPU: [*programs.DEVICE_PROGRAMS],
    }
    options.wanted = [name for one in options.only or [None] for name in members.get(one, [one])]
    first, _, last = options.seeds.partition("-")
    if not (first.isdigit() and (last or first).isdigit() and int(first) <= int(last or first)):
        parser.error(f"--seeds {options.seeds!r}: expected a number, or two such as 0-1")
    options.seeds_text, options.seeds = options.seeds, range(int(first), int(last or first) + 1)
    options.nth = range(simulated.OF_SEED) if options.nth is None else [options.nth]
    return options


if __name__ == "__main__":
    sys.exit(main())
