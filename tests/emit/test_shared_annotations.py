"""One annotation for many threads, tasks, generators and copies: each ends what it began."""

from __future__ import annotations

from pathlib import Path

import pytest

import opspan
from emit.running import HEAD, program, python

SHARED = """
import contextlib
shared = opspan.annotate("shared")
async def block(entered, leave):
    async with shared: entered.set(); await leave.wait()
async def nested(entered, leave):
    async with shared:
        async with shared: entered.set(); await leave.wait()
async def stack(entered, leave):
    async with contextlib.AsyncExitStack() as all:
        await all.enter_async_context(shared)
        entered.set(); await leave.wait()
class Wrapped:
    async def __aenter__(self): await shared.__aenter__()
    async def __aexit__(self, *error): await shared.__aexit__(*error)
async def wrapped(entered, leave):
    async with Wrapped(): entered.set(); await leave.wait()
async def staggered(how):
    events = [asyncio.Event() for _ in range(4)]
    first = asyncio.create_task(how(*events[:2]))
    await events[0].wait()
    opspan.mark("second begins")
    second = asyncio.create_task(how(*events[2:]))
    await events[2].wait()
    events[1].set(); await first
    opspan.mark("first has ended")
    events[3].set(); await second
"""


@pytest.mark.parametrize("how", ["block", "nested", "stack", "wrapped"])
def test_tasks_that_share_an_annotation_each_end_their_own_range(how: str, captured: Path) -> None:
    program(SHARED + f"asyncio.run(staggered({how}))", captured)

    ranges = opspan.load(captured).ranges.filter(source="nvtx")
    begins, ended = (ranges.filter(name=name)["start_ns"][0] for name in ("second begins", "first has ended"))
    shared = ranges.filter(name="shared")
    first, second = shared.filter(shared["start_ns"] < begins), shared.filter(shared["start_ns"] > begins)
    assert first.height == second.height == (2 if how == "nested" else 1)
    assert first["end_ns"].max() < ended < second["end_ns"].min()  # type: ignore[operator]


def test_generators_that_share_an_annotation_each_end_their_own_range(captured: Path) -> None:
    body = """
shared = opspan.annotate("shared")
async def values(mark):
    async with shared:
        yield 1
        opspan.mark(mark)
async def main():
    first, second = values("end of first"), values("end of second")
    await anext(first); await anext(second)
    await anext(first, None)
    await asyncio.sleep(0.05)
    await anext(second, None)
    closed = values("never")
    await anext(closed)
    await asyncio.create_task(closed.aclose())  # by another task than the one that began it
asyncio.run(main())
"""
    program(body, captured)

    ranges = opspan.load(captured).ranges.filter(source="nvtx").sort("start_ns")
    shared = ranges.filter(name="shared")
    assert shared["end_ns"].null_count() == 0
    first, second, _ = shared["end_ns"]
    assert first < ranges.filter(name="end of second")["start_ns"][0] < second


@pytest.mark.slow
def test_threads_that_share_an_annotation_each_pop_their_own_range() -> None:
    pytest.importorskip("torch")
    body = """
shared = opspan.annotate("shared")
steps = [threading.Event() for _ in range(4)]
def early():  # enters when nobody listens, leaves when the other is inside
    with shared:
        steps[0].set(); steps[1].wait()
    steps[2].set()
def late():
    with opspan.annotate("around"):
        with shared:
            steps[1].set(); steps[2].wait()
            with opspan.annotate("inside"): pass
thread = threading.Thread(target=early)
thread.start(); steps[0].wait()
with opspan.record() as session:
    late()
    thread.join()
rows = {row["name"]: row for row in session.trace.ranges.iter_rows(named=True)}
print(sorted(rows), rows["inside"]["end_ns"] < rows["shared"]["end_ns"] < rows["around"]["end_ns"])
"""
    assert python(HEAD + body) == "['around', 'inside', 'shared'] True\n"


def test_a_block_that_ends_on_another_thread_pops_nothing_there(captured: Path) -> None:
    body = """
shared = opspan.annotate("shared")
def values():
    with shared: yield 1
generator = values()
next(generator)
def elsewhere():
    with opspan.annotate("outer"):
        generator.close()
        with opspan.annotate("inner"): pass
thread = threading.Thread(target=elsewhere)
thread.start(); thread.join()
with shared: pass
"""
    program(body, captured)

    ranges = opspan.load(captured).ranges.filter(source="nvtx")
    ends = {row["name"]: row["end_ns"] for row in ranges.iter_rows(named=True)}
    assert ends["inner"] < ends["outer"]


def test_an_annotation_can_be_copied_and_pickled_also_when_it_was_used(captured: Path) -> None:
    body = """
import copy
used = opspan.annotate("used", color="red", category="c", payload=3)
with used:
    for again in (copy.copy(used), copy.deepcopy(used), pickle.loads(pickle.dumps(used))):
        with again: pass
"""
    program(body, captured)

    rows = opspan.load(captured).ranges.filter(source="nvtx")
    assert rows.select("name", "color", "category", "payload_int").unique().rows() == [("used", 0xFFD62728, "c", 3)]
    assert rows.height == 4
