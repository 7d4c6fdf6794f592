"""Errors around a profile: the program goes on as it would without, and an error says what is wrong."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from emit import running
from emit.running import forked

torch = pytest.importorskip("torch")

HEAD = """
import json, os, sys, threading, warnings
import torch, opspan
import torch.profiler
from opspan import profiler
CPU = [torch.profiler.ProfilerActivity.CPU]
def names(prof):
    return sorted({row.key for row in prof.key_averages()})
def raised(call):
    try:
        call()
    except Exception as error:
        return [type(error).__name__, str(error)]
    return None
"""


def told(code: str, cwd: Path | None = None) -> Any:
    return running.told(HEAD + code, cwd=cwd)


def test_steps_without_a_schedule_and_a_schedule_that_never_records() -> None:
    told("""
with profiler.profile(activities=CPU) as prof:
    for _ in range(5):
        torch.ones(2)
        prof.step()
assert [row.count for row in prof.key_averages() if row.key == "aten::ones"] == [5]
assert prof.step_num == 5
calls = []
with profiler.profile(activities=CPU, schedule=lambda step: profiler.ProfilerAction.NONE,
                      on_trace_ready=lambda prof: calls.append(prof)) as never:
    for _ in range(1000):
        never.step()
assert not calls and never.step_num == 1000
assert raised(never.events)[0] == "NotStarted"
print(1)
""")


def test_exports_before_the_end_twice_and_to_nowhere(tmp_path: Path) -> None:
    told(
        """
prof = profiler.profile(activities=CPU, with_stack=False)
for call in (prof.events, prof.key_averages, lambda: prof.export_chrome_trace("early.json"), prof.stop_trace):
    assert raised(call)[0] == "NotStarted", raised(call)
prof.start()
assert raised(lambda: prof.export_chrome_trace("early.json"))[0] == "RuntimeError"
torch.ones(2)
prof.stop()
prof.export_chrome_trace("one.json")
prof.export_chrome_trace("one.json")
prof.export_chrome_trace("two.json")
assert open("one.json").read().replace("one.json", "two.json") == open("two.json").read()
kind, said = raised(lambda: prof.export_chrome_trace("no/such/folder.json"))
assert kind == "WriteError" and "no/such/folder.json" in said, said
kind, said = raised(lambda: prof.export_stacks("stacks.txt", "time"))
assert kind == "ValueError" and "time" in said, said
assert sorted(os.listdir(".")) == ["one.json", "two.json"], os.listdir(".")
print(1)
""",
        tmp_path,
    )


def test_started_here_and_stopped_on_another_thread_with_ops_on_both() -> None:
    told("""
prof = profiler.profile(activities=CPU, profile_memory=True, record_shapes=True)
thread = threading.Thread(target=prof.start)
thread.start()
thread.join()
torch.ones(2)
def end():
    torch.zeros(3)
    prof.stop()
thread = threading.Thread(target=end)
thread.start()
thread.join()
torch.full((2,), 1.0)
assert {"aten::ones", "aten::zeros"} <= set(names(prof))
assert "aten::full" not in names(prof)
print(1)
""")


@pytest.mark.slow
def test_beside_torchs_profiler_the_emitters_and_another_profile() -> None:
    told("""
def train():
    x = torch.ones(3, requires_grad=True)
    (x * 2).sum().backward()
train()
asked = dict(activities=CPU, record_shapes=True, profile_memory=True)
for outer, inner in ((torch.profiler, profiler), (profiler, torch.profiler)):
    with outer.profile(**asked) as one:
        train()
        with inner.profile(**asked) as two:
            train()
        train()
    counts = [[row.count for row in prof.key_averages() if row.key == "aten::mul"] for prof in (one, two)]
    assert counts == [[6], [2]], counts  # forward and backward
warnings.simplefilter("ignore")
with opspan.emit_nvtx(), opspan.emit_itt(), profiler.profile(**asked) as prof:
    train()
assert "aten::mul" in names(prof)
with opspan.record() as rec, profiler.profile(**asked) as outer:
    train()
    with profiler.profile(activities=CPU) as inner:
        train()
        with profiler.profile(activities=CPU):
            fifth = profiler.profile(activities=CPU)
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                fifth.start()
            fifth.stop()
    train()
said = [str(warning.message) for warning in seen]
assert len(said) == 1 and "nothing is recorded" in said[0] and "4 times" in said[0], said
assert fifth.events() == []
muls = [[row.count for row in prof.key_averages() if row.key == "aten::mul"] for prof in (outer, inner)]
assert muls == [[6], [2]] and rec.trace.ranges.filter(name="aten::mul").height == 6, muls
print(1)
""")


@pytest.mark.slow
def test_a_fork_in_the_middle_goes_on_by_itself() -> None:
    told("""
