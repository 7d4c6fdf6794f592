"""Copies between host and device, and what a run would gain without them."""

from __future__ import annotations

from typing import Any

import pytest

from findings.made import FIRST, Case, Made, case_tests, each


def copying(length: int, side: str = "pinned", then: int = 15, waits: bool = True, **copy: Any) -> Made:
    """A batch is copied from 10 on in each step, and what comes next, launched at `then`, computes until 900. The host
    waits for that, and goes on."""
    begin = max(10 + length, then + 10)
    made = Made().range("aten::copy_", 0, 12)
    made.launch(0, "copy", 10, length, kind="memcpy", copy_from=side, copy_to="device", bytes=1024, **copy)
    made.launch(then, "gemm", begin, 900 - begin)
    return made.call("cudaDeviceSynchronize", then + 20, 885 - then) if waits else made


CASES = [
    Case(
        "exposed-copies",
        lambda: copying(200),
        # The kernel, launched from 15 to 25, would be so from 5 to 15, and begin at 15 instead of 210.
        1950,
        0.195,
        {"exposed_ns": 1950, "exposed_share": 0.195, "copies": 10, "bytes": 10_240, "ns": 2000}
        | {"busy_share": 2000 / 8900, "pinned_ns": 2000},
        {
            "4.9%": lambda: copying(39),
            "nothing waits for it": lambda: copying(15, stream_id=9),
            "within the device": lambda: copying(200, "device"),
            "what came next was launched late": lambda: copying(200, then=205),
            # From 900 on the device has nothing to do, until the host launches the next copy.
            "the host set the pace": lambda: copying(200, waits=False),
        },
        ops=("aten::copy_",),
        steps=FIRST,
        ranges=each(10, 200),
        words={"memory": "in all of them it is pinned", "direction": "to the device"},
    ),
]


test_it_fires, test_it_is_silent = case_tests(CASES)


def test_a_call_that_waits_for_its_copy_goes_with_it() -> None:
    # The host begins to copy at 0, waits until 200, and launches then.
    made = Made().call("cudaMemcpy", 0, 200, correlation_id=1)
    made.work("copy", 10, 190, kind="memcpy", copy_from="pageable", copy_to="device", bytes=8, correlation_id=1)
    found = made.launch(200, "gemm", 220, 780).findings()["exposed-copies"].evidence
    assert (found.at_stake_ns, found.words["memory"]) == (10 * 200, "in all of them it is pageable")


def test_a_call_may_return_before_the_device_has_all_of_its_copy() -> None:
    made = Made().call("cudaMemcpy", 0, 150, correlation_id=1)
    made.work("copy", 10, 190, kind="memcpy", copy_from="pageable", copy_to="device", bytes=8, correlation_id=1)
    assert made.launch(400, "gemm", 410, 590).findings()["exposed-copies"].evidence.at_stake_ns == 10 * 150


@pytest.mark.parametrize(("at", "ns"), [(10, 110 - 15), (60, 160 - 15)])
def test_copies_of_two_devices_cost_what_the_later_one_does(at: int, ns: int) -> None:
    made = Made()
    for device, begin in ((0, 10), (1, at)):
        copy = {"kind": "memcpy", "copy_from": "pinned", "copy_to": "device", "bytes": 8, "device_id": device}
        made.launch(0, "copy", begin, 100, **copy).launch(15, "gemm", begin + 100, 500, device_id=device)
    # Work after the copies begins when it is launched. Nothing explains why the second copy began 50 after the first.
    made.call("cudaDeviceSynchronize", 30, at + 600 - 25)
    assert made.findings()["exposed-copies"].evidence.at_stake_ns == 10 * ns


@pytest.mark.parametrize(("gap", "is_found"), [(10_000, True), (20_001, False)])
def test_work_without_a_call_was_launched_before_what_it_follows_closely(gap: int, is_found: bool) -> None:
    made = Made(steps=0)
    copy = {"kind": "memcpy", "copy_from": "pinned", "copy_to": "device", "bytes": 8}
    made.work("copy", 0, 500_000, [0], **copy).work("gemm", 500_000 + gap, 500_000, [0])
    assert ("exposed-copies" in made.findings()) == is_found


def test_on_a_device_with_many_gaps_that_nobody_knows_it_was_not() -> None:
    made = Made(steps=0)
    copy = {"kind": "memcpy", "copy_from": "pinned", "copy_to": "device", "bytes": 8}
    for number in range(10):
        made.work("copy", 40_000 * number, 10_000, [0], **copy).work("gemm", 40_000 * number + 20_000, 10_000, [0])
    assert "exposed-copies" not in made.findings()
