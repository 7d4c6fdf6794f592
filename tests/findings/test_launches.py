"""Devices that had nothing to do for another reason than a wait: launching, a late host, a queue, the optimizer."""

from __future__ import annotations

from typing import Any

import pytest

from findings.made import FIRST, MAIN, STEP, Case, Made, case_tests, each
from opspan.findings.host_place import UNKNOWN


def paced(length: int, late: int) -> Made:
    """A launch every 100, whose work begins `late` after it and takes `length`: ten in each step."""
    made = Made()
    for number in range(10):
        made.launch(100 * number, "small", 100 * number + late, length)
    return made


def logging(length: int = 100, kind: str = "user") -> Made:
    """Seven launches in 70 and as many kernels after 20; then the host logs, until it launches in the next step."""
    made = Made().range("log", 750, 200, kind=kind)
    for number in range(7):
        made.launch(10 * number, "long", 20 + length * number, length)
    return made


def queued(until: int) -> Made:
    return Made().work("first", 0, 400).launch(100, "second", until, 1000 - until)


def optimizer(op: str = "aten::add_", parameters: int = 4, length: int = 20) -> Made:
    """An op each 100 from 500 on, whose work begins 10 after its launch, which is 10 after the op."""
    made = Made().launch(10, "backward", 20, 480).range("Optimizer.step#SGD.step", 450, 500, kind="user")
    for number in range(parameters):
        begin = 500 + 100 * number
        made.range(op, begin, 40).launch(begin + 10, "add", begin + 20, length)
    return made


def data_parallel(length: int = 100, name: str = "DataParallel.forward", devices: int = 2) -> Made:
    """Each device as the one of `logging`."""
    made = logging(length, "op").range(name, 100, 700, kind="user")
    for device in range(1, devices):
        for number in range(7):
            made.launch(10 * number, "long", 20 + length * number, length, tid=MAIN + device, device_id=device)
    return made


def sorting(apart: int = 100, kernels: int = 4, op: str = "aten::sort") -> Made:
    """An op that launches short kernels; the host does nothing else, and waits for nothing."""
    made = Made().range(op, 0, 500)
    for number in range(kernels):
        made.launch(10 + apart * number, "radix", 30 + apart * number, 10)
    return made


CASES = [
    Case(
        "small-kernels",
        sorting,
        # From the end of the first launch to that of the last the host does nothing else.
        10 * 300,
        0.3,
        {"kernels": 40, "ops": 10, "each": 4, "work_ns": 10},
        {
            "two of them": lambda: sorting(kernels=2),
            "compiled code": lambda: sorting(op="Torch-Compiled Region: 0/0"),
            "one at once after the other": lambda: sorting(apart=9),
        },
        ops=("aten::sort",),
        steps=("ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"),
        ranges=[
            (30 + 100 * number + 1000 * step, 40 + 100 * number + 1000 * step) for step in (0, 1) for number in range(4)
        ]
        + [(2030, 2040), (2130, 2140)],
        words={"op": "aten::sort"},
    ),
    Case(
        "launch-bound",
        lambda: paced(20, 40),
        # From 0 to 40, then from the end of each kernel to the next, 80, of which there are 99.
        40 + 99 * 80,
        0.796,
        {"idle_ns": 7960, "idle_share": 0.796, "apart_ns": 100, "work_ns": 20, "short_share": 0.0},
        {
            "idle for 5 of 100": lambda: paced(95, 5),
            "work is longer than the pace": lambda: logging(),
            # Nothing launches quickly; but a gap of 850 is no pace of launches that are 10 apart.
            "gaps are longer": lambda: (
                Made().launch(0, "a", 20, 5).launch(10, "b", 25, 5).launch(20, "c", 30, 5).launch(30, "d", 40, 500)
            ),
        },
        ops=FIRST,
        steps=FIRST,
        # All gaps are equally long but the first: the first ten of 80.
        ranges=[(60 + 100 * number, 140 + 100 * number) for number in range(10)],
    ),
    Case(
        "late-host",
        logging,
        # From 0 to 20, then from 720 to 1020 nine times; what follows the last kernel nobody launched.
        # The host does nothing from the end of a launch to that of the next but what it does from one to the next: 10.
        10 * 300 - 20,
        0.298,
        {"idle_ns": 2720, "idle_share": 0.272},
        {
            "idle for 5.5%": lambda: logging(135),
            "launched long before": lambda: queued(600),
            "the end of the run": lambda: Made().work("first", 0, 1000, range(5)),
        },
        # log has 200 of nine gaps; of the steps' own the first has 20 + 100, the others 100 and the last 20.
        ops=("log", "ProfilerStep#0", "ProfilerStep#1"),
        # The part of a gap that lies in the next step is the next step's.
        steps=("ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"),
        ranges=each(720, 300, range(9)) and [(0, 20), *each(720, 300, range(9))],
        words={"where": "log"},
    ),
    Case(
        "queued",
        lambda: queued(520),
        1200,
        0.12,
        {"idle_ns": 1200, "idle_share": 0.12},
        {
            "idle for 9.9%": lambda: queued(499),
            "launched late": lambda: Made().work("a", 0, 400).launch(450, "b", 900, 100),
        },
        ops=FIRST,
        steps=FIRST,
        ranges=each(400, 120),
    ),
    Case(
        "optimizer-loop",
        optimizer,
        # From the end of the first launch to that of the last the host does nothing else.
        10 * 300,
        0.3,
        # From 500 to 520, three times 80, and from 840 to the end of the range, but after the last.
        {"idle_ns": 10 * (20 + 3 * 80) + 9 * 110, "idle_share": 0.359, "steps": 10, "kernels": 40},
        {
            "it takes many at once": lambda: optimizer("aten::_foreach_add_"),
            "it is fused": lambda: optimizer("aten::_fused_adamw_"),
            "it has one": lambda: optimizer(parameters=1),
            "on the host": lambda: Made().range("Optimizer.step#SGD.step", 450, 500).range("aten::add_", 600, 40),
        },
        ops=("aten::add_",),
        steps=FIRST,
        ranges=each(450, 500),
    ),
    Case(
        "data-parallel",
        data_parallel,
        2720,  # as late-host
        0.272,
        {"calls": 10, "idle_ns": 2720, "idle_share": 0.272, "exchange_ns": 0, "more_ns": 0},
        {
            "distributed": lambda: data_parallel(name="DistributedDataParallel.forward"),
            # 20, and from 993 to 1020 nine times: 2.6%
            "idle for 2.6%": lambda: data_parallel(139),
            "on one device": lambda: data_parallel(devices=1),
            "on the host": lambda: Made().range("DataParallel.forward", 100, 700),
        },
        ranges=each(100, 700),
    ),
]


