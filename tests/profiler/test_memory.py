"""Memory that torch takes and gives back, as recorded: torch.profiler's sums, every thread, no harm to the program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emit import running
from profiler import training

pytest.importorskip("torch")

HEAD = """
import gc, sys, threading
def changes(frame):
    sign = {"alloc": 1, "free": -1}
    return [(event, size, address) for event, size, address in frame.select("event", "bytes", "address").rows()]
"""


def told(code: str, cwd: Path | None = None) -> Any:
    return running.told(training.HEAD + HEAD + code, cwd=cwd)


def test_sums_of_every_op_are_torchs_which_watched_the_same_run() -> None:
    ours, theirs, device = told("""
def sums(events):
    listed = sorted(events, key=lambda event: (event.time_range.start, -event.time_range.end))
    return [
        [event.name, event.cpu_memory_usage, event.self_cpu_memory_usage]
        for event in listed
        if event.name != "[memory]"
    ]
train()
asked = dict(activities=CPU, profile_memory=True)
with torch.profiler.profile(**asked) as theirs, profiler.profile(**asked) as ours:
    train()
    torch.nn.functional.scaled_dot_product_attention(*(torch.randn(1, 2, 5, 8) for _ in range(3)))
    x = torch.empty(10); x.resize_(1000); x.set_(); del x
    torch.from_numpy(torch.ones(5).numpy()).clone().untyped_storage().resize_(400)
print(json.dumps([sums(ours.events()), sums(theirs.events()), [e.device_memory_usage for e in ours.events()]]))
""")
    assert ours == theirs
    assert len([1 for _, total, _ in ours if total > 0]) > 20
    assert not any(device)


def test_ops_of_torchs_threads_have_torchs_sums_while_others_have_their_own() -> None:
    ours, theirs, of_others = told("""
def work():
    kept.append(torch.ones(1000))
def run():
    kept.clear()
    for _ in range(3):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        (torch.ones(10, requires_grad=True) * 2).sum().backward()
def sums(events):
    return [[event.name, event.cpu_memory_usage, event.self_cpu_memory_usage] for event in events]
kept = []
run()
asked = dict(activities=CPU, profile_memory=True)
with torch.profiler.profile(**asked) as theirs, profiler.profile(**asked) as ours:
    run()
listed = [event for event in ours.events() if event.name != "[memory]"]
mine = {event.thread for event in listed if event.name.startswith("aten::sum")}
found = [sums(event for event in listed if (event.thread in mine) is wanted) for wanted in (True, False)]
print(json.dumps([found[0], sums(event for event in theirs.events() if event.name != "[memory]"), found[1]]))
""")
    assert ours == theirs
    assert len([1 for _, total, _ in theirs if total]) > 10
    assert of_others == [["aten::ones", 4000, 0], ["aten::empty", 4000, 4000], ["aten::fill_", 0, 0]] * 3


def test_every_thread_is_seen_and_every_free_has_its_allocation() -> None:
    threads, events, totals = told("""
def work():
    kept.append(torch.ones(1000))
    torch.zeros(500)
kept = []
with opspan.record(memory=True) as rec:
    several = [threading.Thread(target=work) for _ in range(3)]
    for thread in several: thread.start()
    for thread in several: thread.join()
    torch.ones(10)
    kept.clear()
memory = rec.trace.memory
alive, bad = {}, 0
for event, size, address in changes(memory.sort("time_ns")):
    if event == "alloc":
        alive[address] = size
    else:
        bad += alive.pop(address) != size
assert not bad and not alive
print(json.dumps([memory["tid"].n_unique(), memory.height, memory["total_bytes"].to_list()[-1]]))
""")
    assert threads == 4
    assert events == 2 * (3 * 2 + 1)
    assert totals == 0


@pytest.mark.slow
def test_memory_outlives_sessions_and_what_was_taken_before_is_not_guessed() -> None:
    told("""
before = torch.ones(2000)
with opspan.record(memory=True) as first:
    inside = torch.ones(1000)
    del before
outside = torch.ones(1500)
with opspan.record(memory=True) as second:
    pass
del outside
with opspan.record(memory=True) as third:
    del inside
    torch.ones(7).resize_(70)
def sizes(rec):
    return [(event, size) for event, size, _ in changes(rec.trace.memory)]
assert sizes(first) == [("alloc", 4000)], sizes(first)
assert sizes(second) == []
assert sizes(third) == [("free", 4000), ("alloc", 28), ("alloc", 280), ("free", 28), ("free", 280)], sizes(third)
assert third.trace.memory["total_bytes"].to_list()[-1] == 0
print(1)
""")


def test_memory_that_cannot_be_had_is_an_event_and_the_programs_error() -> None:
    told("""
with opspan.record(memory=True) as rec:
    try:
        torch.empty(1 << 60, dtype=torch.uint8)
    except RuntimeError as error:
        said = str(error)
assert "memory" in said
assert rec.trace.memory.select("event", "bytes").rows() == [("out_of_memory", 1 << 60)]
print(1)
""")


@pytest.mark.slow
def test_forks_threads_and_torchs_own_profiler_at_the_same_time() -> None:
    told("""
import os, time
stop, begun = threading.Event(), threading.Barrier(4)
def busy():
    # A thread's first op holds a lock of torch's callbacks; a fork at that moment waits for it for ever, in torch.
    torch.ones(100)
    begun.wait()
    while not stop.is_set():
        torch.ones(100) + 1
several = [threading.Thread(target=busy) for _ in range(3)]
with opspan.record(memory=True) as rec:
    for thread in several: thread.start()
    begun.wait()
    for _ in range(20):
        pid = os.fork()
        if not pid:
            torch.ones(50)
            os._exit(7)
        assert os.waitpid(pid, 0)[1] == 7 << 8
    stop.set()
    for thread in several: thread.join()
    with torch.profiler.profile(activities=CPU, profile_memory=True) as prof:
        torch.ones(100)
assert [e.cpu_memory_usage for e in prof.events() if e.name == "aten::ones"] == [400]
memory = rec.trace.memory
assert memory["pid"].n_unique() == 21
assert (memory.filter(bytes=200)["pid"].n_unique()) == 20
print(1)
""")


@pytest.mark.slow
def test_with_a_schedule_only_active_steps_are_recorded_and_totals_stay_right() -> None:
    told("""
from opspan.profiler import schedule
kept, found = [], []
with profiler.profile(activities=CPU, profile_memory=True, schedule=schedule(wait=1, warmup=0, active=1),
                      on_trace_ready=lambda prof: found.append(prof.trace.memory)) as prof:
    for step in range(4):
        kept.append(torch.ones(100 * (step + 1)))
        prof.step()
assert [[size for _, size, _ in changes(frame)] for frame in found] == [[800], [1600]], found
print(1)
""")


@pytest.mark.slow
def test_what_numpy_holds_outlives_the_session() -> None:
    told("""
with opspan.record(memory=True), opspan.emit_nvtx(enabled=False):
    x = torch.ones(3)
numbers = x.numpy()
del x
assert numbers.sum() == 3
print(1)
""")
