"""Profiles of large models and long runs: everything is there, in bounded time, and memory does not grow with them."""

from __future__ import annotations

from typing import Any

import pytest

from emit import running
from tiers import RELEASE

pytest.importorskip("torch")

HEAD = """
import gc, json, os, sys, tempfile, time, warnings
import torch
import torch.profiler
from opspan import profiler
warnings.simplefilter("ignore")
CPU = [torch.profiler.ProfilerActivity.CPU]
ALL = dict(activities=CPU, record_shapes=True, profile_memory=True, with_stack=True)
torch.set_num_threads(1)
def own_memory():
    [line] = [line for line in open("/proc/self/status") if line.startswith("RssAnon")]
    return int(line.split()[1]) * 1024
def seconds(call):
    began = time.process_time()
    call()
    return time.process_time() - began
x = torch.ones(1)
torch.add(x, 1)
"""


def told(code: str, *arguments: str) -> Any:
    return running.told(HEAD + code, *arguments)


@pytest.mark.slow
@pytest.mark.parametrize("parameters", [5_000, pytest.param(100_000, marks=RELEASE)])
def test_a_model_of_many_tiny_modules_with_everything_on(parameters: int) -> None:
    found = told(
        """
class Tiny(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.factor, self.shift = torch.nn.Parameter(torch.ones(1)), torch.nn.Parameter(torch.zeros(1))
    def forward(self, x):
        return x * self.factor + self.shift
model = torch.nn.Sequential(*(Tiny() for _ in range(int(sys.argv[1]) // 2)))
def run():
    with torch.no_grad():
        model(x)
plain = seconds(run)
with profiler.profile(**ALL, with_modules=True) as prof:
    watched = seconds(run)
ranges = prof.trace.analysed.complete.ranges
read = seconds(prof.key_averages)
found = {kind: ranges.filter(kind=kind).height for kind in ("module", "op")}
found["modules of ops"] = ranges.filter(kind="op")["module"].drop_nulls().n_unique()
last = [event for event in prof.events()[-4:] if event.name == "aten::add"]
found["last"] = last[0].module_hierarchy
found["times"] = [plain, watched, read]
print(json.dumps(found))
""",
        str(parameters),
    )
    tiny = parameters // 2
    assert found["module"] == tiny + 1
    assert found["op"] == 2 * tiny
    assert found["modules of ops"] == tiny
    assert found["last"] == f"TOP(Sequential)::forward.{tiny - 1}(Tiny)::forward."
    plain, watched, read = found["times"]
    assert watched < 30 * plain + 5
    assert read < tiny / 500 + 5


@pytest.mark.slow
@pytest.mark.parametrize("steps", [50_000, pytest.param(1_000_000, marks=RELEASE)])
def test_a_great_many_steps_of_which_the_last_is_recorded(steps: int) -> None:
    number, calls, rows, took, grown = told(
        """
steps, calls = int(sys.argv[1]), []
schedule = profiler.schedule(wait=steps - 2, warmup=1, active=1, repeat=1)
def ready(prof):
    calls.append(prof.step_num)
with profiler.profile(activities=CPU, schedule=schedule, on_trace_ready=ready) as prof:
    before = own_memory()
    def run():
        for _ in range(steps):
            prof.step()
    took = seconds(run)
    grown = own_memory() - before
rows = [[event.trace_name, event.count] for event in prof.events()]
print(json.dumps([prof.step_num, calls, rows, took, grown]))
""",
        str(steps),
    )
    assert number == steps
    assert calls == [steps]
    assert rows == [[f"ProfilerStep#{steps - 1}", 1]]
    assert took < 200e-6 * steps
    assert grown < 16 << 20


@pytest.mark.slow
def test_a_great_many_cycles_leave_nothing_behind() -> None:
    calls, per_cycle, files, folders = told("""
calls = []
def left():
    mine = f"opspan-record-{os.getpid()}-"
    return len([name for name in os.listdir(tempfile.gettempdir()) if name.startswith(mine)])
def state():
    gc.collect()
    return own_memory(), len(os.listdir("/proc/self/fd")), left()
schedule = profiler.schedule(wait=0, warmup=0, active=1)
with profiler.profile(**ALL, schedule=schedule, on_trace_ready=lambda prof: calls.append(prof.step_num)) as prof:
    for step in range(400):
        torch.ones(3).add(1)
        prof.step()
        if step == 100:
            before = state()
    after = state()
print(json.dumps([len(calls), (after[0] - before[0]) / 300, after[1] - before[1], after[2] - before[2]]))
""")
    assert calls == 401
    assert per_cycle < 8192
    assert (files, folders) == (0, 0)


@pytest.mark.slow
@pytest.mark.release
def test_minutes_of_training_at_full_rate_take_no_memory_of_the_program() -> None:
    """As many ops as ten minutes of a step each 0.1 s, of 200 calls: 4.8 million ranges, of which each call makes 4."""
    grown, slowdown, heights, count = told("""
calls = 1_200_000
def ops(count):
    for _ in range(count):
        torch.add(x, 1)
with profiler.profile(**ALL) as prof:
    ops(1000)
    gc.collect()
    before, times = own_memory(), []
    for _ in range(6):
        times.append(seconds(lambda: ops(calls // 6)))
    grown = own_memory() - before
trace = prof.trace
heights = [trace.ranges.filter(name="aten::add").height, trace.ranges.height, trace.memory.filter(event="alloc").height]
count = [row.count for row in prof.key_averages() if row.key == "aten::add"]
print(json.dumps([grown, max(times) / min(times), heights, count]))
""")
    calls = 1_201_000
    assert grown < 16 << 20
    assert slowdown < 3
    assert heights[0] == calls
    assert heights[1] >= 4 * calls
    assert heights[2] >= calls
    assert count == [calls]
