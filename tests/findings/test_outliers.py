"""Steps that took longer: only where the run did, and with the name of what did it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from findings.made import MAIN, Made
from opspan.findings import Finding
from opspan.questions import Options, question

STEPS, DEVICE_NS, HOST_NS, LOADER = 24, 1000, 100, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def ahead(depth: int, *, device: Sequence[int] = (), host: dict[int, int] | None = None, slow: str = "") -> Made:
    """A host that takes a tenth of what its device takes for a step, which is one launch of aten::mm, and may be
    `depth` launches ahead: then the next launch, which finds the queue full, waits. `device`: steps in which the
    device takes ten times as long; `host`: what the host does longer in a step, in an op called `slow` or in none."""
    made = Made(0)
    now, free, begun = 0, 0, []
    for step in range(STEPS):
        start = now
        at = begun[step - depth] if step >= depth else now
        load = now + 10
        row(made, LOADER, now, load, kind="user")
        more = (host or {}).get(step, 0)
        if more and slow:
            row(made, slow, load, load + more)
        called = load + more + HOST_NS - 40
        now = max(called + 10, at) + 30
        row(made, "aten::mm", called - 10, now)
        begin = max(now, free)
        begun.append(begin)
        free = begin + DEVICE_NS * (10 if step in device else 1)
        number = {"correlation_id": step + 1}
        made.rows.setdefault("calls", []).append(
            {**WHERE, "name": "cudaLaunchKernel", "tid": MAIN, "api": "cuda_runtime", **number}
            | {"start_ns": called, "end_ns": now - 30}
        )
        made.rows.setdefault("work", []).append(
            {**WHERE, "name": "gemm", "kind": "kernel", "device_id": 0, **number} | {"start_ns": begin, "end_ns": free}
        )
        row(made, f"ProfilerStep#{step}", start, now, kind="step")
    return made


WHERE = {"rank": 0, "pid": 1}


def row(made: Made, name: str, start: int, end: int, kind: str = "op") -> None:
    flags = {"is_async": False, "is_mark": False, "tid": MAIN, "kind": kind}
    made.rows.setdefault("ranges", []).append({**WHERE, **flags, "name": name, "start_ns": start, "end_ns": end})


def said(made: Made) -> Finding | None:
    return made.findings().get("step-outliers")


@pytest.mark.parametrize("depth", [1, 5, 12, 20, 23, 1000])
def test_a_host_that_is_held_up_by_a_full_queue_is_no_outlier(depth: int) -> None:
    made = ahead(depth)
    assert said(made) is None
    assert not made.analysed().iterations["is_outlier"].any()


@pytest.mark.parametrize("depth", [8, 12])
def test_an_op_that_took_ten_times_as_long_on_the_device_is_named(depth: int) -> None:
    found = said(ahead(depth, device=[9]))
    assert found is not None
    evidence = found.evidence
    assert (evidence.steps, evidence.ops) == (("ProfilerStep#9",), ("aten::mm",))
    assert evidence.at_stake_ns == pytest.approx(9 * DEVICE_NS, rel=0.01)
    assert (evidence.words["most"], evidence.words["name"]) == ("kernels", "aten::mm")
    assert (evidence.figures["name_ns"], evidence.figures["name_usual_ns"]) == (10 * DEVICE_NS, DEVICE_NS)


def test_what_the_queue_hides_of_a_slow_host_costs_nothing() -> None:
    # Ten steps of the device are in the queue, and one that has begun.
    assert said(ahead(10, host={15: 5 * DEVICE_NS}, slow="save")) is None
    found = said(ahead(10, host={15: 15 * DEVICE_NS}, slow="save"))
    assert found is not None
    assert 4 * DEVICE_NS <= (found.evidence.at_stake_ns or 0) <= 5 * DEVICE_NS
    assert found.evidence.ops[0] == "save"
    assert found.evidence.steps == ("ProfilerStep#15",)


def test_a_pause_that_nothing_names_is_outside_of_ops() -> None:
    found = said(ahead(2, host={15: 15 * DEVICE_NS}))
    assert found is not None
    assert found.evidence.words == {"which": "ProfilerStep#15", "most": "time outside of ops"}


def test_the_sentence_says_what_grew_and_from_what() -> None:
    (row,) = (
        question("findings").rows_of(ahead(12, device=[9]).analysed(), Options()).filter(id="step-outliers").to_dicts()
    )
    assert row["sentence"] == (
        "1 of 24 steps took 9.000us longer than usual ones (1.000us): ProfilerStep#9; without that the run would be up "
        "to 9.000us (27.2% of the steps' time) shorter; most of it is kernels: aten::mm took 10.000us a step "
        "instead of 1.000us"
    )
