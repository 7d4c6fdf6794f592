"""One library under NVTX and ITT, as `opspan run` gives it to every program: one range is one row, whatever told it."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest

import opspan as package
from emit.running import opspan, python, under_collectors
from opspan import libraries
from tiers import RELEASE

OPS = "x = torch.ones(4, requires_grad=True)\n(x * 2).sum().backward()\n"


def told(folder: Path, *columns: str) -> Counter:
    """How often each name is there, with the protocol that it came through."""
    ranges = package.load(folder).ranges
    return Counter(ranges.select("name", "source", *columns).cast({"name": str, "source": str}).iter_rows())


def run(tmp_path: Path, body: str, *exec_: str) -> Counter:
    script = tmp_path / "script.py"
    script.write_text("import torch, opspan\n" + body)
    command = [sys.executable, *(["-m", "opspan", "exec", *exec_] if exec_ else [])]
    done = opspan("run", "-o", tmp_path / "captured", "--", *command, str(script))
    assert done.returncode == 0, done.stdout + done.stderr
    trace = package.load(tmp_path / "captured")
    assert trace.issues.filter(code="told_twice").is_empty()  # not mended on reading: told once
    return told(tmp_path / "captured")


@pytest.mark.slow
def test_annotations_marks_and_started_ranges_are_told_once(tmp_path: Path) -> None:
    body = """
for _ in range(3):
    with opspan.annotate("step", category="io", payload=7): opspan.mark("moment")
@opspan.annotate("started")
def generator(): yield 1
list(generator())
with opspan.record_function("recorded", "args"): pass
"""
    assert run(tmp_path, body) == {
        ("step", "nvtx"): 3,
        ("moment", "nvtx"): 3,
        ("started", "nvtx"): 1,
        ("recorded", "nvtx"): 1,
    }


@pytest.mark.slow
def test_a_namespace_asks_for_its_own_protocol(tmp_path: Path) -> None:
    body = """
opspan.nvtx.range_push("n"); opspan.nvtx.mark("nm"); opspan.nvtx.range_pop()
opspan.itt.range_push("i"); opspan.itt.mark("im"); opspan.itt.range_pop()
"""
    assert run(tmp_path, body) == dict.fromkeys([("n", "nvtx"), ("nm", "nvtx"), ("i", "itt"), ("im", "itt")], 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("emit", "source"),
    [
        (("--emit", "itt"), "itt"),
        pytest.param((), "nvtx", marks=RELEASE),
        pytest.param(("--emit", "nvtx"), "nvtx", marks=RELEASE),
    ],
)
def test_exec_under_run_labels_every_op_once(emit: tuple[str, ...], source: str, tmp_path: Path) -> None:
    body = OPS + "with opspan.annotate('mine'): torch.nn.Linear(2, 2)(torch.ones(2))\n"
    seen = run(tmp_path, body, "--modules", *emit)

    assert {found for _, found in seen} == {source}  # a user's range goes where the ops go
    assert {name: seen[name, source] for name in ("aten::ones_like", "MulBackward0", "mine", "Linear")} == {
        "aten::ones_like": 1,
        "MulBackward0": 1,
        "mine": 1,
        "Linear": 1,
    }


@pytest.mark.slow
def test_two_emitters_tell_through_the_one_that_was_entered_last(tmp_path: Path) -> None:
    body = f"""
def work(name):
    with opspan.annotate(name):
        {OPS.strip().replace(chr(10), chr(10) + " " * 8)}
work("before")
with opspan.emit_nvtx(modules=True) as outer:
    work("first")
    with opspan.emit_itt(modules=True) as inner:
        work("both")
        torch.nn.Linear(2, 2)(torch.ones(2))
    work("second")
with opspan.emit_itt():
    with opspan.emit_nvtx(): work("again")
    work("last")
work("after")
assert outer.stats.ranges and inner.stats.ranges
"""
    seen = run(tmp_path, body)
    names = ("before", "first", "both", "second", "again", "last", "after")
    assert {name: source for (name, source) in seen if name in names} == {
        "before": "nvtx",
        "first": "nvtx",
        "both": "itt",
        "second": "nvtx",
        "again": "nvtx",
        "last": "itt",
        "after": "nvtx",
    }
    assert (seen["aten::ones_like", "nvtx"], seen["aten::ones_like", "itt"]) == (3, 2)
    assert sum(count for (name, _), count in seen.items() if name == "Linear") == 1


@pytest.mark.slow
def test_an_emitter_that_waits_for_its_schedule_silences_nobody(tmp_path: Path) -> None:
    body = f"""
from torch.profiler import schedule
with opspan.emit_itt():
    with opspan.emit_nvtx(schedule=schedule(wait=1, warmup=1, active=1, repeat=1)) as session:
        for _ in range(5):
            {OPS.strip().replace(chr(10), chr(10) + " " * 12)}
            session.step()
"""
    seen = run(tmp_path, body)
    assert (seen["aten::ones_like", "nvtx"], seen["aten::ones_like", "itt"]) == (1, 4)


def test_two_tools_are_told_both(tmp_path: Path) -> None:
    # A second copy of the library is another tool: it writes a file of its own.
    copy = shutil.copy(libraries.collectors(), tmp_path / "other.so")
    env = {**under_collectors(tmp_path / "captured"), "INTEL_LIBITTNOTIFY64": str(copy)}
    python("import opspan\nwith opspan.annotate('step'): pass\n", env=env)

    assert told(tmp_path / "captured") == {("step", "nvtx"): 1, ("step", "itt"): 1}


@pytest.mark.slow
def test_a_program_that_speaks_both_is_matched_on_reading(tmp_path: Path) -> None:
    body = """
import opspan, torch
for i in range(3):
    opspan.nvtx.range_push("step")  # as torch.cuda.nvtx and torch.profiler.itt, which need a GPU's build for the first
    torch.profiler.itt.range_push("step")
    opspan.itt.mark("moment"); opspan.nvtx.mark("moment")  # torch's own itt.mark is an empty task
    torch.profiler.itt.range_pop()
    opspan.nvtx.range_pop()
with torch.profiler.itt.range("alone"): pass
with torch.autograd.profiler.emit_itt(), opspan.emit_nvtx(): torch.ones(2).add(1)
"""
    env = under_collectors(tmp_path / "captured")
    python(body, env=env)
    trace = package.load(tmp_path / "captured")
    seen = told(tmp_path / "captured")

    assert (seen["step", "nvtx"], seen["moment", "nvtx"], seen["alone", "itt"]) == (3, 3, 1)
    assert (seen["aten::add", "nvtx"], seen["aten::ones", "nvtx"]) == (1, 1)
    assert {source for _, source in seen} == {"nvtx", "itt"}
    assert seen.total() == 6 + 1 + sum(count for (name, _), count in seen.items() if name.startswith("aten::"))
    (count,) = trace.issues.filter(code="told_twice")["count"]
    assert count >= 6 + 2
