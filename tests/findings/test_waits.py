"""Calls that the host waits in: devices that run dry after them, and what they take themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from findings.made import FIRST, Case, Made, case_tests, each


def waited(call: str = "cudaStreamSynchronize", until: int = 410, then: int = 500, op: str = "aten::nonzero") -> Made:
    """A kernel until 400 whose end the host waits for from 110 on, and one launched `then`, 20 before it runs."""
    made = Made().work("first", 0, 400).range(op, 100, until + 5 - 100).call(call, 110, until - 110)
    return made.launch(then, "second", then + 20, 1000 - then - 20)


def copied(to: str, then: int = 500) -> Made:
    made = Made().work("first", 0, 390).range("aten::copy_", 100, 315 if then > 415 else 310)
    made.call("cudaMemcpyAsync", 110, 300 if then > 415 else 295, correlation_id=9)
    made.work("copy", 390, 10, kind="memcpy", correlation_id=9, copy_from="device", copy_to=to, bytes=4)
    return made.launch(then, "second", then + 12, 1000 - then - 12)


def taken(call: str, length: int, steps: Any = None, idle: int | None = None) -> Made:
    """The device has nothing to do while the call takes place, or for so long: what comes next is launched after it."""
    until = 100 + length
    busy = 110 + (0 if idle is None else length - idle)
    made = Made().work("first", 0, busy).launch(until, "second", until + 10, 990 - until)
    return made.range("aten::empty", 90, 900, steps).call(call, 100, length, steps)


def test_a_call_whose_time_the_device_hides_costs_nothing() -> None:
    made = taken("cudaMalloc", 40).work("other", 100, 900, stream_id=9)
    assert "allocation" not in made.findings()


# The device runs dry at 400 and gets work at 520: 120 of each of 10 steps, all of it less than the wait took (300).
DRAINED = {"saved_ns": 1200, "saved_share": 0.12, "waits": 10, "wait_ns": 3000, "idle_ns": 1200}
# 30 in each of the 9 steps after the first.
HELD_UP = {"wait_ns": 270, "wait_share": 0.027, "calls": 9}

CASES = [
    Case(
        "item",
        lambda: waited(op="aten::item"),
        1200,
        0.12,
        DRAINED,
        {
            "idle for 1.9%": lambda: run_dry("aten::item", 419),
            "in no item": waited,
            "work was there": lambda: waited(op="aten::item").work("other", 300, 300, stream_id=9),
        },
        ops=("aten::item",),
        steps=FIRST,
        ranges=each(110, 300),
    ),
    Case(
        "synchronise",
        waited,
        1200,
        0.12,
        DRAINED,
        {
            "does not wait": lambda: waited("cudaStreamQuery"),
            "of another thread": lambda: waited("cudaStreamQuery").call("cudaStreamSynchronize", 110, 300, tid=2),
            "of a short wait": lambda: (
                Made().work("first", 0, 400).call("cudaStreamSynchronize", 390, 19).launch(500, "second", 520, 480)
            ),
        },
        ops=("aten::nonzero",),
        steps=FIRST,
        ranges=each(110, 300),
    ),
    Case(
        "blocking-copies",
        lambda: copied("pageable"),
        1120,  # 400 to 512
        0.112,
        {"saved_ns": 1120, "saved_share": 0.112, "waits": 10, "wait_ns": 3000, "idle_ns": 1120},
        {"to pinned memory": lambda: copied("pinned"), "idle for 1.8%": lambda: copied("pageable", 406)},
        ops=("aten::copy_",),
        steps=FIRST,
        ranges=each(110, 300),
    ),
    Case(
        "allocation",
        lambda: taken("cudaMalloc", 30),
        270,
        0.027,
        HELD_UP,
        {
            "198 of 10,000": lambda: taken("cudaMalloc", 22),
            "the device worked meanwhile": lambda: taken("cudaMalloc", 30, idle=21),
            "in the first step": lambda: taken("cudaMalloc", 500, [0]),
            "from the pool": lambda: taken("cudaMallocAsync", 30),
            "without steps": lambda: Made(steps=0).work("first", 0, 1000, [0]).call("cudaMalloc", 100, 300, [0]),
        },
        ops=("aten::empty",),
        steps=tuple(f"ProfilerStep#{step}" for step in (1, 2, 3)),
        ranges=each(100, 30, range(1, 10)),
        words={"names": "cudaMalloc"},
    ),
    Case(
        "module-loading",
        lambda: taken("cuModuleLoadData", 30),
        270,
        0.027,
        HELD_UP,
        {
            "198 of 10,000": lambda: taken("cuModuleLoadData", 22),
            "in the first step": lambda: taken("cuModuleLoadData", 500, [0]),
        },
        ops=("aten::empty",),
        steps=tuple(f"ProfilerStep#{step}" for step in (1, 2, 3)),
        ranges=each(100, 30, range(1, 10)),
        words={"names": "cuModuleLoadData"},
    ),
]


test_it_fires, test_it_is_silent = case_tests(CASES)


def run_dry(op: str, until: int) -> Made:
    """The device has nothing to do from 400 to `until` of each step."""
    made = Made().work("first", 0, 400).range(op, 100, 310).call("cudaStreamSynchronize", 110, 295)
    return made.launch(406, "second", until, 1000 - until)


def twenty_of_a_thousand(call: str) -> Made:
    """Calls of 200 in 10 steps of 1000, none in the first."""
    return taken(call, 40, [1, 2, 3, 4, 5])


@pytest.mark.parametrize(
    ("rule", "made"),
    [
        ("item", lambda: run_dry("aten::item", 420)),
        ("synchronise", lambda: run_dry("aten::nonzero", 420)),
        ("blocking-copies", lambda: copied("pageable", 408)),
        ("allocation", lambda: twenty_of_a_thousand("cudaMalloc")),
        ("module-loading", lambda: twenty_of_a_thousand("cuModuleLoadData")),
    ],
)
def test_a_fiftieth_is_enough(rule: str, made: Callable[[], Made]) -> None:
    assert made().findings()[rule].share == 0.02


def test_a_wait_has_no_more_of_the_idle_time_than_it_took() -> None:
    # 400 to 520, of which the wait, 370 to 410, has 40; the rest is the host's: 80 in each step.
    made = Made().work("first", 0, 400).call("cudaDeviceSynchronize", 370, 40).launch(500, "second", 520, 480)
    found = made.findings()
    assert found["synchronise"].evidence.figures["idle_ns"] == 400
    # The last 10 of each call, after the kernel, are its own: without the wait they would be the host's.
    assert found["synchronise"].evidence.at_stake_ns == 300
    assert "late-host" not in found  # 800 of 10,000


def test_what_a_wait_did_not_cause_is_still_the_hosts() -> None:
    # Until 400 of each step nothing is launched, and nobody waited before. In the last step a wait of 40 lets the
    # device run dry once more, from 800 to 920: the rest of these 120 is the host's own, as the 400 are.
    made = Made().launch(390, "first", 400, 400).launch(390, "more", 800, 200, range(9))
    made.call("cudaDeviceSynchronize", 770, 40, [9]).launch(900, "second", 920, 80, [9])
    assert made.findings()["launch-bound"].evidence.figures["idle_ns"] == 10 * 400 + 80


def test_a_copy_is_no_cause_of_a_gap_whose_end_was_launched_before_it() -> None:
    # The kernel after the gap of the last step (400 to 520) is launched at 430, and a copy waits for it from 445 on.
    made = Made(steps=3).work("first", 0, 400).launch(430, "second", 520, 400)
    made.call("cudaMemcpyAsync", 445, 500, [2], correlation_id=9)
    copy = {"kind": "memcpy", "correlation_id": 9, "copy_from": "device", "copy_to": "pageable", "bytes": 4}
    found = made.work("copy", 920, 20, [2], **copy).launch(955, "third", 960, 40).findings()
    # Work that is launched after the wait comes 20 later, of 3,000; with the gap it would be 140.
    assert "blocking-copies" not in found


def test_a_wait_explains_what_is_late_after_a_short_one_that_followed_it() -> None:
    # 100 to 400 for the first kernel, and 410 to 412 for nothing: 120 of each step come after both.
    made = Made().work("first", 0, 400).call("cudaDeviceSynchronize", 100, 300)
    made.call("cudaDeviceSynchronize", 410, 2).launch(500, "second", 520, 480)
    assert made.findings()["synchronise"].evidence.at_stake_ns == 10 * 120
