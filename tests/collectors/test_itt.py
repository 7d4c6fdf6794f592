"""Everything ITT can say, said by a C program with a vendor's ittnotify.h, arrives in the capture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from builders.capture_units import (
    ASYNC,
    ATTRIBUTE,
    COUNTER,
    DOUBLE,
    FRAME,
    INT,
    ITT,
    MARK,
    NAME,
    NO_OWNER,
    OWNER_BY_ID,
    RANGE,
    RELATION,
    STATE,
    UINT,
    Capture,
    Unit,
    id_of,
)  # fmt: skip
from collectors.running import Collected

NULL = (0, 0, 0)
DEPENDENT_ON, CONTINUATION_OF, CHILD_OF = 1, 4, 5


@pytest.fixture
def ran(collected: Collected, itt_client: Callable[[str], Path]) -> tuple[list[str], Capture]:
    out, err = collected.run(itt_client("itt_calls.c"))
    assert err == ""
    return out.splitlines(), collected.capture()


def named(capture: Capture, name: str, *kinds: int) -> Unit:
    (unit,) = [unit for unit in capture.units(*kinds) if unit.name == name]
    return unit


def itt_id(number: int) -> tuple[int, int, int]:
    return number, 9, 0


def test_returns_what_itt_promises(ran: tuple[list[str], Capture]) -> None:
    out, _ = ran

    assert out == ["string 1", "domain 1", "same 1", "end 1", "version opspan collector"]


def test_tasks_nest_and_keep_ids_and_parents(ran: tuple[list[str], Capture]) -> None:
    _, capture = ran
    (tid,) = capture.threads
    inner = named(capture, "inner", RANGE)

    assert capture.depths(tid)[:3] == [(0, "outer"), (1, "inner"), (0, "traced_function")]
    assert (inner.source, capture.text(inner.domain)) == (ITT, "domain")
    assert inner.ids == (itt_id(1), itt_id(100))
    assert named(capture, "outer", RANGE).ids is None
    assert all(unit.end_ns for unit in capture.units(RANGE))


def test_a_task_ends_in_its_own_domain(ran: tuple[list[str], Capture]) -> None:
    _, capture = ran
    one, another = named(capture, "of one", RANGE), named(capture, "of another", RANGE)

    assert (capture.text(one.domain), capture.text(another.domain)) == ("domain", "other ü")
    assert one.start_ns <= another.start_ns <= one.end_ns <= another.end_ns


def test_overlapped_tasks_and_regions(ran: tuple[list[str], Capture]) -> None:
    _, capture = ran
    two, three = named(capture, "overlapped 2", ASYNC), named(capture, "overlapped 3", ASYNC)
    region = named(capture, "region", ASYNC)
    ends = [capture.ended(unit) for unit in (two, three, region)]

    assert (two.ids, three.ids) == ((itt_id(2), NULL), (itt_id(3), itt_id(2)))
    assert region.id != two.id
    assert None not in ends
    assert ends == sorted(ends)  # type: ignore[type-var]


def test_other_clocks_are_translated(ran: tuple[list[str], Capture]) -> None:
    _, capture = ran
    task = named(capture, "by a clock", RANGE)
    overlapped = named(capture, "overlapped by a clock", ASYNC)
    marker = named(capture, "marker by a clock", MARK)

    assert task.end_ns - task.start_ns == 2_000_000
    assert overlapped.start_ns - task.start_ns == 1_000_000
    assert (capture.ended(overlapped) or 0) - overlapped.start_ns == 2_000_000
    assert marker.start_ns - task.start_ns == 9_000_000
    assert 0 < task.start_ns - named(capture, "region", ASYNC).start_ns < 60_000_000_000


def test_frames(ran: tuple[list[str], Capture]) -> None:
    _, capture = ran
    anonymous, known, submitted = capture.units(FRAME)

    assert [capture.text(frame.domain) for frame in (anonymous, known, submitted)] == ["domain"] * 3
    assert anonymous.start_ns <= (capture.ended(anonymous) or 0) <= known.start_ns <= (capture.ended(known) or 0)
    assert known.ids == (itt_id(7), NULL)
    assert submitted.end_ns - submitted.start_ns == 1000


def test_metadata_of_tasks(ran: tuple[list[str], Capture]) -> None:
    _, capture = ran

    assert named(capture, "described", RANGE).attributes == {
        "s64": [-1, 2, 3, 4, 5, 6, -7],
        "u64": [2**64 - 1],
        "s32": [-32],
        "u32": [32],
        "s16": [-16, 16],
        "u16": [16],
        "float": [1.5],
        "double": [-2.5],
        "bytes": list(b"abc"),
        "text": ['a "text"\n€'],
        "part": ["part"],
        "scoped": ["to the task"],
        "scoped number": [2**64 - 1],
        "step %d of %s": ["step 3 of many"],
    }


def test_metadata_of_no_open_task(ran: tuple[list[str], Capture]) -> None:
    _, capture = ran
    (thread,) = [unit for unit in capture.units(ATTRIBUTE) if unit.owner == NO_OWNER]
    (late,) = [unit for unit in capture.units(ATTRIBUTE) if unit.flags & OWNER_BY_ID]
    (holder,) = [unit for unit in capture.units() if unit.number == late.owner]

    assert (thread.name, capture.text(thread.v0)) == ("thread", "to the thread")
    assert (late.name, capture.text(late.v0)) == ("late", "by id")
    assert (holder.owner, id_of(holder, "i")) == (NO_OWNER, itt_id(20))
    assert named(capture, "marker", MARK).ids == (itt_id(20), NULL)


def test_relations(ran: tuple[list[str], Capture]) -> None:
    _, capture = ran
    made_up = named(capture, "without an id", RANGE).ids
    assert made_up is not None
    assert made_up[0] != NULL

    relations = [(id_of(unit, "h"), unit.flags, id_of(unit, "t")) for unit in capture.units(RELATION)]
    assert relations == [
        (itt_id(10), CHILD_OF, itt_id(1)),
        (made_up[0], DEPENDENT_ON, itt_id(10)),
        (itt_id(10), CONTINUATION_OF, itt_id(1)),
    ]


def test_counters_hold_values(ran: tuple[list[str], Capture]) -> None:
    _, capture = ran

    assert [(capture.text(it.domain), it.name, it.flags, it.value) for it in capture.units(COUNTER)] == [
        ("shop", "items", UINT, 1),
        ("shop", "items", UINT, 11),
        ("shop", "items", UINT, 10),
        ("shop", "items", UINT, 6),
        ("shop", "items", UINT, 100),
        ("shop", "loss", DOUBLE, 0.75),
        ("domain", "below", INT, -3),
        ("domain", "v3", UINT, 5),
        ("domain", "v3", UINT, 4),
    ]


def test_the_rest(ran: tuple[list[str], Capture]) -> None:
    _, capture = ran
    (name,) = capture.units(NAME)
    paused, resumed, detached = capture.units(STATE)
    inside = named(capture, "while paused", RANGE)
    outer, inner = [unit for unit in capture.units(ASYNC) if unit.name == "user event"]

    assert (name.what, name.whose, name.name) == (1, capture.pid, "itt thread")
    assert (paused.flags, resumed.flags, detached.flags) == (0, 1, 0)
    assert paused.time_ns <= inside.start_ns <= inside.end_ns <= resumed.time_ns
    assert outer.start_ns <= inner.start_ns <= (capture.ended(inner) or 0) <= (capture.ended(outer) or 0)