test_it_fires, test_it_is_silent = case_tests(CASES)


def test_the_pause_of_an_outlier_is_no_idle_time_of_the_step_before() -> None:
    # Kernels until 900 of each step; step 4 takes 9000 longer, and nothing is launched in it before 9000.
    made = Made(longer={4: 9000}).launch(0, "kernel", 10, 890, [0, 1, 2, 3, 5, 6, 7, 8, 9])
    found = made.launch(9000, "late", 9100, 900, [4]).findings()
    assert found["step-outliers"].evidence.figures["more_ns"] == 9 * STEP
    # Without the pause the late kernel is not done before the next one is launched.
    assert found["step-outliers"].evidence.at_stake_ns == pytest.approx(9 * STEP, rel=0.05)
    # 100 of the gap that ends with the step belong to step 3, which is 0.5% of 19,000.
    assert "late-host" not in found


def test_what_is_idle_after_the_last_step_is_not_looked_at() -> None:
    # Steps end at 10,000; a kernel 40,000 later was launched when it was to begin.
    made = Made().work("kernel", 0, 950).work("kernel", 950, 50, range(9)).launch(0, "late", 0, 0, [])
    made.range("evaluate", 10 * STEP, 50_000, [0], kind="user").launch(49_980, "late", 50_000, 10, [0])
    found = made.findings()
    assert "late-host" not in found
    assert not any((finding.evidence.at_stake_ns or 0) > 10 * STEP for finding in found.values())


def test_a_host_that_is_late_in_no_range_is_said_to_be_in_unknown_code() -> None:
    # From 720 to 1020 the host launches nothing: 50 of it are in a range, and no other range is there.
    made = Made().range("log", 750, 50, kind="user")
    for number in range(7):
        made.launch(10 * number, "long", 20 + 100 * number, 100)
    made.rows["ranges"] = [row | {"tid": 2} if row["kind"] == "step" else row for row in made.rows["ranges"]]
    assert made.findings()["late-host"].evidence.words == {"where": UNKNOWN}


def late_between(**more: Any) -> Made:
    """Seven launches in 70 of each step, kernels until 720, and then a host that launches nothing until the next."""
    made = Made()
    for number in range(7):
        made.launch(10 * number, "long", 20 + 100 * number, 100, **more)
    return made


def test_a_step_is_no_place_and_the_function_in_it_is() -> None:
    made = late_between()
    for number, (name, at, length) in enumerate((("train.py(9): main", 0, 1000), ("train.py(3): log", 715, 280))):
        made.add("functions", at, length, None, name=name, tid=1, id=number)
    assert made.findings()["late-host"].evidence.words == {"where": "train.py(3): log"}


def test_a_step_is_no_place_and_what_samples_are_in_is() -> None:
    made = late_between()
    for at, stack in ((730, "main;log;write"), (800, "main;log;write"), (900, "main;log"), (300, "main;other")):
        made.add("samples", 0, 0, None, tid=1, time_ns=0, stack=stack)
        for step, row in enumerate(made.rows["samples"][-10:]):
            row["time_ns"] = STEP * step + at
    assert made.findings()["late-host"].evidence.words == {"where": "write"}
