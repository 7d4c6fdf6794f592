"""Trials of simulated runs. A run is written to files, which opspan reads. Then the run is simulated without its plant,
which is the fault that was put into it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import polars as pl
from draws import draw_job
from plants import PLANTS
from remedies import ON_CONDITION, without
from trial import FalseFinding, Trial, WhatIf

import opspan
from builders.instructions import Begin, Driver, End, Host, Launch, Program, Sync
from builders.job import Job
from builders.job_program import programs_of, rows_of
from builders.machine import Rows, run
from builders.training_files import kineto_files, nsys_files
from builders.training_plan import Run
from opspan.questions import Options, question
from opspan.views import path

SOURCES = {"kineto": kineto_files, "nsys": nsys_files}
OF_SEED = 20  # the number of runs without a plant for each seed, and also of what-if questions
HALF = 0.5  # removing the cause of a finding must save at least this share of the stated time


def load(job: Job, rows: Rows, source: str, folder: Path, ranks: tuple[int, ...] = ()) -> opspan.Trace:
    """Writes a run to files, and loads them. If `ranks` is not empty, loads only the files of these ranks."""
    paths = SOURCES[source](folder, Run(job, *rows[:4]))
    return opspan.load(*(paths[rank] for rank in ranks or range(job.ranks)))


def findings_of(job: Job, rows: Rows, source: str, ranks: tuple[int, ...] = ()) -> pl.DataFrame:
    with tempfile.TemporaryDirectory() as folder:
        return question("findings").rows_of(load(job, rows, source, Path(folder), ranks).analysed, Options())


def _source(random: Random, is_kineto: bool = False) -> str:
    return "kineto" if is_kineto else random.choice(tuple(SOURCES))


def planted_trial(kind: str, seed: int) -> Trial:
    random = Random(f"{kind} {seed}")
    one = PLANTS[kind](random)
    # Only files of Kineto have functions and memory.
    source = _source(random, "function" in one.place or not one.has_time)
    rows = rows_of(one.job)
    saved_ns = rows.ns - rows_of(one.without).ns
    named = findings_of(one.job, rows, source, one.ranks)
    if not one.has_time:  # drop findings that the run without the plant has as well
        before = findings_of(one.without, rows_of(one.without), source, one.ranks)
        named = named.filter(~pl.col("id").is_in(before["id"].implode()))
    after = next((without(rule, {}, one.job) for rule in one.rules & ON_CONDITION), None)
    condition_ns = None if after is None else rows.ns - after
    command = f"python tools/judge --only {kind} --seeds {seed}"
    return Trial(kind, seed, named, rows.ns, saved_ns, one.rules, one.place, one.has_time, command, condition_ns)


def clean(seed: int) -> Iterator[FalseFinding]:
    """Yields the false findings of a run without a plant."""
    random = Random(f"clean {seed}")
    job = draw_job(random)
    rows = rows_of(job)
    command = f"python tools/judge --only clean --seeds {seed // OF_SEED} --nth {seed % OF_SEED}"
    for row in findings_of(job, rows, _source(random)).rows(named=True):
        stated = row["at_stake_ns"]
        if stated is None:
            continue
        after = without(row["id"], row, job)
        saves = None if after is None else rows.ns - after
        if saves is None or saves < HALF * stated:
            yield FalseFinding(seed, row["id"], stated, saves, rows.ns, row["sentence"], command)


# --- what if

_OPS = ("aten::addmm", "aten::mm", "aten::native_layer_norm", "aten::_foreach_add_", "aten::gelu_backward")
_KINDS = ("computing", "communicating", "copying", "host", "call")


def what_if(seed: int) -> WhatIf:
    random = Random(f"what-if {seed}")
    job = draw_job(random, has_steps=True)
    names = [name for name in (*_OPS, *_KINDS) if job.ranks > 1 or name != "communicating"]
    if not job.is_training:
        names = [name for name in names if name not in ("aten::mm", "aten::_foreach_add_", "aten::gelu_backward")]
    if job.graphs:
        names = [name for name in names if not name.startswith("aten::")]
    # Half of the questions are about kinds of time, half about ops.
    names = [name for name in names if (name in _KINDS) == (seed % 2 == 0)] or names
    name, factor = random.choice(names), random.choice((0.0, 0.5, 0.8, 1.5))
    programs = programs_of(job)
    before = run(programs, job.depth)
    changed = programs_of(job)
    _scale(changed, name, factor)
    truth = run(changed, job.depth).ns / before.ns - 1
    with tempfile.TemporaryDirectory() as folder:
        analysed = load(job, before, _source(random), Path(folder)).analysed
        times = path.run_times(path.parts(analysed, Options("op", factors={name: factor})))
    command = f"python tools/judge --only what-if --seeds {seed // OF_SEED} --nth {seed % OF_SEED}"
    return WhatIf(seed, f"{name}={factor:g}", times[1] / times[0] - 1 if times else None, truth, command)


def _scale(programs: list[Program], name: str, factor: float) -> None:
    """Multiplies the times of an op, or of a kind of time, by `factor`. The rules are in docs/analysis.md, in the
    section about the critical path.

    An op includes everything that runs inside it. The kind "host" is code outside of calls. The kind "call" is calls
    that do not wait.
    """
    for program in programs:
        inside: list[bool] = [False]
        for one in program.main:
            if isinstance(one, Begin):
                inside.append(inside[-1] or one.name == name)
            elif isinstance(one, End):
                inside.pop()
            elif isinstance(one, Host):
                if inside[-1] or name == "host":
                    one.ns = round(one.ns * factor)
            elif isinstance(one, Launch | Driver | Sync):
                is_call = isinstance(one, Launch) or (isinstance(one, Driver) and one.tag == "call")
                if inside[-1] or (name == "call" and is_call):
                    one.ns = round(one.ns * factor)
                for kernel in one.work if isinstance(one, Launch) else ():
                    kind = "copying" if kernel.kind == "memcpy" else "communicating" if kernel.group else "computing"
                    if inside[-1] or name == kind:
                        kernel.ns = round(kernel.ns * factor)
