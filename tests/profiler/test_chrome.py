"""The Chrome trace of a real run: a viewer loses nothing of it, and it is JSON whatever the program's names are."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from emit.running import told
from views import perfetto

pytest.importorskip("torch")

PROGRAM = r"""
import json, sys, threading, torch, opspan
from opspan import profiler

names = ['a "name"\\', "\x01\x1f\x7f", "</script>", "\u202eright to left\u2028", "x" * 10_000]
always = profiler.schedule(wait=0, warmup=0, active=9)

def train():  # a model for each thread: one that another thread changes meanwhile has no backward
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.zero_grad()
    model(torch.ones(3, 8)).sum().backward()
    optimizer.step()

def named():
    for name in names:
        with torch.profiler.record_function(name):
            torch.ones(2) + 1
    with opspan.annotate("half of a pair \ud800"):
        torch.ones(2)

with profiler.profile(schedule=always, record_shapes=True, profile_memory=True) as prof:
    for _ in range(3):
        threads = [threading.Thread(target=work) for work in (train, named, named)]
        [thread.start() for thread in threads]
        train()
        [thread.join() for thread in threads]
        prof.step()
prof.add_metadata("half of a pair", "\ud800")
for wrong in ("NaN", "[Infinity]", "[1e999]", "{"):
    try:
        prof.add_metadata_json("wrong", wrong)
    except ValueError as error:
        assert "is not JSON" in str(error)
    else:
        raise AssertionError(wrong)
for out in sys.argv[1:]:
    prof.export_chrome_trace(out)
frames = prof.trace.frames
print(json.dumps({
    "rows": {name: frames[name].height for name in ("ranges", "memory")},
    "names": names,
    "linked": prof.trace.coverage.linked,
}))
"""


def test_a_run_of_several_threads_is_whole(tmp_path: Path) -> None:
    plain, packed = tmp_path / "trace.json", tmp_path / "trace.json.gz"

    told_of = told(PROGRAM, str(plain), str(packed))

    events = perfetto.taken(plain)
    assert perfetto.drawn(events) == sum(told_of["rows"].values())
    spans = Counter(event["name"] for event in events if event["ph"] in "Xb")
    assert {spans[name] for name in told_of["names"]} == {6}
    assert spans["half of a pair \\ud800"] == 6
    assert spans["ProfilerStep#1"] == 1
    assert len({event["tid"] for event in events if event["ph"] == "X"}) >= 4
    arrows = [event for event in events if event["ph"] == "s"]
    assert 0 < len(arrows) <= told_of["linked"]
    document = json.loads(plain.read_text())
    assert document["half of a pair"] == "?"
    unpacked = gzip.decompress(packed.read_bytes()).replace(packed.name.encode(), plain.name.encode())
    assert unpacked == plain.read_bytes()
