"""Programs that number what they do, for tests of what a rolling recording keeps of it."""

from __future__ import annotations

import polars as pl

import opspan

# Threads that number their ranges; every tenth has one inside, and the first of every thousand lasts for 500 more.
COUNTING = """
import contextlib, json, os, signal, sys, threading, time, torch, opspan
from pathlib import Path
ring, other = Path(sys.argv[1]), Path(sys.argv[2])

def count(thread, until):
    outer = None
    for i in range(until):
        if i % 1000 == 0:
            outer = opspan.annotate(f"outer {thread}", payload=i)
            outer.__enter__()
        with opspan.annotate(f"range {thread}", payload=i):
            if i % 10 == 0:
                with opspan.annotate(f"inside {thread}", payload=i): pass
        if i % 1000 == 500:
            outer.__exit__(None, None, None)

def threads(some, until):
    started = [threading.Thread(target=count, args=(thread, until)) for thread in range(some)]
    for thread in started: thread.start()
    return started
"""

TRAINING = """
import json, sys, torch, opspan
from pathlib import Path

class Data(torch.utils.data.Dataset):
    def __len__(self): return 64
    def __getitem__(self, i):
        with opspan.annotate("fetch"): return torch.full((4,), float(i)).square() / 4096

def losses(each=lambda: None):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters())
    found = []
    for epoch in range(2):
        for batch in torch.utils.data.DataLoader(Data(), batch_size=8, shuffle=True, num_workers=2):
            optimizer.zero_grad()
            loss = (model(batch) - batch.sum(1, keepdim=True)).square().mean()
            loss.backward()
            optimizer.step()
            found.append(loss.item().hex())
            each()
    return found
"""


def numbers(trace: opspan.Trace, name: str) -> list[int]:
    """In order of time. A clock that was ahead stands until the system's has come up with it: then times are equal."""
    return trace.ranges.filter(name=name).sort("start_ns", "payload_int")["payload_int"].to_list()


def check_last_of(trace: opspan.Trace, thread: int, last: int | None = None) -> int:
    """The ranges of a thread are its last ones, without a gap, and lie within each other as they did. How many."""
    mine = trace.ranges.with_columns(pl.col("name").cast(pl.String)).filter(pl.col("name").str.ends_with(f" {thread}"))
    found = numbers(trace, f"range {thread}")
    assert found == list(range(found[0], found[-1] + 1))
    assert last is None or found[-1] == last
    complete = mine.filter(pl.col("payload_int") > found[0], pl.col("payload_int") < found[-1])
    inside = complete.filter(name=f"inside {thread}").join(
        complete.filter(name=f"range {thread}"), on="payload_int", suffix="_around"
    )
    assert inside["payload_int"].to_list() == [i for i in range(found[0] + 1, found[-1]) if i % 10 == 0]
    assert inside.select(
        (pl.col("start_ns_around") <= pl.col("start_ns"))
        & (pl.col("start_ns") <= pl.col("end_ns"))
        & (pl.col("end_ns") <= pl.col("end_ns_around"))
    )["start_ns_around"].all()
    # The one that lasts ends after the range that it was left after, and before the next one.
    around = complete.filter(name=f"outer {thread}").with_columns(pl.col("payload_int") + 500)
    ends = around.join(complete.filter(name=f"range {thread}"), on="payload_int", suffix="_in")
    assert ends.height > 1
    assert (ends["end_ns"] >= ends["end_ns_in"]).all()
    return len(found)
