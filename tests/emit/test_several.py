"""Several recordings at the same time: each has all that ran while it was on, as it was asked for, and nothing else."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import opspan
from emit.running import python

torch = pytest.importorskip("torch")


def names(recording: opspan.record) -> list[str]:
    kept = recording.trace.ranges.filter(pl.col("name").cast(pl.String).str.starts_with("work"))
    return sorted(kept["name"].to_list())


@pytest.mark.slow
@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(0, 3), max_size=24))
def test_any_order_of_beginnings_and_ends(turns: list[int]) -> None:
    on: dict[int, tuple[opspan.record, list[str]]] = {}
    over: list[tuple[opspan.record, list[str]]] = []
    for number, which in enumerate([*turns, *range(4), *range(4)]):
        if which in on:
            recording, seen = on.pop(which)
            recording.__exit__()
            over.append((recording, seen))
        elif number < len(turns):
            recording = opspan.record(record_shapes=which % 2 == 0, modules=which == 3, stacks=which == 2)
            recording.__enter__()
            on[which] = recording, []
        with opspan.annotate(f"work {number}"):
            torch.zeros(number + 1)
        for _, seen in on.values():
            seen.append(f"work {number}")
    assert not on
    for recording, seen in over:
        assert names(recording) == sorted(seen)
        zeros = recording.trace.ranges.filter(pl.col("name") == "aten::zeros")
        assert zeros.height == len(seen)
        assert (zeros["sizes"].null_count() == 0) == recording.record_shapes or not seen


def test_each_has_what_it_was_asked_for() -> None:
    model = torch.nn.Linear(2, 2)
    with opspan.record() as plain, opspan.record(record_shapes=True, memory=True, modules=True) as all_of_it:
        model(torch.ones(1, 2))
        with opspan.record(memory=True) as inner:
            model(torch.ones(1, 2))
        model(torch.ones(1, 2))
    kinds = [set(recording.trace.ranges["kind"]) for recording in (plain, all_of_it, inner)]
    assert ["module" in kind for kind in kinds] == [False, True, False]
    assert [bool(recording.trace.memory.height) for recording in (plain, all_of_it, inner)] == [False, True, True]
    taken = [recording.trace.memory.filter(pl.col("bytes") > 0)["bytes"].sum() for recording in (all_of_it, inner)]
    assert taken[0] == 3 * taken[1] > 0
    sizes = [recording.trace.ranges.filter(kind="op")["sizes"].null_count() for recording in (plain, all_of_it)]
    assert sizes[0] == plain.trace.ranges.filter(kind="op").height
    assert sizes[1] == 0


def test_schedules_pause_one_of_them() -> None:
    with (
        opspan.record() as whole,
        opspan.record(schedule=opspan.schedule(wait=1, warmup=0, active=1)) as some,
        opspan.record(schedule=opspan.schedule(wait=2, warmup=0, active=1)) as others,
    ):
        for step in range(6):
            with opspan.annotate(f"work {step}"):
                torch.zeros(2)
            some.step()
            others.step()
    assert names(whole) == [f"work {step}" for step in range(6)]
    assert names(some) == ["work 1", "work 3", "work 5"]
    assert names(others) == ["work 2", "work 5"]
    assert whole.trace.ranges.filter(pl.col("name").cast(pl.String).str.starts_with("ProfilerStep")).is_empty()


@pytest.mark.slow
def test_a_fork_takes_part_in_all_and_its_own_takes_their_place(tmp_path: Path) -> None:
    code = """
        import os, sys, torch, opspan
        folder = sys.argv[1]
        def zeros(count):
            for _ in range(count): torch.zeros(2)
        with opspan.record(folder + "/a"), opspan.record(folder + "/b"):
            zeros(1)
            pid = os.fork()
            if not pid:
                zeros(2)
                with opspan.record(folder + "/own"): zeros(4)
                zeros(8)
                os._exit(0)
            os.waitpid(pid, 0)
            with opspan.record(folder + "/inner"):
                zeros(16)
                pid2 = os.fork()
                if not pid2:
                    zeros(32)
                    os.kill(os.getpid(), 9)
                os.waitpid(pid2, 0)
        print([os.getpid(), pid, pid2])
    """
    here, first, second = eval(python(code, str(tmp_path)))

    def zeros(folder: str) -> dict[int, int]:
        ranges = opspan.load(tmp_path / folder).ranges.filter(pl.col("name") == "aten::zeros")
        return dict(ranges.group_by("pid").len().rows())

    assert zeros("a") == zeros("b") == {here: 17, first: 2, second: 32}
    assert zeros("own") == {first: 4}
    assert zeros("inner") == {here: 16, second: 32}


@pytest.mark.slow
def test_threads_that_begin_and_end_them_while_others_work() -> None:
    code = """
        import threading, torch, opspan
        stop = threading.Event()
        def work():
            while not stop.is_set(): torch.zeros(2).add(1)
        def records():
            for number in range(40):
                with opspan.record(record_shapes=number % 2 == 0, memory=number % 3 == 0) as mine:
                    with opspan.annotate("mine"):
                        torch.full((3,), 1.0)
                trace = mine.trace
                assert mine.stats.lost == 0
                assert trace.ranges.filter(name="aten::full", tid=threading.get_native_id()).height == 1
                assert not trace.issues.filter(severity="error").height, trace.issues
        workers = [threading.Thread(target=work) for _ in range(2)]
        recorders = [threading.Thread(target=records) for _ in range(4)]
        for thread in workers + recorders: thread.start()
        for thread in recorders: thread.join()
        stop.set()
        for thread in workers: thread.join()
        print("done")
    """
    assert python(code) == "done\n"
