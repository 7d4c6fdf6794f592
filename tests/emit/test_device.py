"""Torch's own collection beside a recording. It is for devices; here it collects on the CPU, where none is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import opspan
from emit.running import forked, python
from emit.running import told as told_by

torch = pytest.importorskip("torch")

HEAD = """
import torch, glob, json, os, signal, sys, threading, warnings
from torch.profiler import ProfilerActivity
import opspan
from opspan.emit import device
device.activities = lambda: {ProfilerActivity.CPU}
a = torch.ones(16, 16, requires_grad=True)
def train(): (a @ a).sum().backward()
train()
def said(kind=UserWarning):
    return [str(each.message) for each in caught if issubclass(each.category, kind)]
def files(folder): return sorted(os.path.basename(path).split(".", 1)[1] for path in glob.glob(folder + "/*"))
"""
CAUGHT = "caught = warnings.catch_warnings(record=True).__enter__()\nwarnings.simplefilter('always')\n"


def told(tmp_path: Path, code: str) -> Any:
    return told_by(HEAD + CAUGHT + code, tmp_path / "recorded", cwd=tmp_path)


@pytest.mark.slow
def test_its_file_lies_beside_the_capture_on_a_clock_that_is_known(tmp_path: Path) -> None:
    threads = told(
        tmp_path,
        """
other = threading.Thread(target=lambda: [torch.zeros(2) for _ in range(3)] and names.append(threading.get_native_id()))
names = []
with opspan.record(sys.argv[1], device=True) as rec:
    for _ in range(30): train()
    other.start(); other.join()
print(json.dumps([names, said(), os.listdir(sys.argv[1])]))
""",
    )
    (tid,), warned, listed = threads
    assert not warned
    capture, part = (next(tmp_path.glob(f"recorded/*{suffix}")) for suffix in (".opspan", ".device.json"))
    assert sorted(listed) == sorted([capture.name, part.name])
    assert part.stat().st_mode & 0o077 == 0, "it is nobody else's"

    document = json.loads(part.read_text())
    ours = opspan.load(capture)
    theirs = opspan.load(part, source="kineto")
    assert not ours.issues.height
    (begin, end), (begin_utc, end_utc) = (document["opspan"][name] for name in ("monotonic_ns", "utc_ns"))
    assert abs((end_utc - end) - (begin_utc - begin)) < 1_000_000
    shift = begin - begin_utc + theirs.origin_utc_ns
    first, second = (trace.ranges.filter(name="aten::mm")["start_ns"] for trace in (ours, theirs))
    assert len(first) == len(second) == 90
    apart = (second + shift - first).abs()
    assert apart.median() < 100_000, "both read it by the same clock"
    noted = [event["tid"] for event in document["traceEvents"] if event["name"] == "thread_name"]
    assert tid in noted, "torch's collection knows the threads that run ops"


@pytest.mark.slow
def test_each_active_step_and_none_in_a_fork(tmp_path: Path) -> None:
    found, warned = told(
        tmp_path,
        """
with opspan.record(sys.argv[1], device=True, schedule=opspan.schedule(wait=1, warmup=0, active=1)) as rec:
    for step in range(5):
        train()
        if step == 1:
            pid = os.fork()
            if not pid:
                torch.zeros(3)
                rec.__exit__()
                os._exit(0)
            os.waitpid(pid, 0)
        rec.step()
rec.trace.ranges
print(json.dumps([files(sys.argv[1]), said()]))
""",
    )
    assert found == ["1.device.json", "2.device.json", "3.device.json", "opspan", "opspan"]
    assert not warned


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setup", "sentence"),
    [
        ("os.environ['NSYS_PROFILING_SESSION_ID'] = '7'", "nsys collects on them, and they serve one tool at a time"),
        ("device.activities = set", "torch finds none that it can collect on"),
        (
            "torch.profiler.profile(activities=[ProfilerActivity.CPU]).start()",
            "torch.profiler is on, and it cannot be on twice",
        ),
    ],
)
def test_where_it_cannot_collect_one_sentence_says_why(tmp_path: Path, setup: str, sentence: str) -> None:
    warned, count, found = told(
        tmp_path,
        f"""
{setup}
with opspan.record(sys.argv[1], device=True) as rec: train()
print(json.dumps([said(), rec.trace.ranges.filter(name="aten::mm").height, files(sys.argv[1])]))
sys.stdout.flush()
os._exit(0)
""",
    )
    assert [sentence in each for each in warned] == [True], warned
    assert count == 3
    assert found == ["opspan"]


@pytest.mark.slow
def test_a_stop_on_another_thread_costs_the_devices_part_alone(tmp_path: Path) -> None:
    warned, count = told(
        tmp_path,
        """
