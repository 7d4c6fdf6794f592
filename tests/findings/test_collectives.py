"""Collectives over ranks: who comes late, and what is small."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from findings.made import FIRST, Case, Made, case_tests, each

KERNEL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def two(
    late: dict[int, Iterable[int]], hidden: bool = False, late_by: int = 200, ranks: Sequence[int] = (0, 1)
) -> Made:
    """Two ranks compute until 500 and are done with a collective at 800; `late`: rank -> the steps that it comes late
    to. Of 10,000 in all, the other waits for 200 each time."""
    made = Made(ranks=ranks)
    for rank in ranks:
        made.ranks = (rank,)
        for step in range(10):
            begin = 500 + late_by * (step in late.get(rank, ()))
            made.work("gemm", 0, 1000 if hidden else begin, [step], stream_id=1)
            made.work(KERNEL, begin, 800 - begin, [step], stream_id=2)
    made.ranks = ranks
    return made


def small(count: int, **more: str) -> Made:
    made = Made().work("gemm", 500, 500, stream_id=1)
    for number in range(count):
        made.work(KERNEL, 50 * number, 20, stream_id=2, **more)
    return made


def told(elements: int) -> str:
    return json.dumps({"Collective name": "allreduce", "In msg nelems": elements, "dtype": "Float"})


ALWAYS, EVEN, ODD = range(10), range(0, 10, 2), range(1, 10, 2)
CASES = [
    Case(
        "exposed-communication",
        lambda: two({}),
        3000,
        0.3,
        {"exposed_ns": 3000, "exposed_share": 0.3, "waiting_ns": 0, "communicating_ns": 3000, "collectives": 20},
        {"computing hides it": lambda: two({}, hidden=True), "the other rank is not here": lambda: small(10)},
        ops=(KERNEL,),
        steps=FIRST,
        ranges=each(500, 300),
    ),
    Case(
        "straggler",
        lambda: two({1: ALWAYS}),
        2000,
        0.2,
        {"waiting_ns": 2000, "waiting_share": 0.2, "collectives": 10, "times": 10},
        {
            "nobody is late": lambda: two({}),
            "both are, in turn": lambda: two({0: EVEN, 1: ODD}),
            "computing hides it": lambda: two({1: ALWAYS}, hidden=True),
            "2.9%": lambda: two({1: ALWAYS}, late_by=29),
        },
        steps=FIRST,
        ranges=each(500, 300),
        words={"who": "rank 1 (process 1)", "when": ""},
    ),
    Case(
        "uneven-ranks",
        lambda: two({0: EVEN, 1: ODD}),
        1000,  # if each came when the mean of both does
        0.1,
        {"waiting_ns": 1000, "waiting_share": 0.1, "collectives": 10},
        {
            "one is late": lambda: two({1: ALWAYS}),
            "computing hides it": lambda: two({0: EVEN, 1: ODD}, hidden=True),
            "4.95%": lambda: two({0: EVEN, 1: ODD}, late_by=99),
        },
        steps=FIRST,
        ranges=each(500, 300),
    ),
    Case(
        "small-collectives",
        lambda: small(10),
        1800,  # the last one of each step stays
        0.18,
        {"collectives": 100, "exposed_ns": 2000, "exposed_share": 0.2, "each_ns": 20, "per_step": 10},
        {
            "nine a step": lambda: small(9),
            "a megabyte each": lambda: small(10, payload_json=told(1 << 18)),
            "computing hides them": lambda: small(10).work("relu", 0, 500),
            "two megabytes each": lambda: small(10, payload_json=told(1 << 19)),
        },
        steps=FIRST,
        ranges=[(50 * number, 50 * number + 20) for number in range(10)],
    ),
]


test_it_fires, test_it_is_silent = case_tests(CASES)


def test_a_straggler_is_named_and_what_others_waited_is_no_communication() -> None:
    found = two({1: ALWAYS}).findings()
    assert found["straggler"].evidence.ranks == (1,)
    # 300 of the one in each step, less the 200 that it waited, and 100 of the other.
    assert found["exposed-communication"].evidence.at_stake_ns == 1000


def test_what_is_told_to_be_small_is_small() -> None:
    assert small(10, payload_json=told((1 << 18) - 1)).findings()["small-collectives"].evidence.at_stake_ns == 1800


def test_only_ranks_that_others_waited_for_are_named() -> None:
    three = (0, 1, 2)
    # Rank 2 comes last to seven collectives, rank 1 to three: 2 caused most of the waiting, and its part is at stake.
    one = two({2: range(7), 1: range(7, 10)}, ranks=three).findings()["straggler"].evidence
    assert (one.ranks, one.at_stake_ns) == ((2,), 7 * 200)
    # In the last two steps nobody is late. Rank 2 counts as the last there, but nobody waited for it.
    turns = two({0: range(0, 8, 2), 1: range(1, 8, 2)}, ranks=three).findings()["uneven-ranks"].evidence
    assert (turns.ranks, turns.at_stake_ns) == ((0, 1), (4 + 4 + 8) * 200 // 3)
