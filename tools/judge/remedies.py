"""Computes what the cause of a rule costs in a job, by simulating the job again without that cause.

    ns = without(rule, row, job)     how long the run takes without the cause; None if the rule is not in this file
    ON_CONDITION                     rules whose time at stake depends on a condition (Rule.condition), because no trace
                                     shows the alternative; they are compared with a run that meets the condition

If it is unclear what belongs to the cause, too much is removed rather than too little. A new rule must be added to this
file. Otherwise all its findings about runs without a fault count as false.
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

Row = Mapping[str, Any]  # a row of the data frame of findings
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


def _drop(is_gone: Callable[[Instruction], bool]) -> Change:
    def change(programs: list[Program]) -> None:
        for thread in _threads(programs):
            thread[:] = [one for one in thread if not is_gone(one)]

    return change


def _drop_tagged(*tags: str) -> Change:
    return _drop(lambda one: getattr(one, "tag", None) in tags)


def _remove_launching(programs: list[Program]) -> None:
    """Sets all times on the host to 0, except for loading and compiling."""
    for thread in _threads(programs):
        for one in thread:
            if (isinstance(one, Host) and one.tag not in ("load", "compile")) or isinstance(one, Launch):
                one.ns = 0


def _remove_idle_time(programs: list[Program]) -> None:
    _remove_launching(programs)
    _drop(lambda one: isinstance(one, Order))(programs)
    _drop_tagged("malloc", "module")(programs)


def _remove_blocking(programs: list[Program]) -> None:
    for thread in _threads(programs):
        for one in thread:
            if isinstance(one, Launch):
                one.waits = False


def _scale_kernels(factor: Callable[[Kernel], float]) -> Change:
    def change(programs: list[Program]) -> None:
        for kernel in _kernels(programs):
            kernel.ns = round(kernel.ns * factor(kernel))

    return change


def _remove_meeting(programs: list[Program]) -> None:
    for kernel in _kernels(programs):
        if kernel.group:
            kernel.ns, kernel.group = 0, ()


def _is_product(kernel: Kernel) -> bool:
    return "gemm" in kernel.name


def _few_blocks(kernel: Kernel) -> float:
    is_few = kernel.kind == "kernel" and not kernel.group and kernel.blocks < MULTIPROCESSORS
    return kernel.blocks / MULTIPROCESSORS if is_few else 1.0


def _without_outliers(job: Job, row: Row) -> Job:
    numbers = [int(match[1]) for step in row["steps"] if (match := re.search(r"#(\d+)$", step))]
    return replace(job, plain=frozenset(numbers))


def _with_equal_ranks(job: Job, row: Row) -> Job:
    return replace(job, is_same=True)


def _a_process_for_each_device(job: Job, row: Row) -> Job:
    return replace(job, ranks=job.devices, devices=1, batch_ns=job.batch_ns // job.devices)


_NO_TIME: Change = _scale_kernels(lambda kernel: 0.0 if kernel.group else 1.0)
_TWICE_AS_QUICK: Change = _scale_kernels(lambda kernel: 0.5 if _is_product(kernel) else 1.0)
ON_CONDITION = frozenset(("tf32-off", "no-tensor-cores", "odd-sizes"))
_OF_JOBS: dict[str, Callable[[Job, Row], Job]] = {
    "step-outliers": _without_outliers,
    "straggler": _with_equal_ranks,
    "uneven-ranks": _with_equal_ranks,
    "data-parallel": _a_process_for_each_device,
}
_OF_PROGRAMS: dict[str, Change] = {
    "data-loading": _drop_tagged("load"),
    "item": _drop_tagged("item"),
    "blocking-copies": _remove_blocking,
    "synchronise": _drop(lambda one: isinstance(one, Sync) and one.tag in ("synchronise", "answer")),
    "allocation": _drop_tagged("malloc"),
    "module-loading": _drop_tagged("module"),
    "launch-bound": _remove_launching,
    "late-host": _remove_launching,
    "idle": _remove_idle_time,  # the cause can be the host, another stream, or calls into the driver
    "queued": _drop(lambda one: isinstance(one, Order)),
    "few-blocks": _scale_kernels(_few_blocks),
    "tf32-off": _TWICE_AS_QUICK,
    "no-tensor-cores": _TWICE_AS_QUICK,
    "odd-sizes": _TWICE_AS_QUICK,
    "exposed-communication": _NO_TIME,
    "communication-or-waiting": _remove_meeting,
    "small-collectives": _scale_kernels(lambda kernel: 0.0 if kernel.group and kernel.elements < 1 << 18 else 1.0),
    "gloo-on-devices": _drop(lambda one: isinstance(one, Meet)),
    "there-and-back": _drop_tagged("trip", "checkpoint", "answer"),
    "cpu-fallback": _drop_tagged("fallback"),
    "recompilation": _drop_tagged("compile"),
    "graph-breaks": _drop_tagged("lookup"),
    "profiler-overhead": _drop(lambda one: isinstance(one, Overhead)),
    "exposed-copies": _scale_kernels(lambda kernel: 0.0 if kernel.kind == "memcpy" else 1.0),
    "casts": _scale_kernels(lambda kernel: 0.0 if kernel.name == CAST else 1.0),
    "recompute": _scale_kernels(lambda kernel: 0.0 if kernel.tag == "recompute" else 1.0),
    # A run without a fault never has these causes, so a finding about them is false.
    "optimizer-loop": lambda programs: None,
    "heavy-backward": lambda programs: None,
    "slower-kernels": lambda programs: None,
    "small-kernels": lambda programs: None,
}
