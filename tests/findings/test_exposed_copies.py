"""Copies between host and device that nothing hides."""

from __future__ import annotations

import pytest

from findings.made import FIRST, Case, Made, check_fires, check_silent, each


def copying(length: int, side: str = "pinned", then: int = -15, until: int = 1000) -> Made:
    """A batch is copied from the begin of each step on, and what comes next, launched at `then`, computes `until`."""
    made = Made().range("aten::copy_", -30, 10).range("aten::copy_", 970, 10, [9])
    made.launch(-30, "copy", 0, length, kind="memcpy", copy_from=side, copy_to="device", bytes=1024)
    return made.launch(then, "gemm", length, until - length)


CASES = [
    Case(
        "exposed-copies",
        lambda: copying(200),
        2000,
        0.2,
        {"exposed_ns": 2000, "exposed_share": 0.2, "copies": 10, "bytes": 10_240, "ns": 2000, "busy_share": 0.2}
        | {"pinned_ns": 2000},
        {
            "4.9%": lambda: copying(49),
            "it computed meanwhile": lambda: copying(200).launch(-30, "other", 0, 200, stream_id=9),
            "a collective ran meanwhile": lambda: copying(200).launch(-30, "ncclDevKernel", 0, 200, stream_id=9),
            "within the device": lambda: copying(200, "device"),
            "what came next was launched late": lambda: copying(200, then=195),
            # From 800 on the device has nothing to do, until the host launches the next copy.
            "the host set the pace": lambda: copying(200, until=800),
        },
        ops=("aten::copy_",),
        steps=FIRST,
        ranges=each(0, 200),
        words={"memory": "in all of them it is pinned", "direction": "to the device"},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_it_fires(case: Case) -> None:
    check_fires(case)


@pytest.mark.parametrize(("case", "why"), [(case, why) for case in CASES for why in case.silent])
def test_it_is_silent(case: Case, why: str) -> None:
    check_silent(case, why)


def test_what_the_host_waited_for_is_not_made_up_for() -> None:
    made = copying(200, until=800).call("cudaDeviceSynchronize", 100, 705)
    assert made.findings()["exposed-copies"].evidence.at_stake_ns == 10 * 200


def test_a_call_that_waits_for_its_copy_is_held_up_by_it() -> None:
    # The host begins to copy at 0, waits until 200, and launches then.
    made = Made().call("cudaMemcpy", 0, 200, correlation_id=1)
    made.work("copy", 10, 190, kind="memcpy", copy_from="pageable", copy_to="device", bytes=8, correlation_id=1)
    found = made.launch(200, "gemm", 220, 780).findings()["exposed-copies"].evidence
    assert (found.at_stake_ns, found.words["memory"]) == (10 * 190, "in all of them it is pageable")


def test_what_the_host_itself_waited_is_not_made_up_for() -> None:
    # From pageable memory the call may return before the device has all of it.
    made = Made().call("cudaMemcpy", 0, 150, correlation_id=1)
    made.work("copy", 10, 190, kind="memcpy", copy_from="pageable", copy_to="device", bytes=8, correlation_id=1)
    assert made.launch(400, "gemm", 410, 590).findings()["exposed-copies"].evidence.at_stake_ns == 10 * 140


@pytest.mark.parametrize(("at", "at_stake_ns"), [(0, 1000), (50, 1500), (100, 2000)])
def test_copies_of_two_devices_count_while_none_of_them_computes(at: int, at_stake_ns: int) -> None:
    made = Made()
    for device, begin in ((0, 0), (1, at)):
        copy = {"kind": "memcpy", "copy_from": "pinned", "copy_to": "device", "bytes": 8, "device_id": device}
        made.launch(-30, "copy", begin, 100, **copy).launch(-15, "gemm", 200, 800, device_id=device)
    assert made.findings()["exposed-copies"].evidence.at_stake_ns == at_stake_ns


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
