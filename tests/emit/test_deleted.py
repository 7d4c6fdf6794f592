"""A recording whose folder is deleted meanwhile, and what the process keeps of a recording that is over."""

from __future__ import annotations

from pathlib import Path

import pytest

from emit.running import python

pytest.importorskip("torch")

HEAD = """
import os, pathlib, shutil, sys, threading, warnings, torch, opspan
folder = pathlib.Path(sys.argv[1])
x = torch.ones(2)

def work(times=5000):
    for _ in range(times):
        x + x

def held():
    \"\"\"Descriptors and mappings of captures.\"\"\"
    links = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:
            pass
    return [text for text in (*links, *open("/proc/self/maps")) if ".opspan" in text]
"""


@pytest.mark.parametrize(
    "what", ["shutil.rmtree(folder)", "rec.file.unlink()", "shutil.rmtree(folder); folder.mkdir()"]
)
def test_what_was_deleted_meanwhile_is_lost_and_said_once(tmp_path: Path, what: str) -> None:
    python(
        HEAD
        + f"""
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    with opspan.record(folder) as rec:
        work(10)
        {what}
        work()
warning, = [str(one.message) for one in said]
assert f"{{folder}} was deleted meanwhile" in warning and "events are lost" in warning, warning
assert rec.stats.lost >= 5010, rec.stats
try:
    rec.trace
except opspan.errors.NotReadable as error:
    assert "was deleted" in str(error), error
else:
    raise AssertionError("it was read")
assert not held()
with opspan.record(folder) as rec:
    work(10)
assert rec.trace.ranges.height == 10 and rec.stats.lost == 0
""",
        str(tmp_path / "capture"),
    )


def test_a_rolling_recording_goes_on_where_the_folder_is_made_again(tmp_path: Path) -> None:
    python(
        HEAD
        + """
import time
with opspan.record(folder, keep="2 steps") as rec:
    for _ in range(3):
        work(); rec.step()
    shutil.rmtree(folder)
    work(40000)
    folder.mkdir()
    time.sleep(0.2)
    for _ in range(3):
        work(40000); rec.step()
assert rec.stats.lost > 0
assert rec.trace.ranges.height > 10000
assert not held()
""",
        str(tmp_path / "capture"),
    )


def test_nothing_of_a_recording_is_held_once_it_is_over(tmp_path: Path) -> None:
    python(
        HEAD
        + """
begin, done = threading.Barrier(4), threading.Event()
def beside():
    work()
    begin.wait()
    done.wait()
    work(10)

with opspan.record(folder / "one") as one, opspan.record(folder / "two") as two, \\
     opspan.record(folder / "rolling", keep="16MB") as rolling:
    threads = [threading.Thread(target=beside) for _ in range(3)]
    for thread in threads:
        thread.start()
    work()
    begin.wait()
    assert len(held()) >= 12
assert not held(), held()
done.set()
for thread in threads:
    thread.join()
assert not held()
for rec in (one, two):
    assert rec.trace.ranges.height == 20000, rec.trace
with opspan.record(folder / "three") as rec:
    work(10)
assert rec.trace.ranges.height == 10
""",
        str(tmp_path),
    )


def test_a_fork_keeps_nothing_of_its_parents_recording(tmp_path: Path) -> None:
    python(
        HEAD
        + """
rec = opspan.record(folder)
rec.__enter__()
work()
(mine, told), (go, end) = os.pipe(), os.pipe()
pid = os.fork()
if pid == 0:
    work(10)
    own = [line for line in held() if str(os.getpid()) not in line]
    os.write(told, b"1")
    os.read(go, 1)
    work(10)
    os._exit(len(own) + 100 * len(held()))
os.read(mine, 1)
rec.__exit__(None, None, None)
os.write(end, b"1")
assert os.waitpid(pid, 0)[1] == 0
""",
        str(tmp_path),
    )
