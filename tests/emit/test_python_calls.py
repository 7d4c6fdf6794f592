"""Calls of Python functions: against a twin that is Python's own sys.setprofile, and against torch.profiler."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import polars as pl
import pytest
import torch

import opspan
from emit.python_programs import by_hand, classes, fails, loops, recurse, yields_early
from emit.python_tracks import below, named
from opspan import libraries


def ranges_across() -> None:
    """Begins a range in a generator, and ends it in another call of the generator."""

    @contextlib.contextmanager
    def region() -> Iterator[None]:
        with opspan.annotate("region"):
            yield

    with region():
        torch.ones(2).add(1)


PROGRAMS: list[Callable[[], None]] = [loops, fails, yields_early, ranges_across, classes]
OURS = str(Path(opspan.__file__).parent / "emit")


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_every_call_that_python_tells_of(program: Callable[[], None]) -> None:
    program()
    with opspan.record(python=True) as recording:
        program()
    frame = recording.trace.functions
    assert below(frame, program.__name__) == by_hand(program, OURS)
    assert recording.trace.issues.is_empty()
    assert frame["end_ns"].null_count() == 0


def test_calls_lie_in_their_parents_and_ops_in_calls() -> None:
    with opspan.record(python=True) as recording:
        ranges_across()
        torch.ones(2).relu()
    trace = recording.trace
    around = trace.functions.select(parent_id="id", begin="start_ns", end="end_ns", thread="tid")
    pairs = trace.functions.join(around, on="parent_id")
    assert pairs.height > 10
    assert pairs.filter(
        (pl.col("start_ns") < pl.col("begin"))
        | (pl.col("end_ns") > pl.col("end"))
        | (pl.col("tid") != pl.col("thread"))
    ).is_empty()
    add = next(event for event in recording.events() if event.name == "aten::add")
    assert any(line.endswith("): ranges_across") for line in add.stack)


def test_ranges_of_torch_overlap_no_calls() -> None:
    """record_function begins a range in one function, and ends it in another. Neither is recorded."""
    optimizer = torch.optim.SGD(torch.nn.Linear(2, 2).parameters())

    def work() -> None:
        with torch.autograd.profiler.record_function("own"):
            recurse(1)
        optimizer.step()

    work()
    with opspan.record(python=True) as recording:
        work()
    trace = recording.trace
    ranges = trace.ranges.filter(pl.col("kind") == "user").select("name", begin="start_ns", end="end_ns")
    assert ranges["name"].cast(pl.String).to_list() == ["own", "Optimizer.step#SGD.step"]
    pairs = trace.functions.select("start_ns", "end_ns").join(ranges, how="cross")
    assert pairs.filter(
        pl.col("start_ns").is_between("begin", "end", closed="none") & (pl.col("end_ns") > pl.col("end"))
        | pl.col("end_ns").is_between("begin", "end", closed="none") & (pl.col("start_ns") < pl.col("begin"))
    ).is_empty()
    names = [call[1] for call in named(trace.functions)]
    assert names.count("recurse") == 2, "what runs in the range"
    assert not {"__enter__", "_record_function_enter_new"} & set(names)


def test_threads_that_run_and_threads_that_start() -> None:
    began, stop = threading.Event(), threading.Event()

    def spin() -> None:
        began.set()
        while not stop.wait(0.001):
            recurse(1)

    def short() -> None:
        recurse(2)

    running = threading.Thread(target=spin)
    running.start()
    began.wait()
    try:
        with opspan.record(python=True) as recording:
            fresh = threading.Thread(target=short)
            fresh.start()
            fresh.join()
            time.sleep(0.05)
            native_ids = {"spin": running.native_id, "short": fresh.native_id}
    finally:
        stop.set()
        running.join()
    frame = recording.trace.functions
    for name, tid in native_ids.items():
        own = frame.filter(pl.col("tid") == tid)
        assert name in [call[1] for call in named(own)]
    start, new = (frame.filter(pl.col("tid") == native_ids[name])["start_ns"].min() for name in ("spin", "short"))
    assert frame["start_ns"].min() == start, "the calls that were open before"
    assert new > start, "the thread did not run before"
    assert sys.getprofile() is None
    assert threading.getprofile() is None


def test_pauses_have_no_calls() -> None:
    def active(number: int) -> opspan.ProfilerAction:
        return opspan.ProfilerAction.RECORD if number in (1, 3) else opspan.ProfilerAction.NONE

    def work(number: int) -> None:
        recurse(number)

    with opspan.record(python=True, schedule=active) as recording:
        for number in range(5):
            work(number)
            recording.step()
    frame = recording.trace.functions
    names = [call[1] for call in named(frame)]
    assert names.count("work") == 2
    assert names.count("recurse") == 2 + 4
    tests = frame.filter(pl.col("name").cast(pl.String).str.ends_with("test_pauses_have_no_calls"))
    assert tests.height == 2, "the caller has a call for each active step"
    assert tests["end_ns"][0] < tests["start_ns"][1]


def deepest() -> int:
    def deeper(depth: int) -> int:
        nonlocal reached
        reached = depth
        return deeper(depth + 1)

    reached = 0
    with contextlib.suppress(RecursionError):
        deeper(1)
    return reached


def test_the_recursion_limit_stays_where_it_is() -> None:
    expected = [deepest() for _ in range(2)]
    with opspan.record(python=True) as recording:
        found = [deepest() for _ in range(2)]
    # A `with` of a recording holds no frame of Python's, so both are equally deep.
    assert found == expected
    assert [call[1] for call in named(recording.trace.functions)].count("deeper") in range(
        2 * expected[0], 2 * expected[0] + 3
    )


def test_two_recordings_at_once() -> None:
    with opspan.record(python=True) as outer:
        recurse(1)
        with opspan.record(python=True) as inner:
            recurse(2)
        recurse(3)
    for recording, count in ((outer, 2 + 3 + 4), (inner, 3)):
        assert [call[1] for call in named(recording.trace.functions)].count("recurse") == count


@pytest.mark.parametrize("install", [sys.setprofile, threading.setprofile])
def test_another_profiler_keeps_its_slot(install: Callable[[Any], None]) -> None:
    seen = []

    def theirs(frame: FrameType, event: str, _: Any) -> None:
        seen.append((event, frame.f_code.co_name))

    install(theirs)
    try:
        with pytest.warns(UserWarning, match="theirs\\) has Python's slot"), opspan.record(python=True) as recording:
            recurse(1)
        assert (sys if install is sys.setprofile else threading).getprofile() is theirs
    finally:
        install(None)
    assert recording.trace.functions.is_empty()
    assert recording.trace.ranges.is_empty()
    assert (("call", "recurse") in seen) == (install is sys.setprofile)


def test_a_profiler_that_takes_the_slot_meanwhile() -> None:
    seen = []
    recording = opspan.record(python=True).__enter__()
    recurse(1)
    sys.setprofile(lambda frame, *_: seen.append(frame.f_code.co_name))
    recurse(2)
    classes()
    with pytest.warns(UserWarning, match="another profiler took"):
        recording.__exit__()
    sys.setprofile(None)
    assert seen.count("recurse") >= 3
    assert [call[1] for call in named(recording.trace.functions)].count("recurse") == 2


def test_a_profiler_that_gives_the_slot_back() -> None:
    with opspan.record(python=True) as recording:
        recurse(1)
        before = sys.getprofile()
        sys.setprofile(lambda *_: None)
        classes()
        sys.setprofile(before)
        recurse(2)
    frame = recording.trace.functions
    assert [call[1] for call in named(frame)].count("recurse") == 2 + 3
    me = [call for call in named(frame) if call[1] == "test_a_profiler_that_gives_the_slot_back"]
    roots = [call for call in named(frame) if call[1] == "recurse" and call[2] == me[0][0]]
    assert len(roots) == 2, "both have the same caller"


def test_a_forked_process(tmp_path: Path) -> None:
    with opspan.record(tmp_path / "run", python=True) as recording:
        recurse(1)
        pid = os.fork()
        if pid == 0:
            recurse(2)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        recurse(3)
    frame = recording.trace.functions
    for process, count in ((os.getpid(), 2 + 4), (pid, 3)):
        own = frame.filter(pl.col("pid") == process)
        assert [call[1] for call in named(own)].count("recurse") == count
    parent_began, child_began = (
        frame.filter(pl.col("pid") == process)["start_ns"].min() for process in (os.getpid(), pid)
    )
    assert child_began > parent_began, "the process did not exist before"


@pytest.mark.parametrize(
    "ending", ["pass", "sys.exit(3)", "os._exit(4)", "1 / 0", "threading.Thread(target=spin).start()"]
)
def test_programs_that_end_meanwhile(tmp_path: Path, ending: str) -> None:
    program = (
        "import os, sys, threading, time, opspan\n"
        "def spin():\n    for _ in range(100): time.sleep(0.001)\n"
        f"def end(): {ending}\n"
        f"recording = opspan.record({str(tmp_path / 'run')!r}, python={{}}).__enter__()\n"
        "end()\n"
    )
    codes = [
        subprocess.run([sys.executable, "-c", program.format(on)], capture_output=True).returncode
        for on in ("False, add=True", "True, add=True")
    ]
    assert codes[0] == codes[1]
    names = [call[1] for call in named(opspan.load(tmp_path / "run").functions)]
    assert "end" in names


def other_pythons() -> list[str]:
    versions = Path("~/.pyenv/versions").expanduser()
    found = [shutil.which(f"python3.{minor}", path=None) for minor in (10, 12, 13, 14)]
    found += [str(path) for minor in (10, 12, 13, 14) for path in versions.glob(f"3.{minor}.*/bin/python3")]
    return [path for path in found if path is not None and "shims" not in path]


ELSEWHERE = """
import json
from opspan.emit import python_calls, sinks
from emit.python_programs import all_of_them, by_hand

native = sinks.require()
native.start(2, folder={folder!r})
native.turn(2, True)
python_calls.start(native, 2)
all_of_them()
python_calls.stop(native, 2)
native.stop(2)
print(json.dumps(by_hand(all_of_them, "?")))
"""


@pytest.mark.parametrize("path", other_pythons() or [""], ids=lambda path: path or "none")
def test_other_releases_of_python(tmp_path: Path, path: str) -> None:
    if not path:
        pytest.skip("no other Python is here, of 3.10 and 3.12 to 3.14")
    folder = tmp_path / "run"
    folder.mkdir()
    paths = [str(Path(opspan.__file__).parents[1]), str(Path(__file__).parents[1])]
    done = subprocess.run(
        [path, "-c", ELSEWHERE.format(folder=os.fsencode(folder))],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "OPSPAN_LIB_DIR": str(libraries.sinks().parent),
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
    )
    assert done.returncode == 0, done.stderr
    calls = below(opspan.load(folder).functions, "all_of_them")
    assert calls == [tuple(call) for call in json.loads(done.stdout)]
