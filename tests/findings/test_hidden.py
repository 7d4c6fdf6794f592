"""The part of collectives that overlapping would hide, against buckets that are laid out one by one; and a host that
never waits."""

from __future__ import annotations

import json

import polars as pl
import pytest

from findings.made import Made
from opspan.findings.hidden import unhidden

KERNEL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
BYTES = json.dumps({"Collective name": "allreduce", "In msg nelems": 1 << 20, "dtype": "Float", "Group size": 1})


def buckets(count: int, each: int, backward: int, begun: int = 0) -> pl.DataFrame:
    """A step's collectives after a backward; `begun`: how many of them were launched within it."""
    rows = [
        {"rank": 0, "pid": 1, "device_id": 0, "step": "a step", "start_ns": backward + number * each}
        | {"exposed_ns": each, "waiting_ns": 0, "backward_ns": backward - (number < begun)}
        for number in range(count)
    ]
    return pl.DataFrame(rows)


@pytest.mark.parametrize("count", [2, 3, 8])
@pytest.mark.parametrize("each", [10, 120, 500, 2000])
def test_what_overlapping_leaves_is_what_buckets_leave_that_begin_when_they_are_full(count: int, each: int) -> None:
    backward = 24 * 50
    now = 0
    for number in range(1, count + 1):
        now = max(now, backward * number // count) + each

    assert unhidden(buckets(count, each, backward))["left_ns"].to_list() == [now - backward]


def test_of_what_began_within_the_backward_nothing_is_known_to_be_hidden_otherwise() -> None:
    assert unhidden(buckets(4, 100, 1000, begun=2)).height == 0
    assert unhidden(buckets(1, 100, 1000)).height == 0


def run(host: int, waits: int, synchronises: bool = True) -> Made:
    """Each step of 1,000: the host is busy for so long, then a collective of 600 that nothing hides."""
    made = Made().launch(host, KERNEL, host + 20, 600, payload_json=BYTES)
    if synchronises:
        made.call("cudaDeviceSynchronize", host + 20, waits)
    return made


@pytest.mark.parametrize(("synchronises", "at_stake_ns"), [(True, 6000), (False, 6000)])
def test_a_host_that_waits_for_collectives_is_held_up_by_them(synchronises: bool, at_stake_ns: int) -> None:
    found = run(10, 600, synchronises).findings()["communication-or-waiting"].evidence
    assert found.at_stake_ns == at_stake_ns


def test_a_host_that_does_not_wait_sets_the_pace() -> None:
    found = run(10, 200).findings()["communication-or-waiting"].evidence
    # Nine waits, and from the end of the last launch, at 20, until all is done.
    assert found.at_stake_ns == 9 * 200 + (30 + 600 - 20)
    assert found.figures["exposed_ns"] == 6000
