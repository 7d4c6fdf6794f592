"""record(keep=...): the last of a run is kept, exactly, whatever happens to the process and in the program."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import opspan
from emit.rolling import COUNTING, TRAINING, check_last_of, numbers
from emit.running import forked, told

pytest.importorskip("torch")


@pytest.mark.slow
def test_so_many_bytes_of_every_thread(tmp_path: Path) -> None:
    ring, dump = tmp_path / "ring", tmp_path / "dump"
    code = """
        with opspan.record(ring, keep="16MB") as rec:
            for thread in threads(2, 320_000): thread.join()
            rec.dump(other)
        print(json.dumps([rec.trace.ranges.height, rec.stats.lost]))
    """
    kept, lost = told(COUNTING + "\n".join(line[8:] for line in code.splitlines()), ring, dump)

    size = sum(file.stat().st_size for file in ring.iterdir())
    assert 16e6 <= size <= 16e6 * 1.25
    assert lost == 0
    for folder in (ring, dump):
        trace = opspan.load(folder)
        assert trace.issues.is_empty(), trace.issues
        # After a dump the oldest segment may go, if the newest has grown enough meanwhile: the dump still has it.
        assert trace.ranges.height == kept or (folder == dump and kept < trace.ranges.height < kept * 17 / 15)
        assert trace.ranges["end_ns"].null_count() == 0
        assert sum(check_last_of(trace, thread, 319_999) for thread in range(2)) > 400_000 * 16 / 20


def steps(body: str, keep: str = "20 steps", more: str = "") -> str:
    return f"""
import json, os, signal, sys, threading, time, torch, opspan
ring, other = sys.argv[1:]
with opspan.record(ring, keep="{keep}"{more}) as rec:
    for i in range(60):
        with opspan.annotate("work", payload=i): torch.ones(2) + 1
        {body}
        rec.step()
    print(json.dumps(None))
"""


def test_so_many_steps_are_those_steps_and_no_other(tmp_path: Path) -> None:
    told(steps("pass"), tmp_path / "ring", "")

    trace = opspan.load(tmp_path / "ring")
    assert numbers(trace, "work") == list(range(40, 60))
    assert trace.ranges.filter(kind="step")["name"].to_list() == [f"ProfilerStep#{i}" for i in range(40, 61)]
    assert trace.issues.is_empty()


def test_ranges_that_last_over_several_segments_end_when_they_did(tmp_path: Path) -> None:
    code = """
import json, sys, threading, time, torch, opspan
@opspan.annotate("start")
def start(): yield
@opspan.annotate("gone")
def lost(): yield
with opspan.record(sys.argv[1], keep="20 steps") as rec:
    whole = opspan.annotate("whole"); whole.__enter__()
    begin, end, ended = (threading.Event() for _ in range(3))
    def other():
        begin.wait()
        with opspan.annotate("over"): end.wait()
        ended.set()
    threading.Thread(target=other).start()
    for i in range(60):
        if i == 45: begin.set(); time.sleep(0.05); number = start(); next(number)
        if i == 30: gone = lost(); next(gone)
        torch.ones(2)
        if i == 55:
            end.set(); ended.wait()
            opspan.mark("between")
            thread = threading.Thread(target=list, args=(number,)); thread.start(); thread.join()
            list(gone)
        rec.step()
    whole.__exit__(None, None, None)
print(json.dumps([rec.trace.issues["code"].to_list(), rec.stats.lost]))
"""
    assert told(code, tmp_path / "ring") == [[], 0]

    ranges = opspan.load(tmp_path / "ring").ranges
    (over,), (start,), (between,) = (ranges.filter(name=name).to_dicts() for name in ("over", "start", "between"))
    step_45, step_55 = (ranges.filter(name=f"ProfilerStep#{i}").to_dicts()[0] for i in (45, 55))
    assert step_45["start_ns"] < over["start_ns"] < start["start_ns"] < step_45["end_ns"]
    assert step_55["start_ns"] < over["end_ns"] <= between["start_ns"] <= start["end_ns"] < step_55["end_ns"]
    assert start["end_tid"] not in (None, start["tid"])
    # Ranges that began before the kept part are not kept.
    assert not {"whole", "gone"} & set(ranges["name"].cast(pl.String))


def test_nested_ranges_end_right_though_each_began_in_another_segment(tmp_path: Path) -> None:
    code = """