with profiler.profile(activities=CPU, profile_memory=True, record_shapes=True, with_stack=True) as prof:
    torch.ones(2)
    pid = os.fork()
    if not pid:
        torch.zeros(5).sum()
        prof.step()
        os._exit(9)
    assert os.waitpid(pid, 0)[1] == 9 << 8
    torch.full((2,), 1.0)
found = set(names(prof))
assert {"aten::ones", "aten::full", "aten::zeros"} <= found
assert prof.trace.ranges["pid"].n_unique() == 2
print(1)
""")


@pytest.mark.slow
def test_killed_it_leaves_a_capture_with_all_that_was_recorded(tmp_path: Path) -> None:
    code = """
with profiler.profile(activities=CPU, path=sys.argv[1], record_shapes=True, profile_memory=True, with_stack=True):
    torch.ones(2) * 2
    os.kill(os.getpid(), 9)
"""
    done = forked(HEAD + code, tmp_path / "kept")
    assert done.returncode == -9
    told(f"""
trace = opspan.load({str(tmp_path / "kept")!r})
assert trace.ranges.filter(name="aten::mul")["sizes"].to_list() == ["[[2], []]"]
assert trace.memory.height >= 2
assert "not_closed" in trace.issues["code"].to_list()
print(1)
""")


@pytest.mark.slow
def test_calls_in_an_odd_order_end_as_with_torchs() -> None:
    # Without acc_events, torch adds up the events of all cycles. Newer releases do so only if they are asked to.
    names = ["started_twice"]
    if "acc_events" in inspect.signature(torch.profiler.profile.__init__).parameters:
        names += ["entered_twice", "callback_that_raises"]
    # Older releases are at the next step although the schedule raised.
    if "next_step" in inspect.getsource(torch.profiler.profile.step):
        names += ["schedule_that_raises"]
    ours, theirs = told(
        f"names = {names}"
        + """
warnings.simplefilter("ignore")
def counts(prof):
    return sorted([row.key, row.count] for row in prof.key_averages() if row.key in ("aten::ones", "aten::zeros"))
def started_twice(module):
    prof = module.profile(activities=CPU)
    prof.start()
    torch.ones(2)
    prof.start()
    torch.zeros(2)
    prof.stop()
    prof.step()
    return [counts(prof)]
def entered_twice(module):
    prof = module.profile(activities=CPU)
    for make in (torch.ones, torch.zeros):
        with prof:
            make(2)
    return [counts(prof)]
def callback_that_raises(module):
    calls = []
    def ready(prof):
        calls.append(prof.step_num)
        if len(calls) == 1:
            raise ValueError("of the callback")
    schedule = torch.profiler.schedule(wait=1, warmup=0, active=1)
    prof = module.profile(activities=CPU, schedule=schedule, on_trace_ready=ready)
    prof.start()
    errors = []
    for _ in range(6):
        torch.ones(1)
        errors.append(raised(prof.step))
    prof.stop()
    return [errors, calls, prof.step_num, counts(prof)]
def schedule_that_raises(module):
    def schedule(step):
        if step == 2:
            raise KeyError("of the schedule")
        return module.ProfilerAction.RECORD
    prof = module.profile(activities=CPU, schedule=schedule)
    prof.start()
    errors = []
    for _ in range(3):
        torch.ones(1)
        errors.append(raised(prof.step))
    prof.stop()
    return [errors, prof.step_num, counts(prof)]
trials = {name: globals()[name] for name in names}
print(json.dumps([{name: trial(module) for name, trial in trials.items()} for module in (profiler, torch.profiler)]))
"""
    )
    assert ours == theirs
    assert theirs["started_twice"] == [[["aten::zeros", 1]]]
    if "callback_that_raises" in theirs:
        assert theirs["callback_that_raises"][0].count(None) == 5


def test_stopped_twice_it_keeps_what_it_has() -> None:
    told("""
prof = profiler.profile(activities=CPU)
assert raised(prof.stop)[0] == "NotStarted"
prof.start()
torch.ones(2)
prof.stop()
torch.zeros(2)
prof.stop()
assert "aten::ones" in names(prof) and "aten::zeros" not in names(prof)
with profiler.profile(activities=CPU) as other:
    torch.zeros(2)
prof.stop()
assert names(other) and "aten::ones" in names(prof)
print(1)
""")
