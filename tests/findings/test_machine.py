"""The machine that simulates runs holds to its physics, and a fault in a job changes nothing but what it costs."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

import opspan
from builders.instructions import Begin, End, Host, Instruction, Kernel, Launch, Meet, Order, Program, Put, Sync, Take
from builders.job import Extra, Job, Slower
from builders.job_program import rows_of
from builders.machine import BETWEEN_NS, LATENCY_NS, RETURN_NS, run
from builders.training_files import kineto_files, nsys_files
from builders.training_plan import COMMUNICATION, COMPUTE, STREAMS, Run

JOBS = {
    "training": Job(),
    "of ranks": Job(ranks=4, steps=8, uneven=0.2),
    "a pipeline": Job(ranks=4, steps=8, pipeline=True, micro=4),
    "inference": Job(is_training=False, graphs=True),
    "with workers": Job(workers=1, load_ns=2_000_000, depth=60),
    "a loop over parameters": Job(loop_optimizer=True, host=1.0, steps=8),
    "of several devices": Job(devices=3, steps=8, micro=2, validate_every=5),
}


def launches(*took: int, ns: int = 10) -> list[Instruction]:
    return [Launch([Kernel(one, "k")], ns) for one in took]


def test_a_launch_waits_for_the_work_that_is_as_many_launches_older_as_the_queue_is_deep() -> None:
    rows = run([Program(launches(*[10_000] * 5))], depth=2)

    for call, older in zip(rows.calls[2:], rows.work, strict=False):
        assert call.end == older.start
    assert [call.end - call.start for call in rows.calls[:2]] == [10, 10]


def test_work_begins_after_its_launch_and_after_what_its_stream_did() -> None:
    rows = run([Program([*launches(10_000, 500), Host(50_000), *launches(500)])])

    first, second, third = rows.work
    assert first.start == rows.calls[0].end + LATENCY_NS
    assert second.start == first.end + BETWEEN_NS
    assert third.start == rows.calls[2].end + LATENCY_NS


def test_a_stream_waits_for_what_another_had_been_given() -> None:
    other = Launch([Kernel(100, "other", COMMUNICATION)], 10)
    rows = run([Program([*launches(10_000), Order(COMMUNICATION, COMPUTE), *launches(90_000), other])])

    first = next(work for work in rows.work if work.stream == COMPUTE)
    (other_work,) = [work for work in rows.work if work.stream == COMMUNICATION]
    assert other_work.start == first.end + BETWEEN_NS


def test_a_wait_returns_when_all_is_done_and_a_blocking_copy_when_it_is_done_itself() -> None:
    copy = Launch([Kernel(7_000, "copy", kind="memcpy", sides=("Pageable", "Device"))], 10, waits=True)
    rows = run([Program([*launches(10_000), copy, Sync()])])

    assert rows.calls[1].end == rows.work[-1].end + RETURN_NS
    assert rows.calls[2].end - rows.calls[2].start == Sync().ns


def test_a_collective_ends_for_all_when_the_last_has_come() -> None:
    group = (0, 1, 2)
    programs = [Program([Host(late), Launch([Kernel(5_000, "all", group=group)], 10)]) for late in (0, 90_000, 10)]
    rows = run(programs)

    (end,) = {work.end for work in rows.work}
    assert end == max(work.start for work in rows.work) + 5_000


def test_threads_of_a_process_with_several_devices_take_turns_and_its_devices_meet() -> None:
    rows = rows_of(JOBS["of several devices"])

    products = sorted((one.start, one.end, one.tid) for one in rows.ranges if one.name == "aten::addmm")
    assert all(one[1] <= after[0] for one, after in pairwise(products))
    assert all(one[2] != after[2] for one, after in pairwise(products))
    sums = [work for work in rows.work if "Reduce" in work.name]
    assert {work.stream // STREAMS for work in sums} == {0, 1, 2}
    assert len(sums) == 3 * len({work.end for work in sums})


def test_hosts_meet_and_threads_wait_for_each_other() -> None:
    worker: list[Instruction] = [Host(70_000), Put("batch")]
    programs = [
        Program([Begin("wait"), Take("batch"), Meet((0, 1), 500), End()], [worker]),
        Program([Begin("wait"), Meet((0, 1), 500), End()]),
    ]
    rows = run(programs)

    assert [row.end - row.start for row in rows.ranges] == [70_500, 70_500]


def test_a_program_that_never_ends_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"ranks \[0\] wait"):
        run([Program([Take("nothing")])])


@pytest.mark.parametrize("name", JOBS)
def test_a_fault_that_does_nothing_changes_nothing(name: str) -> None:
    job = JOBS[name]
    nothing = replace(job, slower=(Slower(1.0),), extras=(Extra("begin", 0), Extra("end", 0)))
    assert rows_of(nothing) == rows_of(job)


@pytest.mark.parametrize("name", JOBS)
def test_what_is_added_costs_no_more_than_it_takes_and_no_less_than_nothing(name: str) -> None:
    job = JOBS[name]
    longer = replace(job, extras=(Extra("begin", 3_000_000, steps=frozenset([4]), ranks=frozenset([0])),))
    assert 0 <= rows_of(longer).ns - rows_of(job).ns <= 3_000_000


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("write", [kineto_files, nsys_files])
def test_files_say_what_the_machine_did(name: str, write: object, tmp_path: Path) -> None:
    job = JOBS[name]
    rows = rows_of(job)
    trace = opspan.load(*write(tmp_path, Run(job, *rows[:4])))  # type: ignore[operator]

    assert not trace.issues.height
    assert trace.work.height == len(rows.work)
    assert trace.calls.height == len(rows.calls)
    took = (trace.work["end_ns"] - trace.work["start_ns"]).sum()
    assert took == sum(work.end - work.start for work in rows.work)
