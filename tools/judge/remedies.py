"""What a rule's cause costs in a job: it is run again with all of that cause taken out, more of it rather than less.

    ns = without(rule, row, job)     how long the run takes then; None: nobody has said here what this rule's cause is
    ON_CONDITION                     rules whose time at stake is that of a condition (Rule.condition): what they state
                                     is compared with the run in which it holds, as no trace says what would be instead

A new rule needs a line here, or its findings on runs without a fault cannot be judged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from builders.instructions import Host, Instruction, Kernel, Launch, Meet, Order, Overhead, Program, Sync
from builders.job import Job
from builders.job_program import CAST, rows_of
from builders.training_plan import MULTIPROCESSORS

Row = Mapping[str, Any]  # of the frame of findings
Change = Callable[[list[Program]], None]


def without(rule: str, row: Row, job: Job) -> int | None:
    if rule in _OF_JOBS:
        return rows_of(_OF_JOBS[rule](job, row)).ns
    if rule in _OF_PROGRAMS:
        return rows_of(job, _OF_PROGRAMS[rule]).ns
    return None


def _threads(programs: list[Program]) -> Iterator[list[Instruction]]:
    for program in programs:
        yield program.main
        yield from program.workers


def _kernels(programs: list[Program]) -> Iterator[Kernel]:
    for thread in _threads(programs):
        for one in thread:
            if isinstance(one, Launch):
                yield from one.work


def _dropped(is_gone: Callable[[Instruction], bool]) -> Change:
    def change(programs: list[Program]) -> None:
        for thread in _threads(programs):
            thread[:] = [one for one in thread if not is_gone(one)]

    return change


def _tagged(*tags: str) -> Change:
    return _dropped(lambda one: getattr(one, "tag", None) in tags)


def _no_launching(programs: list[Program]) -> None:
    """The host takes no time, but where it loads or compiles."""
    for thread in _threads(programs):
        for one in thread:
            if (isinstance(one, Host) and one.tag not in ("load", "compile")) or isinstance(one, Launch):
                one.ns = 0


def _no_idle_time(programs: list[Program]) -> None:
    _no_launching(programs)
    _dropped(lambda one: isinstance(one, Order))(programs)
    _tagged("malloc", "module")(programs)


def _no_blocking(programs: list[Program]) -> None:
    for thread in _threads(programs):
        for one in thread:
            if isinstance(one, Launch):
                one.waits = False


def _scaled(factor: Callable[[Kernel], float]) -> Change:
    def change(programs: list[Program]) -> None:
        for kernel in _kernels(programs):
            kernel.ns = round(kernel.ns * factor(kernel))

    return change


def _no_meeting(programs: list[Program]) -> None:
    for kernel in _kernels(programs):
        if kernel.group:
            kernel.ns, kernel.group = 0, ()


def _is_product(kernel: Kernel) -> bool:
    return "gemm" in kernel.name


def _few_blocks(kernel: Kernel) -> float:
    is_few = kernel.kind == "kernel" and not kernel.group and kernel.blocks < MULTIPROCESSORS
    return kernel.blocks / MULTIPROCESSORS if is_few else 1.0


def _as_usual(job: Job, row: Row) -> Job:
    numbers = [int(found[1]) for step in row["steps"] if (found := re.search(r"#(\d+)$", step))]
    return replace(job, plain=frozenset(numbers))


def _alike(job: Job, row: Row) -> Job:
    return replace(job, is_same=True)


def _a_process_for_each_device(job: Job, row: Row) -> Job:
    return replace(job, ranks=job.devices, devices=1, batch_ns=job.batch_ns // job.devices)


_NO_TIME: Change = _scaled(lambda kernel: 0.0 if kernel.group else 1.0)
_TWICE_AS_QUICK: Change = _scaled(lambda kernel: 0.5 if _is_product(kernel) else 1.0)
ON_CONDITION = frozenset(("tf32-off", "no-tensor-cores", "odd-sizes"))
_OF_JOBS: dict[str, Callable[[Job, Row], Job]] = {
    "step-outliers": _as_usual,
    "straggler": _alike,
    "uneven-ranks": _alike,
    "data-parallel": _a_process_for_each_device,
}
_OF_PROGRAMS: dict[str, Change] = {
    "data-loading": _tagged("load"),
    "item": _tagged("item"),
    "blocking-copies": _no_blocking,
    "synchronise": _dropped(lambda one: isinstance(one, Sync) and one.tag in ("synchronise", "answer")),
    "allocation": _tagged("malloc"),
    "module-loading": _tagged("module"),
    "launch-bound": _no_launching,
    "late-host": _no_launching,
    "idle": _no_idle_time,  # the host, another stream, or calls into the driver: a finding is of one of these
    "queued": _dropped(lambda one: isinstance(one, Order)),
    "few-blocks": _scaled(_few_blocks),
    "tf32-off": _TWICE_AS_QUICK,
    "no-tensor-cores": _TWICE_AS_QUICK,
    "odd-sizes": _TWICE_AS_QUICK,
    "exposed-communication": _NO_TIME,
    "communication-or-waiting": _no_meeting,
    "small-collectives": _scaled(lambda kernel: 0.0 if kernel.group and kernel.elements < 1 << 18 else 1.0),
    "gloo-on-devices": _dropped(lambda one: isinstance(one, Meet)),
    "there-and-back": _tagged("trip", "checkpoint", "answer"),
    "cpu-fallback": _tagged("fallback"),
    "recompilation": _tagged("compile"),
    "graph-breaks": _tagged("lookup"),
    "profiler-overhead": _dropped(lambda one: isinstance(one, Overhead)),
    "exposed-copies": _scaled(lambda kernel: 0.0 if kernel.kind == "memcpy" else 1.0),
    "casts": _scaled(lambda kernel: 0.0 if kernel.name == CAST else 1.0),
    "recompute": _scaled(lambda kernel: 0.0 if kernel.tag == "recompute" else 1.0),
    # Nothing of the kind is in a run without a fault: what is said of it is false.
    "optimizer-loop": lambda programs: None,
    "heavy-backward": lambda programs: None,
    "slower-kernels": lambda programs: None,
    "small-kernels": lambda programs: None,
}
