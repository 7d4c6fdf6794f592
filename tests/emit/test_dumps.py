"""Dumps of a rolling recording: whole or not at all, and nothing else is harmed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import opspan
from emit.rolling import COUNTING, TRAINING, check_last_of, numbers
from emit.running import forked, python, run, told
from opspan.emit import dumps

pytest.importorskip("torch")


@pytest.mark.slow
def test_two_dumps_at_once_while_two_threads_record(tmp_path: Path) -> None:
    code = """
with opspan.record(ring, keep="16MB") as rec:
    started = threads(2, 200_000)
    time.sleep(0.4)
    dumping = [threading.Thread(target=rec.dump, args=(f"{other}{i}",)) for i in range(2)]
    for thread in dumping + started: thread.start() if not thread.ident else None
    for thread in dumping + started: thread.join()
print(json.dumps(sorted(path.name for path in ring.parent.iterdir())))
"""
    assert told(COUNTING + code, tmp_path / "ring", tmp_path / "dump") == ["dump0", "dump1", "ring"]

    for folder in ("dump0", "dump1"):
        trace = opspan.load(tmp_path / folder)
        assert set(trace.issues["code"]) <= {"open_ranges"}
        for thread in range(2):
            check_last_of(trace, thread)
    for thread in range(2):
        check_last_of(opspan.load(tmp_path / "ring"), thread, 199_999)


def test_a_dump_when_something_happens(tmp_path: Path) -> None:
    code = """
import json, os, signal, sys, torch, opspan
heard = []
signal.signal(signal.SIGUSR2, lambda *_: heard.append("program"))
try:
    with opspan.record(keep="20 steps", dump_to=sys.argv[1], dump_on=("exception", "signal", "exit")) as rec:
        for i in range(60):
            with opspan.annotate("work", payload=i): torch.ones(2)
            if i == 50: os.kill(os.getpid(), signal.SIGUSR2)
            rec.step()
        raise KeyError("the one of the program")
except KeyError as error:
    heard.append(str(error))
signal.raise_signal(signal.SIGUSR2)
with opspan.record(keep="20 steps", dump_to=sys.argv[1], dump_on="exit") as second:
    with opspan.annotate("second"): pass
print(json.dumps([heard, [str(path) for path in rec.dumps + second.dumps]]))
"""
    heard, dumps = told(code, tmp_path / "dumps")

    assert heard == ["program", "'the one of the program'", "program"]
    assert [Path(path).name.split("-")[1] for path in dumps] == ["signal", "exception", "exit"]
    of_signal, of_exception, of_exit = map(opspan.load, dumps)
    assert numbers(of_signal, "work") == list(range(30, 51))
    assert numbers(of_exception, "work") == list(range(40, 60))
    assert of_exit.ranges["name"].to_list()[0] != "work"
    assert of_exception.issues.is_empty()


def test_what_cannot_be_combined_is_said(tmp_path: Path) -> None:
    code = """
import opspan, torch
def said(call):
    try: call()
    except Exception as error: print(type(error).__name__, error)
said(lambda: opspan.record(keep="1s", device=True))
said(lambda: opspan.record(dump_to="there"))
said(lambda: opspan.record().dump("there"))
said(lambda: opspan.record(keep="1s").dump("there"))
"""
    lines = python(code, cwd=tmp_path).splitlines()
    assert lines == [
        "UsageError keep= and device=True: torch's collection of devices cannot roll; leave one of them out",
        "UsageError dump_to= is of a recording that keeps the last alone: expected keep= as well",
        "UsageError dump() is of a recording that keeps the last alone: record(keep='30s')",
        "CaptureError there is nothing to dump: nothing was recorded, or the temporary folder is gone",
    ]
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "opspan-test", str(folder)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small disk can be had by root alone, and not everywhere")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.slow
def test_a_full_disk_is_a_sentence_and_harms_neither_the_ring_nor_the_program(tmp_path: Path, small_disk: Path) -> None:
    code = """
import warnings
before = losses()
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    with opspan.record(sys.argv[1], keep="30s", dump_to=sys.argv[2] + "/dumps", dump_on="exit") as rec:
        for i in range(300_000):
            with opspan.annotate("fill", payload=i): pass
        meanwhile = losses()
        try: rec.dump(sys.argv[2] + "/dump")
        except opspan.errors.CaptureError as error: print(str(error))