import json, sys, threading, torch, opspan
def nest(depth):
    with opspan.annotate("nested", payload=depth):
        for _ in range(3):
            with opspan.annotate("small"): pass
        meet()
        if depth < 9: nest(depth + 1)
        meet()
def meet():
    gate.wait(); gate.wait()
gate = threading.Barrier(2)
with opspan.record(sys.argv[1], keep="40 steps") as rec:
    nesting = threading.Thread(target=nest, args=(0,))
    nesting.start()
    for i in range(20): gate.wait(); rec.step(); gate.wait()
    nesting.join()
print(json.dumps(rec.trace.issues["code"].to_list()))
"""
    assert told(code, tmp_path / "ring") == []

    found = opspan.load(tmp_path / "ring").ranges.filter(name="nested").sort("start_ns")
    assert found["payload_int"].to_list() == list(range(10))
    assert found["end_ns"].to_list() == sorted(found["end_ns"], reverse=True)


@pytest.mark.slow
def test_so_much_time_is_kept_and_hardly_more(tmp_path: Path) -> None:
    code = """
import json, sys, time, torch, opspan
with opspan.record(sys.argv[1], keep="0.5s") as rec:
    until, i = time.monotonic() + 1.5, 0
    while time.monotonic() < until:
        with opspan.annotate("range", payload=i): i += 1
    now = time.monotonic_ns()
print(json.dumps([i, now]))
"""
    count, now = told(code, tmp_path / "ring")

    trace = opspan.load(tmp_path / "ring")
    found = numbers(trace, "range")
    assert found == list(range(found[0], count))
    # A busy machine may stop the program for a while, which is kept as well; also where what is kept begins, before the
    # first range there.
    starts = trace.ranges["start_ns"].sort()
    assert 0.48e9 <= now - starts.min() < 0.9e9 + starts.diff().max()


@pytest.mark.slow
def test_after_kill_9_the_last_of_every_thread_can_be_read(tmp_path: Path) -> None:
    # The ranges that each thread has finished are in a file that is mapped and shared, so they survive.
    code = """
import mmap, struct
other.write_bytes(bytes(64))
told = mmap.mmap(os.open(other, os.O_RDWR), 64)
def count(thread):
    for i in range(10**9):
        with opspan.annotate(f"range {thread}", payload=i): pass
        told[thread * 8 : thread * 8 + 8] = struct.pack("q", i)
opspan.record(ring, keep="16MB").__enter__()
for thread in range(3): threading.Thread(target=count, args=(thread,), daemon=True).start()
while sum(1 for file in ring.iterdir() if file.name.split(".")[1] > "000020") < 10: time.sleep(0.01)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = forked(COUNTING + code, tmp_path / "ring", tmp_path / "told")
    assert done.returncode == -9, done.stderr

    last = memoryview((tmp_path / "told").read_bytes()).cast("q")
    trace = opspan.load(tmp_path / "ring")
    assert set(trace.issues["code"]) <= {"not_closed", "open_ranges"}
    for thread in range(3):
        found = numbers(trace, f"range {thread}")
        assert found == list(range(found[0], found[-1] + 1))
        assert found[-1] - last[thread] in (0, 1)
    assert trace.ranges.height > 200_000


@pytest.mark.slow
def test_losses_are_the_same_to_the_bit_and_workers_leave_no_files(tmp_path: Path) -> None:
    code = """
before = losses()
with opspan.record(
    sys.argv[1], True, modules=True, stacks=True, memory=True, keep="5 steps",
    dump_to=sys.argv[2], dump_on=("slow step", "exit"), slow=1.01,
) as rec:
    meanwhile = losses(rec.step)
print(json.dumps([before == meanwhile == losses(), len(before), rec.trace.processes.height, len(rec.dumps)]))
"""
    same, steps_done, processes, dumps = told(TRAINING + code, tmp_path / "ring", tmp_path / "dumps")
    assert same
    assert steps_done == 16
    assert processes == 1
    assert dumps >= 1

    trace = opspan.load(tmp_path / "ring")
    assert len({file.name.split(".")[0] for file in (tmp_path / "ring").iterdir()}) == 1
    assert trace.ranges.filter(kind="step")["name"].to_list() == [f"ProfilerStep#{i}" for i in range(11, 17)]
    assert trace.ranges["stack"].null_count() < trace.ranges.height
    assert trace.ranges["sizes"].null_count() < trace.ranges.height
    assert trace.memory.height > 0
