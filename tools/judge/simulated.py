"""Trials of simulated runs: files are written, opspan reads them, and the same run is simulated without the plant."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import polars as pl
from draws import drawn
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
from opspan.views import findings, path

SOURCES = {"kineto": kineto_files, "nsys": nsys_files}
OF_SEED = 20  # runs without a plant, and questions what-if, for each seed
HALF = 0.5  # of what a finding states: what its cause has to save at least


def loaded(job: Job, rows: Rows, source: str, folder: Path, ranks: tuple[int, ...] = ()) -> opspan.Trace:
    """`ranks`: whose files are read; none: all."""
    paths = SOURCES[source](folder, Run(job, *rows[:4]))
    return opspan.load(*(paths[rank] for rank in ranks or range(job.ranks)))


def said_of(job: Job, rows: Rows, source: str, ranks: tuple[int, ...] = ()) -> findings.Findings:
    with tempfile.TemporaryDirectory() as folder:
        return findings.rows_of(loaded(job, rows, source, Path(folder), ranks).analysed)


def _source(random: Random, is_kineto: bool = False) -> str:
    return "kineto" if is_kineto else random.choice(tuple(SOURCES))


def planted(kind: str, seed: int) -> Trial:
    random = Random(f"{kind} {seed}")
    one = PLANTS[kind](random)
    # Functions and memory are in Kineto's files alone.
    source = _source(random, "function" in one.place or not one.has_time)
    rows = rows_of(one.job)
    saved_ns = rows.ns - rows_of(one.without).ns
    said = said_of(one.job, rows, source, one.ranks)
    if not one.has_time:  # what is said of the run without the plant as well is not the plant's
        before = said_of(one.without, rows_of(one.without), source, one.ranks)
        said = said.filter(~pl.col("id").is_in(before["id"].implode()))
    after = next((without(rule, {}, one.job) for rule in one.rules & ON_CONDITION), None)
    condition_ns = None if after is None else rows.ns - after
    command = f"python tools/judge --only {kind} --seeds {seed}"
    return Trial(kind, seed, said, rows.ns, saved_ns, one.rules, one.place, one.has_time, command, condition_ns)


def clean(seed: int) -> Iterator[FalseFinding]:
    """The false findings of a run without a plant."""
    random = Random(f"clean {seed}")
    job = drawn(random)
    rows = rows_of(job)
    command = f"python tools/judge --only clean --seeds {seed // OF_SEED} --nth {seed % OF_SEED}"
    for row in said_of(job, rows, _source(random)).rows(named=True):
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
    job = drawn(random, has_steps=True)
    names = [name for name in (*_OPS, *_KINDS) if job.ranks > 1 or name != "communicating"]
    if not job.is_training:
        names = [name for name in names if name not in ("aten::mm", "aten::_foreach_add_", "aten::gelu_backward")]
    if job.graphs:
        names = [name for name in names if not name.startswith("aten::")]
    # Half of the questions are of kinds, half of ops.
    names = [name for name in names if (name in _KINDS) == (seed % 2 == 0)] or names
    name, factor = random.choice(names), random.choice((0.0, 0.5, 0.8, 1.5))
    programs = programs_of(job)
    before = run(programs, job.depth)
    changed = programs_of(job)
    _scale(changed, name, factor)
    truth = run(changed, job.depth).ns / before.ns - 1
    with tempfile.TemporaryDirectory() as folder:
        found = loaded(job, before, _source(random), Path(folder)).analysed
        said = path.run_times(path.parts(found, "op", {name: factor}))
    command = f"python tools/judge --only what-if --seeds {seed // OF_SEED} --nth {seed % OF_SEED}"
    return WhatIf(seed, f"{name}={factor:g}", said[1] / said[0] - 1 if said else None, truth, command)


def _scale(programs: list[Program], name: str, factor: float) -> None:
    """As docs/analysis.md says of the path: an op with all that runs inside it; of kinds, the host's own code is what
    is in no call, and calls are those that do not wait."""
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