print(json.dumps([before == meanwhile, [str(warning.message) for warning in said], rec.stats.lost]))
"""
    done = forked(TRAINING + code, tmp_path / "ring", small_disk)
    assert done.returncode == 0, done.stderr
    sentence, last = done.stdout.splitlines()

    assert sentence.startswith(f"no dump was written to {small_disk}: it takes ")
    assert last.startswith('[true, ["exit: no dump was written to ')
    assert last.endswith(", 0]")
    assert [path.name for path in small_disk.rglob("*")] == ["dumps"]
    assert numbers(opspan.load(tmp_path / "ring"), "fill") == list(range(300_000))


def test_a_dump_that_ends_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    code = """
import resource
with opspan.record(ring, keep="16MB") as rec:
    count(0, 20_000)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try: rec.dump(other)
    except opspan.errors.CaptureError as error: print(str(error))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    count(0, 10)
    rec.dump(other)
print(json.dumps([path.name for path in ring.parent.iterdir() if path != ring]))
"""
    done = forked(COUNTING + code, tmp_path / "ring", tmp_path / "dump")
    assert done.returncode == 0, done.stderr
    sentence, last = done.stdout.splitlines()

    assert sentence.startswith(f"no dump was written to {tmp_path / 'dump'} ([Errno 27] File too large")
    assert sentence.endswith("the recording goes on")
    assert last == '["dump"]'
    assert len(numbers(opspan.load(tmp_path / "dump"), "range 0")) == 20_010


@pytest.mark.slow
def test_a_ring_on_a_full_disk_keeps_less_and_goes_on(small_disk: Path) -> None:
    code = """
with opspan.record(ring, keep="16MB") as rec:
    count(0, 320_000)
print(json.dumps(rec.stats.lost))
"""
    done = forked(COUNTING + code, small_disk / "ring", "")
    assert done.returncode == 0, done.stderr

    assert done.stderr.count("cannot write more to ") == 1
    assert "less is kept until that is possible" in done.stderr
    lost = int(done.stdout)
    found = numbers(opspan.load(small_disk / "ring"), "range 0")
    assert found[-1] == 319_999
    assert len(found) > 50_000
    assert len(found) + lost >= found[-1] - found[0] + 1
    assert 0 < lost < 100


def test_a_handler_that_is_not_ours_any_more_stays(tmp_path: Path) -> None:
    code = """
import signal, sys, torch, opspan
later = lambda *_: None
with opspan.record(keep="1s", dump_to=sys.argv[1], dump_on=("signal",)) as rec:
    signal.signal(signal.SIGUSR2, later)
print(signal.getsignal(signal.SIGUSR2) is later, rec.dumps)
"""
    assert python(code, str(tmp_path / "dumps")) == "True []\n"
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_ends_without_leaving_it_dumps_too(tmp_path: Path) -> None:
    code = """
import sys, torch, opspan
opspan.record(keep="1s", dump_to=sys.argv[1], dump_on="exit").__enter__()
with opspan.annotate("seen"): pass
"""
    done = run([sys.executable, "-c", code, str(tmp_path / "dumps")])
    assert done.returncode == 0, done.stderr
    (dump,) = (tmp_path / "dumps").iterdir()
    assert numbers(opspan.load(dump), "seen") == [None]


def test_a_copy_is_as_long_as_the_file_was_when_it_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, send, asked = tmp_path / "1-1.1.opspan", os.sendfile, []
    file.write_bytes(bytes(range(100)) * 1000)

    def sends_some(target: int, source: int, offset: int | None, count: int) -> int:
        with file.open("ab") as growing:
            growing.write(b"a chunk that is made meanwhile")
        asked.append(count)
        return send(target, source, offset, min(count, 30_000))

    monkeypatch.setattr(os, "sendfile", sends_some)
    dumps.write([file], tmp_path / "dump")

    copy = (tmp_path / "dump" / file.name).read_bytes()
    assert asked == [100_000, 70_000, 40_000, 10_000]
    assert len(copy) == 100_000
    assert copy[100:] == (bytes(range(100)) * 1000)[100:]  # the header says when it was closed