rec = opspan.record(sys.argv[1], device=True)
rec.__enter__()
train()
thread = threading.Thread(target=rec.__exit__)
thread.start(); thread.join()
print(json.dumps([said(), rec.trace.ranges.filter(name="aten::mm").height]))
""",
    )
    assert count == 3
    assert ["not recorded" in each for each in warned] == [True], warned


@pytest.mark.slow
def test_a_profiler_of_torchs_that_comes_between_works_and_harms_nothing(tmp_path: Path) -> None:
    warned, counts = told(
        tmp_path,
        """
with opspan.record(sys.argv[1], device=True) as rec:
    train()
    with torch.profiler.profile(activities=[ProfilerActivity.CPU]) as prof: train()
    train()
theirs = sum(event.name == "aten::mm" for event in prof.events())
print(json.dumps([said(), [rec.trace.ranges.filter(name="aten::mm").height, theirs]]))
""",
    )
    assert counts == [9, 3]
    assert ["no torch.profiler between" in each for each in warned] == [True], warned


@pytest.mark.slow
def test_one_that_nobody_stops_ends_with_the_program(tmp_path: Path) -> None:
    done = forked(HEAD + "opspan.record(sys.argv[1], device=True).__enter__()\ntrain()", tmp_path / "recorded")
    assert done.returncode == 0, done.stderr
    assert opspan.load(tmp_path / "recorded").ranges.filter(name="aten::mm").height == 3


@pytest.mark.slow
def test_a_file_that_cannot_be_written_harms_nothing(tmp_path: Path) -> None:
    warned, count, found = told(
        tmp_path,
        """
from opspan import capture_files
device.device_file = lambda capture, number: capture.parent / "missing" / "x.device.json"
with opspan.record(sys.argv[1], device=True) as rec: train()
print(json.dumps([said(), rec.trace.ranges.filter(name="aten::mm").height, files(sys.argv[1])]))
""",
    )
    assert ["No such file" in each for each in warned] == [True], warned
    assert (count, found) == (3, ["opspan"])


@pytest.mark.slow
def test_profile_asks_for_the_devices_that_are_there(tmp_path: Path) -> None:
    done = forked(
        HEAD
        + CAUGHT
        + """
from opspan import profiler
device.activities = lambda: {ProfilerActivity.XPU}
device.Devices.start = lambda self: print("started")
device.Devices.stop = lambda self, capture: print("stopped")
for asked in ([ProfilerActivity.XPU], [], [ProfilerActivity.CUDA]):
    with profiler.profile(activities=[ProfilerActivity.CPU, *asked]) as prof: train()
    prof.events()
    print(said())
""",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    missing = "['CUDA is not available, disabling CUDA profiling']"
    assert done.stdout.splitlines() == ["started", "stopped", "[]", "[]", missing]


@pytest.mark.filterwarnings("ignore:CUDA initialization")  # the driver may be too old for this build of torch
def test_without_a_device_it_is_said_and_the_host_recorded() -> None:
    code = """
        import torch, opspan, warnings
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with opspan.record(device=True) as rec: torch.zeros(2)
        said = [one for one in caught if "CUDA initialization" not in str(one.message)]
        print(len(said), rec.trace.ranges.filter(name="aten::zeros").height)
    """
    if torch.cuda.is_available() or torch.xpu.is_available():
        pytest.skip("there is a device here")
    assert python(code) == "1 1\n"


def test_doctor_says_who_has_the_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    from opspan.app import doctor
    from opspan.emit import device
    from opspan.emit.observer import Torch

    def devices() -> doctor.Check:
        return next(check for check in doctor.checks() if check.name == "devices")

    assert Torch.here()
    monkeypatch.setattr(device, "activities", lambda: {torch.profiler.ProfilerActivity.CUDA})
    assert (devices().state, devices().found) == ("ok", "CUDA")
    monkeypatch.setenv("CUDA_INJECTION64_PATH", "/x.so")
    assert devices().found.startswith("CUDA: left to the tool of CUDA_INJECTION64_PATH")
    monkeypatch.setattr(device, "activities", set)
    assert devices().state == "optional"
