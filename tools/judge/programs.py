"""Real programs on a CPU or a GPU, with and without a plant, recorded by opspan itself.

trials(programs, seed)       a Trial of each program; another seed repeats the programs
PROGRAMS, DEVICE_PROGRAMS    all programs, by name
"""

from __future__ import annotations

import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import device_texts
import program_texts
from program_texts import Program
from trial import Trial

import opspan
from opspan.questions import Options, question

TIMES = 5  # the number of runs with the plant, and without it; medians are compared
LONGEST_S = 300
# With these variables, programs keep the memory that they free. Otherwise a plant that frees more memory would slow all
# ops, because they would get new pages.
KEEPS_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_ARENA_MAX": "1"}
PROGRAMS = {program.name: program for program in program_texts.ALL}
DEVICE_PROGRAMS = {program.name: program for program in device_texts.ALL}


def trials(programs: Sequence[Program], seed: int, recordings: Path | None = None) -> Iterator[Trial]:
    """Runs programs on a CPU one after the other. Starts several programs on a GPU at the same time, but only one of
    them runs its loop at a time."""
    is_on_device = programs[0].start == device_texts.ON_DEVICE
    together = min(len(programs), max((os.cpu_count() or 1) * 3 // 4, 1)) if is_on_device else 1
    with tempfile.NamedTemporaryFile() as turn, ThreadPoolExecutor(together) as pool:
        os.environ["OPSPAN_JUDGE_TURN"] = turn.name
        yield from pool.map(partial(_trial, seed=seed, recordings=recordings), programs)


def _trial(program: Program, seed: int, recordings: Path | None) -> Trial:
    with tempfile.TemporaryDirectory() as folder:
        plain, planted = {}, {}
        # Run the program without and with the fault in turn, so that other work of the machine slows both.
        for number in range(TIMES):
            plain[number] = seconds(program, f"{folder}/plain{number}", "plain")
            planted[number] = seconds(program, f"{folder}/planted{number}", "planted")
        middle = sorted(planted, key=planted.__getitem__)[TIMES // 2]
        rows = question("findings").rows_of(opspan.load(f"{folder}/planted{middle}").analysed, Options())
        if recordings is not None:
            for how, number in (("planted", middle), ("plain", sorted(plain, key=plain.__getitem__)[TIMES // 2])):
                shutil.copytree(f"{folder}/{how}{number}", recordings / f"{program.name}.{how}")
    saved = planted[middle] - statistics.median(plain.values())
    command = f"python tools/judge --only '{program.name}' --seeds {seed}"
    return Trial(
        program.name,
        seed,
        rows,
        ns(planted[middle]),
        ns(saved),
        frozenset(program.rules),
        program.place,
        program.has_time,
        command,
    )


def ns(seconds: float) -> int:
    return round(seconds * 1e9)


def seconds(program: Program, folder: str, how: str) -> float:
    """Runs all ranks of the program. Returns how long the loop took on the slowest rank."""
    command = [sys.executable, "-c", program.start + program.text, folder, how]
    environment = os.environ | KEEPS_MEMORY | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    environment["WORLD_SIZE"] = str(program.ranks)
    running = [
        subprocess.Popen(command, env=environment | {"RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
        for rank in range(program.ranks)
    ]
    try:
        outputs = [one.communicate(timeout=LONGEST_S)[0] for one in running]
    finally:
        for one in running:
            one.kill()
    if any(one.returncode for one in running):
        raise SystemExit(f"the program {program.name!r} ({how}) failed")
    return max(float(text.split()[-1]) for text in outputs)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
